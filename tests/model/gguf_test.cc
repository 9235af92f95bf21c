#include "model/gguf.h"

#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/model/allocation_meter.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/safetensors_writer.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Nothing a small file says may make the reader take more than this.
constexpr size_t kAllocationLimit = 1 << 20;

// Parses a copy of exactly the size, so that a sanitizer sees a read past its end.
absl::StatusOr<GgufContents> Parse(const std::vector<std::byte>& file) {
  const std::vector<std::byte> exact(file.begin(), file.end());
  ResetAllocationMeter();
  absl::StatusOr<GgufContents> contents = ParseGguf(exact);
  EXPECT_LT(LargestAllocation(), kAllocationLimit);
  return contents;
}

std::string Refusal(const std::vector<std::byte>& file) {
  const absl::Status status = Parse(file).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  return std::string(status.message());
}

// Two tensors of 64 bytes, some key-values; no byte of the file is without a meaning but padding.
GgufWriter SmallFile() {
  GgufWriter writer;
  writer.AddString("general.architecture", "none");
  writer.AddUint32("a.count", 7);
  writer.AddStrings("a.names", {"one", "two", ""});
  writer.AddFloats("first", {4, 4});
  writer.AddFloats("second", {16});
  return writer;
}

TEST(GgufTest, GivesNamesTypesShapesOutermostFirstAndBytes) {
  GgufWriter writer;
  writer.AddFloats("matrix", {2, 3}, 10);
  writer.AddTensor("quantised", {2, 64}, 2, std::vector<std::byte>(2 * 2 * 18, std::byte{9}));
  const std::vector<std::byte> file = writer.File();
  const absl::StatusOr<GgufContents> contents = ParseGguf(file);
  ASSERT_TRUE(contents.ok()) << contents.status();
  ASSERT_EQ(contents->tensors.size(), 2u);
  const Tensor& matrix = contents->tensors[0];
  EXPECT_EQ(matrix.name, "matrix");
  EXPECT_EQ(matrix.dtype, DType::kF32);
  EXPECT_THAT(matrix.shape, ElementsAre(2, 3));
  ASSERT_EQ(matrix.data.size(), 24u);
  float last = 0;
  std::memcpy(&last, matrix.data.data() + 20, sizeof(last));
  EXPECT_EQ(last, 15.0f);
  const Tensor& quantised = contents->tensors[1];
  EXPECT_EQ(quantised.dtype, DType::kQ4_0);
  EXPECT_EQ(quantised.data.size(), 72u);
  EXPECT_EQ(quantised.data[71], std::byte{9});
}

