#include "model/safetensors.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/model/allocation_meter.h"
#include "tests/model/safetensors_writer.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kAllocationLimit = 1 << 20;

absl::StatusOr<std::vector<Tensor>> Parse(const std::vector<std::byte>& file) {
  const std::vector<std::byte> exact(file.begin(), file.end());
  ResetAllocationMeter();
  absl::StatusOr<std::vector<Tensor>> tensors = ParseSafetensors(exact);
  EXPECT_LT(LargestAllocation(), kAllocationLimit);
  return tensors;
}

std::string Refusal(const std::vector<std::byte>& file) {
  const absl::Status status = Parse(file).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  return std::string(status.message());
}

// One tensor "x" of 8 bytes with these fields, in a file of 8 data bytes.
std::string RefusalOfFields(const std::string& fields) {
  return Refusal(SafetensorsFile(absl::StrCat("{\"x\":{", fields, "}}"), 8));
}

TEST(SafetensorsTest, GivesNamesTypesShapesAndBytes) {
  const std::vector<std::byte> file = SafetensorsFile(
      R"({"__metadata__":{"format":"pt"},
          "b":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]},
          "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      16);
  const absl::StatusOr<std::vector<Tensor>> tensors = ParseSafetensors(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].dtype, DType::kF32);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].dtype, DType::kBF16);
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(2, 2));
  EXPECT_EQ((*tensors)[1].data.data(), file.data() + file.size() - 8);
  EXPECT_EQ((*tensors)[1].data.size(), 8u);
}

TEST(SafetensorsTest, RefusesAFileCutAtAnyByteOrWithOneTooMany) {
  std::vector<std::byte> file = SafetensorsFile(
      std::vector<NamedFloats>{{.name = "first", .count = 4}, {.name = "second", .count = 3}});
  ASSERT_TRUE(Parse(file).ok());
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(Refusal({file.begin(), file.begin() + static_cast<ptrdiff_t>(length)}), "") << length;
  }
  file.push_back(std::byte{0});
  EXPECT_THAT(Refusal(file), HasSubstr("do not cover the data"));
}

TEST(SafetensorsTest, RefusesHeaderLengthsThatTheFileCannotHold) {
  for (const uint64_t length : {uint64_t{1000}, uint64_t{1} << 26, uint64_t{1} << 27,
                                uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::vector<std::byte> file = SafetensorsFile("{}", size_t{0});
    std::memcpy(file.data(), &length, sizeof(length));
    EXPECT_THAT(Refusal(file), HasSubstr("the header"));
  }
}

TEST(SafetensorsTest, RefusesShapesThatDoNotFitTheirBytes) {
  const std::string end = R"(,"data_offsets":[0,8])";
  for (const std::string shape :
       {"[3]", "[1]", "[]", "[2,2]", "[4611686018427387906]", "[4398046511105,4194304]",
        "[4294967296,4294967296]", "[9223372036854775807,2]", "[2305843009213693954]"}) {
    EXPECT_THAT(RefusalOfFields(absl::StrCat(R"("dtype":"F32","shape":)", shape, end)),
                HasSubstr("tensor x"))
        << shape;
  }
  for (const std::string shape : {"[-2]", "[2.0]", "[\"2\"]", "[18446744073709551615]", "[1e99]",
                                  "[null]", "[[2]]", "2", "null", "{}", "[1,1,1,1,1,1,1,1,2]"}) {
    EXPECT_NE(RefusalOfFields(absl::StrCat(R"("dtype":"F32","shape":)", shape, end)), "") << shape;
  }
}

TEST(SafetensorsTest, RefusesOffsetsOutsideTheFile) {
  for (const std::string offsets :
       {"[0,16]", "[8,16]", "[8,0]", "[-8,0]", "[0,8,8]", "[0]", "[]", "null", "[0,8.0]",
        "[18446744073709551608,18446744073709551615]", "[0,18446744073709551615]",
        "[9223372036854775800,9223372036854775807]"}) {
    EXPECT_NE(
        RefusalOfFields(absl::StrCat(R"("dtype":"F32","shape":[2],"data_offsets":)", offsets)), "")
        << offsets;
  }
}

TEST(SafetensorsTest, RefusesMissingAndMistypedFields) {
  EXPECT_THAT(RefusalOfFields(R"("shape":[2],"data_offsets":[0,8])"), HasSubstr("dtype"));
  EXPECT_THAT(RefusalOfFields(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), HasSubstr("dtype"));
  EXPECT_THAT(RefusalOfFields(R"("dtype":"F32","data_offsets":[0,8])"), HasSubstr("shape"));
  EXPECT_THAT(RefusalOfFields(R"("dtype":"F32","shape":[2])"), HasSubstr("data_offsets"));
  EXPECT_NE(Refusal(SafetensorsFile(R"({"x":[]})", 8)), "");
  EXPECT_NE(Refusal(SafetensorsFile(R"([])", 8)), "");
  EXPECT_NE(Refusal(SafetensorsFile(R"({"x":)", 8)), "");
  EXPECT_NE(Refusal(SafetensorsFile("", 8)), "");
}

TEST(SafetensorsTest, RefusesHolesAndOverlaps) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string hole = R"("b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]})";
  const std::string overlap = R"("b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]})";
  EXPECT_THAT(Refusal(SafetensorsFile("{" + a + "," + hole + "}", 8)), HasSubstr("tensor b"));
  EXPECT_THAT(Refusal(SafetensorsFile("{" + a + "," + overlap + "}", 8)), HasSubstr("tensor b"));
}

