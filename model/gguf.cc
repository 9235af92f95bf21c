#include "model/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/header_reader.h"
#include "model/utf8.h"

namespace cairn {
namespace {

constexpr std::string_view kMagic = "GGUF";
// What one record takes in the file at the least: its length fields and a name of one byte.
constexpr int64_t kLeastEntryBytes = 8 + 1 + 4 + 1;
constexpr int64_t kLeastTensorRecordBytes = 8 + 1 + 4 + 4 + 8;

struct GgufType {
  uint32_t number;
  std::string_view name;
  int block_elements;
  int block_bytes;
};

// Every type of the specification: those the runtime cannot compute with are still listed by size.
constexpr GgufType kGgufTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
};

const GgufType* FindGgufType(uint32_t number) {
  for (const GgufType& type : kGgufTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

absl::Status CheckName(std::string_view name, std::string_view what) {
  const absl::string_view kind(what.data(), what.size());
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat(kind, " is empty"));
  if (name.find('\0') != std::string_view::npos || !IsValidUtf8(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind, " is not UTF-8 text without NUL: \"", Printable(name), "\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<MetadataType> ReadType(HeaderReader& reader, std::string_view field) {
  ASSIGN_OR_RETURN(const uint32_t number, reader.Read<uint32_t>(field));
  if (number >= kNumMetadataTypes) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown value type: type=", number, " limit=", kNumMetadataTypes - 1));
  }
  return static_cast<MetadataType>(number);
}

absl::StatusOr<MetadataValue> ReadValue(HeaderReader& reader, MetadataType type, int depth);

absl::Status CheckBools(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    if (byte > std::byte{1}) {
      return absl::InvalidArgumentError(
          absl::StrCat("a bool is neither 0 nor 1: ", static_cast<int>(byte)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<MetadataValue> ReadArray(HeaderReader& reader, int depth) {
  if (depth > kMaxMetadataArrayDepth) {
    return absl::InvalidArgumentError(absl::StrCat("arrays are nested too deeply: depth=", depth,
                                                   " limit=", kMaxMetadataArrayDepth));
  }
  MetadataValue value{.type = MetadataType::kArray};
  ASSIGN_OR_RETURN(value.element_type, ReadType(reader, "an array's element type"));
  ASSIGN_OR_RETURN(const uint64_t count, reader.Read<uint64_t>("an array's length"));
  const int stride = MetadataTypeBytes(value.element_type);
  // A string takes 8 bytes at least, an array 12.
  const int least_bytes = stride > 0 ? stride : 8;
  if (count > static_cast<uint64_t>(kMaxMetadataArrayElements) ||
      count > static_cast<uint64_t>(reader.remaining() / least_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an array is longer than the file or the limit: elements=", count,
        " available_bytes=", reader.remaining(), " limit=", kMaxMetadataArrayElements));
  }
  value.count = static_cast<int64_t>(count);
  const int64_t start = reader.position();
  if (stride > 0) {
    RETURN_IF_ERROR(reader.ReadBytes(count * static_cast<uint64_t>(stride), "an array").status());
  } else {
    for (uint64_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(ReadValue(reader, value.element_type, depth + 1).status());
    }
  }
  value.bytes = reader.Since(start);
  if (value.element_type == MetadataType::kBool) RETURN_IF_ERROR(CheckBools(value.bytes));
  return value;
}

absl::StatusOr<MetadataValue> ReadValue(HeaderReader& reader, MetadataType type, int depth) {
  if (type == MetadataType::kArray) return ReadArray(reader, depth);
  MetadataValue value{.type = type};
  if (type == MetadataType::kString) {
    ASSIGN_OR_RETURN(const std::string_view text,
                     reader.ReadString(kMaxMetadataStringBytes, "a string value"));
    value.bytes = {reinterpret_cast<const std::byte*>(text.data()), text.size()};
    return value;
  }
  ASSIGN_OR_RETURN(value.bytes, reader.ReadBytes(MetadataTypeBytes(type), "a value"));
  if (type == MetadataType::kBool) RETURN_IF_ERROR(CheckBools(value.bytes));
  return value;
}

absl::StatusOr<Metadata> ReadMetadata(HeaderReader& reader, uint64_t count) {
  std::vector<MetadataEntry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const std::string_view key,
                     reader.ReadString(kMaxMetadataKeyBytes, "a metadata key"));
    RETURN_IF_ERROR(CheckName(key, "a metadata key"));
    const auto read = [&]() -> absl::StatusOr<MetadataValue> {
      ASSIGN_OR_RETURN(const MetadataType type, ReadType(reader, "a value type"));
      return ReadValue(reader, type, /*depth=*/1);
    };
    absl::StatusOr<MetadataValue> value = read();
    if (!value.ok()) {
      return Annotate(value.status(), absl::StrCat("metadata \"", Printable(key), "\""));
    }
    entries.push_back({.key = std::string(key), .value = *value});
  }
  std::sort(entries.begin(), entries.end(),
            [](const MetadataEntry& a, const MetadataEntry& b) { return a.key < b.key; });
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].key == entries[i - 1].key) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata key is there twice: \"", Printable(entries[i].key), "\""));
    }
  }
  return Metadata(std::move(entries));
}

