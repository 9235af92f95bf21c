// Hyper-parameters by name, from GGUF metadata or a JSON object, each checked against its limits.
//
// A JSON null counts as absent. A GGUF array with one value per layer counts as that value if all
// are equal. Thread: any; views the source, which must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "model/metadata.h"

namespace cairn {

struct IntLimits {
  int64_t min = 0;
  int64_t max = 0;
};

struct NumberLimits {
  double min = 0;  // both inclusive; NaN is never inside
  double max = 0;
};

class ParameterReader {
 public:
  // `prefix` is put before every key: "general.".
  ParameterReader(const Metadata* metadata, std::string prefix)
      : metadata_(metadata), prefix_(std::move(prefix)) {}
  // `prefix` is put before every key in messages only: "config.json: ".
  ParameterReader(const nlohmann::json* object, std::string prefix)
      : object_(object), prefix_(std::move(prefix)) {}

  bool Has(std::string_view key) const;

  // Errors of all: InvalidArgument naming key, value and limits if it is of another type or outside
  // the limits, or absent without a fallback; Unimplemented if it differs from layer to layer.
  absl::StatusOr<int> Int(std::string_view key, IntLimits limits,
                          std::optional<int> fallback = std::nullopt) const;
  absl::StatusOr<double> Number(std::string_view key, NumberLimits limits,
                                std::optional<double> fallback = std::nullopt) const;
  absl::StatusOr<bool> Flag(std::string_view key, bool fallback) const;
  absl::StatusOr<std::string> Text(std::string_view key,
                                   std::optional<std::string> fallback = std::nullopt) const;
  // One integer or a list of them; empty if absent. At most max_count.
  absl::StatusOr<std::vector<int64_t>> Integers(std::string_view key, int max_count) const;
  // A list of texts; empty if absent. At most max_count.
  absl::StatusOr<std::vector<std::string>> Texts(std::string_view key, int max_count) const;

  // The key as the file has it, for messages.
  std::string FullKey(std::string_view key) const;

 private:
  struct Absent {};
  struct Other {};   // of a type that no parameter has
  struct Varied {};  // an array whose elements differ
  using Value = std::variant<Absent, Other, Varied, int64_t, double, bool, std::string>;

  Value Lookup(std::string_view key) const;
  Value LookupMetadata(std::string_view key) const;
  Value LookupJson(std::string_view key) const;
  absl::Status Missing(std::string_view key) const;
  // What a message shows of a value that is there and of no type that fits.
  std::string OddValue(std::string_view key) const;
  absl::Status WrongType(std::string_view key, const Value& value, std::string_view wanted) const;
  absl::Status WrongList(std::string_view key, std::string_view wanted, int max_count) const;

  const Metadata* metadata_ = nullptr;
  const nlohmann::json* object_ = nullptr;
  std::string prefix_;
};

}  // namespace cairn
