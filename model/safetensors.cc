#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/header_reader.h"
#include "model/json_text.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kShardSuffix = ".safetensors";
// The header, a tensor, its shape.
constexpr JsonLimits kHeaderLimits = {.max_bytes = kMaxSafetensorsHeaderBytes, .max_depth = 3};

struct ElementType {
  std::string_view name;
  int bits;
};

// A type that is missing here is listed with the size its byte range says.
constexpr ElementType kElementTypes[] = {
    {"F64", 64}, {"F32", 32}, {"F16", 16}, {"BF16", 16},   {"I64", 64},    {"U64", 64},
    {"I32", 32}, {"U32", 32}, {"I16", 16}, {"U16", 16},    {"I8", 8},      {"U8", 8},
    {"BOOL", 8}, {"C64", 64}, {"F4", 4},   {"F8_E8M0", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8},
};

// The types of the format that the runtime computes with by themselves: 8-bit floats need scales
// that another tensor has (float8_scales.h). Names of quantised types mean nothing here, so they
// must not be looked up.
std::optional<DType> FindElementDType(std::string_view name) {
  const std::optional<DType> dtype = FindDType(name);
  const bool plain = dtype.has_value() && !Info(*dtype).quantised && *dtype != DType::kF8E4M3;
  return plain ? dtype : std::nullopt;
}

// A non-negative integer. Anything else, such as 1.0 or -1, is no size.
absl::StatusOr<int64_t> Size(const json& value, std::string_view field) {
  if (value.is_number_unsigned()) {
    const auto size = value.get<uint64_t>();
    if (size <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return static_cast<int64_t>(size);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(absl::string_view(field.data(), field.size()),
                   " is not a non-negative integer of 63 bits: ", ShortJson(value)));
}

absl::Status ReadShape(const json& fields, Tensor& tensor) {
  const auto shape = fields.find("shape");
  if (shape == fields.end() || !shape->is_array()) {
    return absl::InvalidArgumentError("there is no \"shape\" that is an array");
  }
  if (shape->size() > static_cast<size_t>(kMaxTensorRank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("too many dimensions: rank=", shape->size(), " limit=", kMaxTensorRank));
  }
  for (const json& extent : *shape) {
    ASSIGN_OR_RETURN(const int64_t size, Size(extent, "shape"));
    tensor.shape.push_back(size);
  }
  const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  tensor.num_elements = empty ? 0 : 1;
  for (const int64_t size : tensor.shape) {
    if (!empty && __builtin_mul_overflow(tensor.num_elements, size, &tensor.num_elements)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the number of elements overflows 64 bits: shape=", ShapeText(tensor.shape)));
    }
  }
  return absl::OkStatus();
}

// Checks that `declared_bytes` is what shape and type need.
absl::Status CheckBytes(const Tensor& tensor, int64_t declared_bytes) {
  for (const ElementType& type : kElementTypes) {
    if (type.name != tensor.type_name) continue;
    int64_t bits = 0;
    if (__builtin_mul_overflow(tensor.num_elements, static_cast<int64_t>(type.bits), &bits)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the number of bytes overflows 64 bits: shape=", ShapeText(tensor.shape)));
    }
    if (bits % 8 == 0 && bits / 8 == declared_bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets do not fit the shape: declared_bytes=", declared_bytes,
                     " shape=", ShapeText(tensor.shape), " type=", tensor.type_name));
  }
  return absl::OkStatus();
}

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

absl::StatusOr<ByteRange> ReadRange(const json& fields, int64_t available_bytes) {
  const auto offsets = fields.find("data_offsets");
  if (offsets == fields.end() || !offsets->is_array() || offsets->size() != 2) {
    return absl::InvalidArgumentError("there are no \"data_offsets\" of two numbers");
  }
  ByteRange range;
  ASSIGN_OR_RETURN(range.begin, Size((*offsets)[0], "data_offsets"));
  ASSIGN_OR_RETURN(range.end, Size((*offsets)[1], "data_offsets"));
  if (range.begin > range.end || range.end > available_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("data lies outside the file: data_offsets=[",
                                                   range.begin, ", ", range.end,
                                                   "] available_bytes=", available_bytes));
  }
  return range;
}

struct PlacedTensor {
  Tensor tensor;
  ByteRange range = {};
};

absl::StatusOr<PlacedTensor> ReadTensor(const std::string& name, const json& fields,
                                        std::span<const std::byte> data) {
  if (name.empty() || static_cast<int64_t>(name.size()) > kMaxTensorNameBytes ||
      name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name is empty, has a NUL or is too long: ", "bytes=", name.size(),
                     " limit=", kMaxTensorNameBytes));
  }
  if (!fields.is_object()) return absl::InvalidArgumentError("its value is not an object");
  PlacedTensor placed{.tensor = {.name = name}};
  const auto type = fields.find("dtype");
  if (type == fields.end() || !type->is_string()) {
    return absl::InvalidArgumentError("there is no \"dtype\" that is a string");
  }
  placed.tensor.type_name = Printable(type->get_ref<const std::string&>());
  placed.tensor.dtype = FindElementDType(placed.tensor.type_name);
  RETURN_IF_ERROR(ReadShape(fields, placed.tensor));
  ASSIGN_OR_RETURN(placed.range, ReadRange(fields, static_cast<int64_t>(data.size())));
  const int64_t bytes = placed.range.end - placed.range.begin;
  RETURN_IF_ERROR(CheckBytes(placed.tensor, bytes));
  placed.tensor.data =
      data.subspan(static_cast<size_t>(placed.range.begin), static_cast<size_t>(bytes));
  return placed;
}

