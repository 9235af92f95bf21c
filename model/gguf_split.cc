#include "model/gguf_split.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "model/checkpoint.h"
#include "model/utf8.h"

namespace cairn {
namespace {

constexpr char kNumberKey[] = "split.no";
constexpr char kCountKey[] = "split.count";
constexpr char kTensorsKey[] = "split.tensors.count";
constexpr char kArchitectureKey[] = "general.architecture";

absl::StatusOr<int64_t> ReadInteger(const Metadata& metadata, const char* key, int64_t limit) {
  const MetadataValue* const value = metadata.Find(key);
  if (value == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("a part of a split model lacks a key: ", key));
  }
  const std::optional<int64_t> integer = value->AsInteger();
  if (!integer.has_value()) return absl::InvalidArgumentError(absl::StrCat(key, " is no integer"));
  if (*integer >= 0 && *integer <= limit) return *integer;
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is out of range: value=", *integer, " limits=0..", limit));
}

std::string PartSuffix(int64_t number, int64_t count) {
  return absl::StrFormat("-%05d-of-%05d.gguf", number + 1, count);
}

}  // namespace

absl::StatusOr<std::optional<GgufSplit>> ReadGgufSplit(const Metadata& metadata) {
  if (metadata.Find(kCountKey) == nullptr) return std::nullopt;
  GgufSplit split;
  ASSIGN_OR_RETURN(split.count, ReadInteger(metadata, kCountKey, kMaxShards));
  if (split.count <= 1) return std::nullopt;  // how some writers say that the model is whole
  ASSIGN_OR_RETURN(split.number, ReadInteger(metadata, kNumberKey, split.count - 1));
  ASSIGN_OR_RETURN(split.num_tensors, ReadInteger(metadata, kTensorsKey, kMaxTensors));
  return split;
}

absl::StatusOr<std::string> GgufPartPath(const std::string& path, const GgufSplit& split,
                                         int64_t number) {
  const std::string suffix = PartSuffix(split.number, split.count);
  if (!path.ends_with(suffix)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name of a part does not end with its place in the model: expected=", suffix, " ",
        kNumberKey, "=", split.number, " ", kCountKey, "=", split.count));
  }
  return absl::StrCat(path.substr(0, path.size() - suffix.size()), PartSuffix(number, split.count));
}

absl::Status CheckGgufPart(const Metadata& first, const GgufSplit& split, const Metadata& part,
                           int64_t number) {
  struct Field {
    const char* key;
    int64_t expected;
  };
  for (const Field& field : {Field{kCountKey, split.count}, Field{kNumberKey, number},
                             Field{kTensorsKey, split.num_tensors}}) {
    ASSIGN_OR_RETURN(const int64_t actual,
                     ReadInteger(part, field.key, std::numeric_limits<int64_t>::max()));
    if (actual == field.expected) continue;
    return absl::InvalidArgumentError(absl::StrCat("a part contradicts the others: ", field.key,
                                                   "=", actual, " expected=", field.expected));
  }
  const auto architecture = [](const Metadata& metadata) -> std::optional<std::string_view> {
    const MetadataValue* const value = metadata.Find(kArchitectureKey);
    return value == nullptr ? std::nullopt : value->AsString();
  };
  const std::optional<std::string_view> ours = architecture(first), its = architecture(part);
  if (!its.has_value() || its == ours) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a part of another model: ", kArchitectureKey, "=",
                                                 Printable(*its),
                                                 " expected=", Printable(ours.value_or("none"))));
}

}  // namespace cairn