absl::StatusOr<int64_t> ReadAlignment(const Metadata& metadata) {
  const MetadataValue* const value = metadata.Find("general.alignment");
  if (value == nullptr) return kDefaultGgufAlignment;
  const std::optional<int64_t> alignment = value->AsInteger();
  if (!alignment.has_value()) {
    return absl::InvalidArgumentError("general.alignment is not an integer");
  }
  if (*alignment <= 0 || *alignment % 8 != 0 || *alignment > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "general.alignment is not a positive multiple of 8 in 32 bits: value=", *alignment));
  }
  return *alignment;
}

// A row of the tensor table. Offsets count from the start of the data.
struct TensorRecord {
  std::string_view name;
  std::vector<int64_t> shape;  // outermost first
  int64_t num_elements = 1;
  uint32_t type = 0;
  uint64_t offset = 0;
};

absl::Status ReadShape(HeaderReader& reader, TensorRecord& record) {
  ASSIGN_OR_RETURN(const uint32_t rank, reader.Read<uint32_t>("a tensor's rank"));
  if (rank > kMaxGgufRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("too many dimensions: rank=", rank, " limit=", kMaxGgufRank));
  }
  record.shape.resize(rank);
  bool overflow = false;
  bool empty = false;
  for (uint32_t i = 0; i < rank; ++i) {
    ASSIGN_OR_RETURN(const uint64_t extent, reader.Read<uint64_t>("a tensor's shape"));
    if (extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError(absl::StrCat("dimension ", i, " is too big: ", extent));
    }
    const auto size = static_cast<int64_t>(extent);
    record.shape[rank - 1 - i] = size;  // the file has the innermost first
    empty |= size == 0;
    // A zero makes the product 0 whatever the other extents are.
    if (size != 0 && !overflow) {
      overflow = __builtin_mul_overflow(record.num_elements, size, &record.num_elements);
    }
  }
  if (empty) {
    record.num_elements = 0;
  } else if (overflow) {
    return absl::InvalidArgumentError(
        absl::StrCat("the number of elements overflows 64 bits: shape=", ShapeText(record.shape)));
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorRecord> ReadTensorRecord(HeaderReader& reader) {
  TensorRecord record;
  ASSIGN_OR_RETURN(record.name, reader.ReadString(kMaxTensorNameBytes, "a tensor name"));
  RETURN_IF_ERROR(CheckName(record.name, "a tensor name"));
  const auto read_rest = [&]() -> absl::Status {
    RETURN_IF_ERROR(ReadShape(reader, record));
    ASSIGN_OR_RETURN(record.type, reader.Read<uint32_t>("a tensor's type"));
    ASSIGN_OR_RETURN(record.offset, reader.Read<uint64_t>("a tensor's offset"));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(Annotate(read_rest(), absl::StrCat("tensor ", Printable(record.name))));
  return record;
}

// Bytes of the record's data. Errors: InvalidArgument if rows are no whole blocks or it overflows.
absl::StatusOr<int64_t> DataBytes(const TensorRecord& record, const GgufType& type) {
  const int64_t row_elements = record.shape.empty() ? 1 : record.shape.back();
  if (row_elements % type.block_elements != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows are not whole blocks: row_elements=", row_elements, " type=",
        absl::string_view(type.name.data(), type.name.size()), " block=", type.block_elements));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(record.num_elements / type.block_elements,
                             static_cast<int64_t>(type.block_bytes), &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the number of bytes overflows 64 bits: shape=", ShapeText(record.shape)));
  }
  return bytes;
}

struct DataArea {
  std::span<const std::byte> file;
  uint64_t start = 0;  // a multiple of the alignment, may lie past the end
  uint64_t alignment = kDefaultGgufAlignment;
};

absl::StatusOr<Tensor> MakeTensor(const TensorRecord& record, const DataArea& area) {
  if (record.offset % area.alignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat("offset is not aligned: offset=", record.offset,
                                                   " alignment=", area.alignment));
  }
  const GgufType* const type = FindGgufType(record.type);
  Tensor tensor{
      .name = std::string(record.name),
      .type_name = type != nullptr ? std::string(type->name) : absl::StrCat("type ", record.type),
      .shape = record.shape,
      .num_elements = record.num_elements};
  int64_t bytes = 0;
  if (type != nullptr) {
    tensor.dtype = FindDType(type->name);
    ASSIGN_OR_RETURN(bytes, DataBytes(record, *type));
  }
  uint64_t begin = 0;
  uint64_t end = 0;
  const bool overflow = __builtin_add_overflow(area.start, record.offset, &begin) ||
                        __builtin_add_overflow(begin, static_cast<uint64_t>(bytes), &end);
  // A tensor of no bytes may stand at the very end, where the padding of the last one was left out.
  const uint64_t file_bytes = area.file.size();
  const bool outside = bytes > 0 ? end > file_bytes : begin >= file_bytes + area.alignment;
  if (overflow || outside) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data lies outside the file: data_start=", area.start, " offset=", record.offset,
        " declared_bytes=", bytes, " file_bytes=", file_bytes));
  }
  if (bytes > 0) tensor.data = area.file.subspan(begin, static_cast<size_t>(bytes));
  return tensor;
}