// Sorts by place and checks that the ranges follow one another from the first byte to the last.
absl::Status CheckCover(std::vector<PlacedTensor>& tensors, int64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const PlacedTensor& a, const PlacedTensor& b) {
    return std::pair(a.range.begin, a.range.end) < std::pair(b.range.begin, b.range.end);
  });
  int64_t next = 0;
  for (const PlacedTensor& placed : tensors) {
    if (placed.range.begin != next) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Printable(placed.tensor.name),
          ": data leaves a hole or overlaps another tensor: begin=", placed.range.begin,
          " expected=", next));
    }
    next = placed.range.end;
  }
  if (next != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the tensors do not cover the data: declared_bytes=", next, " file_bytes=", data_bytes));
  }
  return absl::OkStatus();
}

// The JSON header, and the data behind it.
absl::StatusOr<std::string_view> ReadHeader(HeaderReader& reader) {
  ASSIGN_OR_RETURN(const std::string_view text,
                   reader.ReadString(kMaxSafetensorsHeaderBytes, "the header"));
  if (text.empty() || text[0] != '{') {
    return absl::InvalidArgumentError("not a safetensors file: its header is no JSON object");
  }
  return text;
}

// A shard's name must be one that cannot leave the folder of its index.
absl::Status CheckShardName(const std::string& name) {
  const bool plain =
      name.size() <= 255 && name.find('/') == std::string::npos &&
      name.find('\0') == std::string::npos && name.size() > kShardSuffix.size() &&
      name.compare(name.size() - kShardSuffix.size(), kShardSuffix.size(), kShardSuffix) == 0;
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a shard must be a plain *.safetensors name without a folder: \"", Printable(name), "\""));
}

}  // namespace

bool IsSafetensors(std::span<const std::byte> file) {
  return file.size() > sizeof(uint64_t) && file[sizeof(uint64_t)] == std::byte{'{'};
}

absl::StatusOr<std::vector<Tensor>> ParseSafetensors(std::span<const std::byte> file) {
  HeaderReader reader(file);
  ASSIGN_OR_RETURN(const std::string_view text, ReadHeader(reader));
  const std::span<const std::byte> data = file.subspan(static_cast<size_t>(reader.position()));
  absl::StatusOr<json> header = ParseJson(text, kHeaderLimits);
  if (!header.ok()) return Annotate(header.status(), "the header");
  if (!header->is_object()) return absl::InvalidArgumentError("the header is no JSON object");
  if (header->size() > static_cast<size_t>(kMaxTensors)) {
    return absl::InvalidArgumentError(
        absl::StrCat("too many tensors: declared=", header->size(), " limit=", kMaxTensors));
  }
  std::vector<PlacedTensor> placed;
  for (const auto& [name, fields] : header->items()) {
    if (name == kMetadataKey) continue;
    absl::StatusOr<PlacedTensor> tensor = ReadTensor(name, fields, data);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("tensor ", Printable(name)));
    placed.push_back(*std::move(tensor));
  }
  RETURN_IF_ERROR(CheckCover(placed, static_cast<int64_t>(data.size())));
  std::vector<Tensor> tensors;
  tensors.reserve(placed.size());
  for (PlacedTensor& tensor : placed) tensors.push_back(std::move(tensor.tensor));
  return tensors;
}

absl::StatusOr<ShardIndex> ParseShardIndex(const json& index) {
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError("there is no \"weight_map\" that lists tensors");
  }
  if (map->size() > static_cast<size_t>(kMaxTensors)) {
    return absl::InvalidArgumentError(
        absl::StrCat("too many tensors: declared=", map->size(), " limit=", kMaxTensors));
  }
  ShardIndex result;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Printable(tensor), ": its file is not a string"));
    }
    result.files.push_back(file.get_ref<const std::string&>());
  }
  std::sort(result.files.begin(), result.files.end());
  result.files.erase(std::unique(result.files.begin(), result.files.end()), result.files.end());
  if (result.files.size() > static_cast<size_t>(kMaxShards)) {
    return absl::InvalidArgumentError(
        absl::StrCat("too many shards: declared=", result.files.size(), " limit=", kMaxShards));
  }
  for (const std::string& file : result.files) RETURN_IF_ERROR(CheckShardName(file));
  for (const auto& [tensor, file] : map->items()) {  // in the order of the names
    const auto found = std::lower_bound(result.files.begin(), result.files.end(),
                                        file.get_ref<const std::string&>());
    result.entries.push_back(
        {.tensor = tensor, .file_index = static_cast<int>(found - result.files.begin())});
  }
  return result;
}

}  // namespace cairn