TEST(GgufTest, ReadsEveryKindOfMetadata) {
  GgufWriter writer;
  writer.AddScalar<uint8_t>("uint8", 0, 255);
  writer.AddScalar<int8_t>("int8", 1, -5);
  writer.AddScalar<uint16_t>("uint16", 2, 65535);
  writer.AddScalar<int16_t>("int16", 3, -300);
  writer.AddUint32("uint32", 4'000'000'000u);
  writer.AddScalar<int32_t>("int32", 5, -70000);
  writer.AddFloat32("float32", 0.5f);
  writer.AddBool("bool", true);
  writer.AddString("string", "text");
  writer.AddScalar<uint64_t>("uint64", 10, uint64_t{1} << 40);
  writer.AddScalar<uint64_t>("uint64 past int64", 10, ~uint64_t{0});
  writer.AddScalar<int64_t>("int64", 11, -(int64_t{1} << 40));
  writer.AddScalar<double>("float64", 12, 0.1);
  writer.AddStrings("strings", {"a", "", "ccc"});
  writer.AddArray<int32_t>("int32s", 5, {1, -2, 3});
  writer.AddArray<float>("float32s", 6, {0.5f, 1.5f});
  const std::vector<std::byte> file = writer.File();
  const absl::StatusOr<GgufContents> contents = ParseGguf(file);
  ASSERT_TRUE(contents.ok()) << contents.status();
  const auto value = [&](std::string_view key) { return *contents->metadata.Find(key); };
  EXPECT_EQ(value("uint8").AsInteger(), 255);
  EXPECT_EQ(value("int8").AsInteger(), -5);
  EXPECT_EQ(value("uint16").AsInteger(), 65535);
  EXPECT_EQ(value("int16").AsInteger(), -300);
  EXPECT_EQ(value("uint32").AsInteger(), 4'000'000'000);
  EXPECT_EQ(value("int32").AsInteger(), -70000);
  EXPECT_EQ(value("float32").AsNumber(), 0.5);
  EXPECT_EQ(value("float32").AsInteger(), std::nullopt);
  EXPECT_EQ(value("bool").AsBool(), true);
  EXPECT_EQ(value("bool").AsInteger(), std::nullopt);
  EXPECT_EQ(value("string").AsString(), "text");
  EXPECT_EQ(value("uint64").AsInteger(), int64_t{1} << 40);
  EXPECT_EQ(value("uint64 past int64").AsInteger(), std::nullopt);
  EXPECT_EQ(value("int64").AsInteger(), -(int64_t{1} << 40));
  EXPECT_EQ(value("float64").AsNumber(), 0.1);
  EXPECT_THAT(*value("strings").AsStrings(), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(*value("int32s").AsIntegers(), ElementsAre(1, -2, 3));
  EXPECT_THAT(*value("float32s").AsNumbers(), ElementsAre(0.5, 1.5));
  EXPECT_EQ(contents->metadata.Find("absent"), nullptr);
}

TEST(GgufTest, RefusesAFileCutAtAnyByte) {
  const std::vector<std::byte> file = SmallFile().File();
  ASSERT_TRUE(Parse(file).ok());
  for (size_t length = 0; length < file.size(); ++length) {
    SCOPED_TRACE(absl::StrCat("length ", length));
    EXPECT_NE(Refusal({file.begin(), file.begin() + static_cast<ptrdiff_t>(length)}), "");
  }
}

TEST(GgufTest, RefusesAMappedFileCutAtAnyByteNamingFileAndTensor) {
  const std::vector<std::byte> file = SmallFile().File();
  TemporaryFolder folder;
  for (size_t length = 0; length < file.size(); length += 31) {
    const std::string path = folder.Write("cut.gguf", std::span(file).first(length));
    const absl::Status status = Checkpoint::Open(path).status();
    ASSERT_TRUE(absl::IsInvalidArgument(status)) << length << " " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cut.gguf"));
  }
  const std::string path = folder.Write("short.gguf", std::span(file).first(file.size() - 1));
  EXPECT_THAT(std::string(Checkpoint::Open(path).status().message()),
              AllOf(HasSubstr("short.gguf: tensor second"), HasSubstr("declared_bytes=64"),
                    HasSubstr(absl::StrCat("file_bytes=", file.size() - 1))));
}

TEST(GgufTest, RefusesADimensionWhoseProductWraps) {
  GgufWriter writer = SmallFile();
  // Products of these, or of these and the element size, wrap to something small in 64 bits.
  for (const std::vector<uint64_t>& dims : std::vector<std::vector<uint64_t>>{
           {(uint64_t{1} << 42) + 1},
           {(uint64_t{1} << 42) + 1, uint64_t{1} << 22},
           {uint64_t{1} << 32, uint64_t{1} << 32},
           {uint64_t{1} << 32, uint64_t{1} << 31, 2},
           {uint64_t{1} << 62},  // times 4 bytes is 2^64
           {uint64_t{1} << 61},
           {(uint64_t{1} << 62) + 4},
           {uint64_t{1} << 63},
           {~uint64_t{0}, 1},
           {~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}}}) {
    writer.tensors[1].dims = dims;
    EXPECT_THAT(Refusal(writer.File()), HasSubstr("second"));
  }
}

TEST(GgufTest, RefusesAnOffsetOutsideTheFile) {
  const uint64_t top = ~uint64_t{0} - 31;  // the last aligned offset
  const std::vector<std::byte> file = SmallFile().File();
  for (const uint64_t offset : {top, top - 32, top - (uint64_t{1} << 20), uint64_t{1} << 63,
                                uint64_t{96}, uint64_t{128}, uint64_t{1} << 32}) {
    GgufWriter writer = SmallFile();
    writer.tensors[1].offset = offset;
    EXPECT_THAT(Refusal(writer.File()),
                AllOf(HasSubstr("second"), HasSubstr(absl::StrCat("offset=", offset)),
                      HasSubstr(absl::StrCat("file_bytes=", file.size()))));
  }
}

TEST(GgufTest, RefusesAnOffsetThatIsNotAligned) {
  GgufWriter writer = SmallFile();
  writer.tensors[1].offset = 8;
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("not aligned"));
}

TEST(GgufTest, RefusesTensorsThatOverlapOrLeaveAHole) {
  GgufWriter writer = SmallFile();
  writer.tensors[1].offset = 32;
  EXPECT_THAT(Refusal(writer.File()),
              AllOf(HasSubstr("second"), HasSubstr("overlaps"), HasSubstr("offset=32"),
                    HasSubstr("end_of_the_other=64")));
  writer = SmallFile();
  writer.tensors[0].dims = {4, 1};  // what is left of its bytes is nobody's
  EXPECT_THAT(Refusal(writer.File()), AllOf(HasSubstr("second"), HasSubstr("leaves a hole"),
                                            HasSubstr("end_of_the_other=16")));
  writer = SmallFile();  // any order will do
  std::swap(writer.tensors[0].data, writer.tensors[1].data);
  writer.tensors[0].offset = 64;
  writer.tensors[1].offset = 0;
  EXPECT_TRUE(ParseGguf(writer.File()).ok());
  writer = SmallFile();
  writer.tensors[0].type = 1000;  // nobody knows where it ends
  EXPECT_TRUE(ParseGguf(writer.File()).ok());
}

TEST(GgufTest, RefusesCountsThatTheFileCannotHold) {
  for (const uint64_t count : {uint64_t{1000}, uint64_t{1} << 32, uint64_t{1} << 59,
                               (uint64_t{1} << 61) + 2, ~uint64_t{0}}) {
    GgufWriter writer = SmallFile();
    writer.tensor_count = count;
    EXPECT_THAT(Refusal(writer.File()),
                AllOf(HasSubstr("tensor count"), HasSubstr(absl::StrCat("declared=", count))));
    writer = SmallFile();
    writer.metadata_count = count;
    EXPECT_THAT(Refusal(writer.File()), HasSubstr("metadata count"));
  }
  GgufWriter writer = SmallFile();
  writer.tensor_count = 3;
  EXPECT_NE(Refusal(writer.File()), "");
}

TEST(GgufTest, RefusesLengthsOfStringsAndArraysThatTheFileCannotHold) {
  for (const uint64_t length :
       {uint64_t{1} << 20, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63}) {
    std::vector<std::byte> value;
    GgufWriter::Append(value, length);
    GgufWriter writer = SmallFile();
    writer.AddRaw("bad", 8, value);
    EXPECT_THAT(Refusal(writer.File()), HasSubstr("metadata \"bad\""));
    for (const uint32_t element_type : {0u, 4u, 8u, 9u, 12u}) {
      value.clear();
      GgufWriter::Append(value, element_type);
      GgufWriter::Append(value, length);
      writer = SmallFile();
      writer.AddRaw("bad", 9, value);
      EXPECT_THAT(Refusal(writer.File()), HasSubstr("metadata \"bad\""));
    }
  }
}

TEST(GgufTest, RefusesValueTypesThatDoNotExist) {
  for (const uint32_t type : {13u, 255u, ~0u}) {
    GgufWriter writer = SmallFile();
    writer.AddScalar<uint64_t>("bad", type, 0);
    EXPECT_THAT(Refusal(writer.File()), HasSubstr(absl::StrCat("type=", type)));
  }
}

TEST(GgufTest, RefusesABoolThatIsNeitherTrueNorFalse) {
  GgufWriter writer = SmallFile();
  writer.AddScalar<uint8_t>("bad", 7, 2);
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("metadata \"bad\""));
}

