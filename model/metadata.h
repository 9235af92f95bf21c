// Typed key-values of a GGUF header, as views into the mapped file.
//
// Nothing is copied but the keys: a vocabulary of a hundred thousand strings stays in the file
// until somebody asks for it. Values were bounds-checked when the file was opened.
//
// Thread: any; constant after the file was opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

// Numbered as in the file.
enum class MetadataType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
inline constexpr int kNumMetadataTypes = 13;

// "uint8", "string", ...
std::string_view MetadataTypeName(MetadataType type);
// Bytes of a value of a fixed size; 0 for strings and arrays.
int MetadataTypeBytes(MetadataType type);

// The accessors answer nothing, rather than a converted value, where the type does not fit.
struct MetadataValue {
  MetadataType type = MetadataType::kUint8;
  MetadataType element_type = MetadataType::kUint8;  // of an array
  int64_t count = 0;                                 // elements of an array
  std::span<const std::byte> bytes = {};  // scalar, text of a string, or elements as in the file

  bool is_array() const { return type == MetadataType::kArray; }
  bool is_array_of(MetadataType element) const { return is_array() && element_type == element; }

  std::optional<int64_t> AsInteger() const;  // any integer type, if it fits in 64 bits with sign
  std::optional<double> AsNumber() const;    // any integer or float type
  std::optional<bool> AsBool() const;
  std::optional<std::string_view> AsString() const;  // lives as long as the file is mapped

  // Arrays: one pass over the file. Views live as long as the file is mapped.
  std::optional<std::vector<std::string_view>> AsStrings() const;
  std::optional<std::vector<int64_t>> AsIntegers() const;
  std::optional<std::vector<double>> AsNumbers() const;
};

struct MetadataEntry {
  std::string key;
  MetadataValue value;
};

class Metadata {
 public:
  Metadata() = default;
  // Entries sorted by key, keys unique.
  explicit Metadata(std::vector<MetadataEntry> entries) : entries_(std::move(entries)) {}

  // nullptr if there is none.
  const MetadataValue* Find(std::string_view key) const;
  std::span<const MetadataEntry> entries() const { return entries_; }

 private:
  std::vector<MetadataEntry> entries_;
};

}  // namespace cairn