TEST(SafetensorsTest, RefusesATensorThatIsThereTwice) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string again = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})";
  EXPECT_THAT(Refusal(SafetensorsFile("{" + a + "," + again + "}", 8)),
              AllOf(HasSubstr("\"a\""), HasSubstr("twice")));
}

TEST(SafetensorsTest, RefusesNestingWithoutRecursing) {
  EXPECT_THAT(Refusal(SafetensorsFile("{\"x\":" + std::string(200'000, '['), size_t{0})),
              HasSubstr("nested too deeply"));
}

TEST(SafetensorsTest, RefusesNamesWithNulOrTooLong) {
  const std::string fields = R"(:{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})";
  EXPECT_NE(Refusal(SafetensorsFile("{\"a\\u0000b\"" + fields, 8)), "");
  EXPECT_NE(Refusal(SafetensorsFile("{\"\"" + fields, 8)), "");
  EXPECT_NE(Refusal(SafetensorsFile("{\"\xFF\"" + fields, 8)), "");
  EXPECT_THAT(Refusal(SafetensorsFile("{\"" + std::string(2000, 'n') + "\"" + fields, 8)),
              HasSubstr("limit=1024"));
}

TEST(SafetensorsTest, AZeroExtentIsATensorOfNoBytes) {
  const std::vector<std::byte> file = SafetensorsFile(
      R"({"none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},
          "one":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
      4);
  const absl::StatusOr<std::vector<Tensor>> tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ((*tensors)[1].name, "none");
  EXPECT_EQ((*tensors)[1].num_elements, 0);
  EXPECT_TRUE((*tensors)[1].data.empty());
  EXPECT_EQ((*tensors)[0].num_elements, 1);
}

TEST(SafetensorsTest, ListsTypesWithoutKernelsByNameAndSize) {
  const std::vector<std::byte> file = SafetensorsFile(
      R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},
          "new":{"dtype":"F6_X","shape":[4],"data_offsets":[8,11]},
          "odd":{"dtype":"Q4_1","shape":[32],"data_offsets":[11,31]}})",
      31);
  const absl::StatusOr<std::vector<Tensor>> tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  for (const Tensor& tensor : *tensors) EXPECT_FALSE(tensor.dtype.has_value()) << tensor.name;
  EXPECT_EQ((*tensors)[1].type_name, "F6_X");
}

absl::StatusOr<ShardIndex> ParseIndex(std::string_view text) {
  return ParseShardIndex(nlohmann::json::parse(text, nullptr, false));
}

TEST(ShardIndexTest, ListsFilesAndTensorsInOrder) {
  const absl::StatusOr<ShardIndex> index = ParseIndex(
      R"({"metadata":{"total_size":9},
          "weight_map":{"z":"b.safetensors","a":"a.safetensors","m":"b.safetensors"}})");
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_THAT(index->files, ElementsAre("a.safetensors", "b.safetensors"));
  ASSERT_EQ(index->entries.size(), 3u);
  EXPECT_EQ(index->entries[1].tensor, "m");
  EXPECT_EQ(index->entries[1].file_index, 1);
}

TEST(ShardIndexTest, RefusesNamesThatLeadOutOfTheFolder) {
  for (const std::string name :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "", ".safetensors",
        "x.bin", "x\\u0000.safetensors", "./x.safetensors"}) {
    const absl::Status status =
        ParseIndex(absl::StrCat(R"({"weight_map":{"a":")", name, "\"}}")).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << " " << status;
  }
  const std::string long_name(300, 'x');
  EXPECT_FALSE(
      ParseIndex(absl::StrCat(R"({"weight_map":{"a":")", long_name, ".safetensors\"}}")).ok());
}

TEST(ShardIndexTest, RefusesMoreShardsThanTheLimit) {
  const auto index_of = [](int num_shards) {
    std::string map;
    for (int i = 0; i < num_shards; ++i)
      absl::StrAppend(&map, i == 0 ? "" : ",", "\"t", i, "\":\"", i, ".safetensors\"");
    return absl::StrCat(R"({"weight_map":{)", map, "}}");
  };
  EXPECT_TRUE(ParseIndex(index_of(kMaxShards)).ok());
  EXPECT_THAT(std::string(ParseIndex(index_of(kMaxShards + 1)).status().message()),
              HasSubstr("declared=4097 limit=4096"));
}

TEST(ShardIndexTest, RefusesWhatIsNoIndex) {
  for (const std::string text : {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                                 R"({"weight_map":{"a":1}})", "null"}) {
    EXPECT_FALSE(ParseIndex(text).ok()) << text;
  }
}

}  // namespace
}  // namespace cairn