// The tensors fill the data area one behind the other, in any order, with nothing between them but
// padding to the alignment. `tensors` are those of the records; one of an unknown type has no known
// end.
absl::Status CheckCover(std::span<const TensorRecord> records, std::span<const Tensor> tensors,
                        uint64_t alignment) {
  std::vector<size_t> order(records.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(records[a].offset, a) < std::pair(records[b].offset, b);
  });
  uint64_t end = 0;  // of the tensors so far
  bool end_is_known = true;
  for (const size_t i : order) {
    const uint64_t offset = records[i].offset;
    if (offset < end || (end_is_known && offset - end >= alignment)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Printable(records[i].name), ": data ",
                       offset < end ? "overlaps" : "leaves a hole behind",
                       " that of another: offset=", offset, " end_of_the_other=", end));
    }
    end = std::max(end, offset + tensors[i].data.size());
    end_is_known = FindGgufType(records[i].type) != nullptr;
  }
  return absl::OkStatus();
}

absl::Status CheckVersion(uint32_t version) {
  if (version == 2 || version == 3) return absl::OkStatus();
  const uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= 3) {
    return absl::InvalidArgumentError("the file is big-endian; only little-endian GGUF is read");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("GGUF version is not supported: version=", version, " supported=2, 3"));
}

// Refuses a count that the rest of the file cannot hold, before anything is sized by it.
absl::Status CheckCount(std::string_view field, uint64_t count, int64_t limit, int64_t record_bytes,
                        int64_t available_bytes) {
  if (count <= static_cast<uint64_t>(std::min(limit, available_bytes / record_bytes))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      absl::string_view(field.data(), field.size()), " is more than the file or the limit holds: ",
      "declared=", count, " available_bytes=", available_bytes, " limit=", limit));
}

}  // namespace

bool IsGguf(std::span<const std::byte> file) {
  return file.size() >= kMagic.size() &&
         std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0;
}

absl::StatusOr<GgufContents> ParseGguf(std::span<const std::byte> file) {
  HeaderReader reader(file);
  ASSIGN_OR_RETURN(const std::span<const std::byte> magic,
                   reader.ReadBytes(kMagic.size(), "the magic number"));
  if (!IsGguf(magic)) return absl::InvalidArgumentError("not a GGUF file: its magic is missing");
  ASSIGN_OR_RETURN(const uint32_t version, reader.Read<uint32_t>("the version"));
  RETURN_IF_ERROR(CheckVersion(version));
  ASSIGN_OR_RETURN(const uint64_t num_tensors, reader.Read<uint64_t>("the tensor count"));
  ASSIGN_OR_RETURN(const uint64_t num_entries, reader.Read<uint64_t>("the metadata count"));
  RETURN_IF_ERROR(CheckCount("tensor count", num_tensors, kMaxTensors, kLeastTensorRecordBytes,
                             reader.remaining()));
  RETURN_IF_ERROR(CheckCount("metadata count", num_entries, kMaxMetadataEntries, kLeastEntryBytes,
                             reader.remaining()));
  GgufContents contents;
  ASSIGN_OR_RETURN(contents.metadata, ReadMetadata(reader, num_entries));
  ASSIGN_OR_RETURN(const int64_t alignment, ReadAlignment(contents.metadata));

  std::vector<TensorRecord> records;
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    ASSIGN_OR_RETURN(TensorRecord record, ReadTensorRecord(reader));
    if (!names.insert(record.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Printable(record.name), ": the name is there twice"));
    }
    records.push_back(std::move(record));
  }
  const auto header_bytes = static_cast<uint64_t>(reader.position());
  const auto step = static_cast<uint64_t>(alignment);
  const DataArea area{
      .file = file, .start = (header_bytes + step - 1) / step * step, .alignment = step};
  contents.tensors.reserve(records.size());
  for (const TensorRecord& record : records) {
    absl::StatusOr<Tensor> tensor = MakeTensor(record, area);
    if (!tensor.ok()) {
      return Annotate(tensor.status(), absl::StrCat("tensor ", Printable(record.name)));
    }
    contents.tensors.push_back(*std::move(tensor));
  }
  RETURN_IF_ERROR(CheckCover(records, contents.tensors, step));
  return contents;
}

}  // namespace cairn