TEST(GgufTest, RefusesArraysNestedTooDeeply) {
  const auto nested = [](int depth) {
    std::vector<std::byte> value;
    for (int i = 1; i < depth; ++i) {
      GgufWriter::Append<uint32_t>(value, 9);
      GgufWriter::Append<uint64_t>(value, 1);
    }
    GgufWriter::Append<uint32_t>(value, 4);
    GgufWriter::Append<uint64_t>(value, 0);
    return value;
  };
  GgufWriter writer = SmallFile();
  writer.AddRaw("deep", 9, nested(kMaxMetadataArrayDepth));
  EXPECT_TRUE(Parse(writer.File()).ok());
  writer = SmallFile();
  writer.AddRaw("deep", 9, nested(10'000));
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("nested too deeply"));
}

TEST(GgufTest, RefusesNamesThatAreThereTwice) {
  GgufWriter writer = SmallFile();
  writer.AddFloats("first", {1});
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("tensor first: the name is there twice"));
  writer = SmallFile();
  writer.AddUint32("a.count", 8);
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("a.count"));
}

TEST(GgufTest, RefusesNamesThatAreNotTextAndShowsThemOnOneLine) {
  for (const std::string& name :
       {std::string("a\0b", 3), std::string("\xFF\xFE"), std::string(), std::string("\xED\xA0\x80"),
        std::string("\xC0\x80"), std::string("cut \xE2\x82")}) {
    GgufWriter writer = SmallFile();
    writer.AddFloats(name, {1});
    EXPECT_NE(Refusal(writer.File()), "");
    writer = SmallFile();
    writer.AddUint32(name, 1);
    EXPECT_NE(Refusal(writer.File()), "");
  }
  GgufWriter writer = SmallFile();
  writer.AddFloats(std::string(2000, 'n'), {1});
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("bytes=2000 limit=1024"));
  writer = SmallFile();
  writer.AddFloats("line\nbreak", {1}).offset = 1;
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("line\\nbreak"));
}

