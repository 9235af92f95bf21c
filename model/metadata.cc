#include "model/metadata.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/log.h"

namespace cairn {
namespace {

struct TypeInfo {
  std::string_view name;
  int bytes;
};

constexpr TypeInfo kTypes[kNumMetadataTypes] = {
    {"uint8", 1},  {"int8", 1},    {"uint16", 2},  {"int16", 2},  {"uint32", 4},
    {"int32", 4},  {"float32", 4}, {"bool", 1},    {"string", 0}, {"array", 0},
    {"uint64", 8}, {"int64", 8},   {"float64", 8},
};

const TypeInfo& InfoOf(MetadataType type) {
  const auto index = static_cast<uint32_t>(type);
  CHECK(index < kNumMetadataTypes) << index;
  return kTypes[index];
}

template <typename T>
T Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

std::optional<int64_t> LoadInteger(MetadataType type, const std::byte* bytes) {
  switch (type) {
    case MetadataType::kUint8:
      return Load<uint8_t>(bytes);
    case MetadataType::kInt8:
      return Load<int8_t>(bytes);
    case MetadataType::kUint16:
      return Load<uint16_t>(bytes);
    case MetadataType::kInt16:
      return Load<int16_t>(bytes);
    case MetadataType::kUint32:
      return Load<uint32_t>(bytes);
    case MetadataType::kInt32:
      return Load<int32_t>(bytes);
    case MetadataType::kInt64:
      return Load<int64_t>(bytes);
    case MetadataType::kUint64: {
      const auto value = Load<uint64_t>(bytes);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    case MetadataType::kFloat32:
    case MetadataType::kFloat64:
    case MetadataType::kBool:
    case MetadataType::kString:
    case MetadataType::kArray:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> LoadNumber(MetadataType type, const std::byte* bytes) {
  if (type == MetadataType::kFloat32) return Load<float>(bytes);
  if (type == MetadataType::kFloat64) return Load<double>(bytes);
  if (type == MetadataType::kUint64) return static_cast<double>(Load<uint64_t>(bytes));
  const std::optional<int64_t> integer = LoadInteger(type, bytes);
  if (!integer.has_value()) return std::nullopt;
  return static_cast<double>(*integer);
}

// Applies `load`, which answers an optional T, to each element of an array of a fixed size.
template <typename T, typename LoadFunction>
std::optional<std::vector<T>> LoadAll(const MetadataValue& value, LoadFunction load) {
  if (!value.is_array()) return std::nullopt;
  const int stride = MetadataTypeBytes(value.element_type);
  if (stride == 0) return std::nullopt;
  std::vector<T> elements;
  elements.reserve(static_cast<size_t>(value.count));
  for (int64_t i = 0; i < value.count; ++i) {
    const std::optional<T> element = load(value.element_type, value.bytes.data() + i * stride);
    if (!element.has_value()) return std::nullopt;
    elements.push_back(*element);
  }
  return elements;
}

}  // namespace

std::string_view MetadataTypeName(MetadataType type) { return InfoOf(type).name; }
int MetadataTypeBytes(MetadataType type) { return InfoOf(type).bytes; }

std::optional<int64_t> MetadataValue::AsInteger() const { return LoadInteger(type, bytes.data()); }

std::optional<double> MetadataValue::AsNumber() const { return LoadNumber(type, bytes.data()); }

std::optional<bool> MetadataValue::AsBool() const {
  if (type != MetadataType::kBool) return std::nullopt;
  return bytes[0] != std::byte{0};
}

std::optional<std::string_view> MetadataValue::AsString() const {
  if (type != MetadataType::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<std::vector<std::string_view>> MetadataValue::AsStrings() const {
  if (!is_array_of(MetadataType::kString)) return std::nullopt;
  std::vector<std::string_view> strings;
  strings.reserve(static_cast<size_t>(count));
  const std::byte* next = bytes.data();
  for (int64_t i = 0; i < count; ++i) {
    const auto length = static_cast<size_t>(Load<uint64_t>(next));
    strings.emplace_back(reinterpret_cast<const char*>(next + sizeof(uint64_t)), length);
    next += sizeof(uint64_t) + length;
  }
  return strings;
}

std::optional<std::vector<int64_t>> MetadataValue::AsIntegers() const {
  return LoadAll<int64_t>(*this, LoadInteger);
}

std::optional<std::vector<double>> MetadataValue::AsNumbers() const {
  return LoadAll<double>(*this, LoadNumber);
}

const MetadataValue* Metadata::Find(std::string_view key) const {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), key,
      [](const MetadataEntry& entry, std::string_view k) { return entry.key < k; });
  if (found == entries_.end() || found->key != key) return nullptr;
  return &found->value;
}

}  // namespace cairn