TEST(GgufTest, AZeroExtentIsATensorOfNoBytes) {
  GgufWriter writer = SmallFile();
  writer.AddTensor("no rows", {0, 32}, 2, {});
  writer.AddTensor("no columns", {5, 0}, 0, {});
  writer.AddTensor("huge but empty", {uint64_t{1} << 62, 0, uint64_t{1} << 62}, 0, {});
  const absl::StatusOr<GgufContents> contents = Parse(writer.File());
  ASSERT_TRUE(contents.ok()) << contents.status();
  for (size_t i = 2; i < 5; ++i) {
    EXPECT_EQ(contents->tensors[i].num_elements, 0) << contents->tensors[i].name;
    EXPECT_TRUE(contents->tensors[i].data.empty());
  }
}

TEST(GgufTest, TakesAnyMultipleOfEightAsAlignmentAndNothingElse) {
  for (const uint32_t alignment : {8u, 16u, 24u, 40u, 64u, 4096u}) {
    GgufWriter writer = SmallFile();
    writer.SetAlignment(alignment);
    const std::vector<std::byte> file = writer.File();
    const absl::StatusOr<GgufContents> contents = ParseGguf(file);
    ASSERT_TRUE(contents.ok()) << alignment << " " << contents.status();
    float first = -1;
    std::memcpy(&first, contents->tensors[1].data.data() + 4, sizeof(first));
    EXPECT_EQ(first, 1.0f) << alignment;
  }
  for (const uint32_t alignment : {0u, 1u, 4u, 12u, 33u, ~0u}) {
    GgufWriter writer = SmallFile();
    writer.SetAlignment(alignment);
    writer.alignment = 32;
    EXPECT_THAT(Refusal(writer.File()), HasSubstr("general.alignment"));
  }
}

TEST(GgufTest, RefusesOtherVersionsAndByteOrders) {
  GgufWriter writer = SmallFile();
  writer.version = 2;
  EXPECT_TRUE(Parse(writer.File()).ok());
  for (const uint32_t version : {0u, 1u, 4u, ~0u}) {
    writer.version = version;
    EXPECT_THAT(Refusal(writer.File()), HasSubstr(absl::StrCat("version=", version)));
  }
  writer.version = __builtin_bswap32(3);
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("big-endian"));
  writer.version = 3;
  writer.magic = "GGML";
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("not a GGUF file"));
}

TEST(GgufTest, RefusesRowsThatAreNoWholeBlocks) {
  GgufWriter writer = SmallFile();
  writer.AddTensor("ragged", {2, 48}, 2, std::vector<std::byte>(54));
  EXPECT_THAT(Refusal(writer.File()), AllOf(HasSubstr("ragged"), HasSubstr("Q4_0")));
}

TEST(GgufTest, RefusesMoreDimensionsThanTheFormatHas) {
  GgufWriter writer = SmallFile();
  writer.AddFloats("many", {1, 1, 1, 1, 1});
  EXPECT_THAT(Refusal(writer.File()), HasSubstr("rank=5 limit=4"));
  writer = SmallFile();
  writer.AddFloats("scalar", {});
  const absl::StatusOr<GgufContents> contents = Parse(writer.File());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->tensors[2].num_elements, 1);
}

TEST(GgufTest, ListsTypesWithoutKernelsByNameAndSize) {
  GgufWriter writer;
  writer.AddTensor("iq", {1, 256}, 23, std::vector<std::byte>(136));
  writer.AddTensor("future", {1, 256}, 999, {});
  const absl::StatusOr<GgufContents> contents = Parse(writer.File());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->tensors[0].type_name, "IQ4_XS");
  EXPECT_EQ(contents->tensors[0].data.size(), 136u);
  EXPECT_FALSE(contents->tensors[0].dtype.has_value());
  EXPECT_EQ(contents->tensors[1].type_name, "type 999");
  EXPECT_FALSE(contents->tensors[1].dtype.has_value());
}

// Any one bit of a header may flip: the reader answers or refuses, and touches nothing else.
TEST(GgufTest, SurvivesEveryFlippedBitOfAHeader) {
  std::vector<std::byte> file = SmallFile().File();
  for (size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      file[i] ^= std::byte{1} << bit;
      const absl::StatusOr<GgufContents> contents = Parse(file);
      if (contents.ok()) {
        for (const Tensor& tensor : contents->tensors) {
          EXPECT_LE(tensor.data.size(), file.size());
        }
      }
      file[i] ^= std::byte{1} << bit;
    }
  }
}

}  // namespace
}  // namespace cairn
