#include "model/float8_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/model/safetensors_writer.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const nlohmann::json& DeepSeekConfig() {
  static const nlohmann::json config = {{"activation_scheme", "dynamic"},
                                        {"fmt", "e4m3"},
                                        {"quant_method", "fp8"},
                                        {"weight_block_size", {128, 128}}};
  return config;
}

// A directory with one weight of 130 x 300 and its scales, as `scales` describes them.
class Float8ScalesTest : public ::testing::Test {
 protected:
  void Write(const std::string& scales_fields, int64_t scales_bytes) {
    constexpr int64_t kBytes = 130 * 300;
    std::string header = absl::StrCat(
        R"({"w":{"dtype":"F8_E4M3","shape":[130,300],"data_offsets":[0,)", kBytes, "]}");
    if (!scales_fields.empty()) {
      absl::StrAppend(&header, R"(,"w_scale_inv":{)", scales_fields, R"(,"data_offsets":[)", kBytes,
                      ",", kBytes + scales_bytes, "]}");
    }
    folder_.Write("model.safetensors",
                  SafetensorsFile(header + "}", static_cast<size_t>(kBytes + scales_bytes)));
  }
  void WriteConfig(const nlohmann::json& quantization) {
    folder_.Write("config.json",
                  std::string_view(nlohmann::json{{"quantization_config", quantization}}.dump()));
  }
  std::string Message() {
    const absl::Status status = Checkpoint::Open(folder_.path()).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  TemporaryFolder folder_;
};

TEST_F(Float8ScalesTest, AWeightGetsItsTypeTogetherWithItsScales) {
  WriteConfig(DeepSeekConfig());
  Write(R"("dtype":"F32","shape":[2,3])", 24);
  auto checkpoint = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const Tensor* weight = (*checkpoint)->Find("w");
  EXPECT_EQ(weight->dtype, DType::kF8E4M3);
  EXPECT_EQ(weight->scales, (*checkpoint)->Find("w_scale_inv"));
  EXPECT_EQ(weight->scales->scales, nullptr);
  Write(R"("dtype":"BF16","shape":[2,3])", 12);
  checkpoint = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->Find("w")->scales->dtype, DType::kBF16);
}

TEST_F(Float8ScalesTest, RefusesScalesThatAreMissingOrDoNotFit) {
  WriteConfig(DeepSeekConfig());
  Write("", 0);
  EXPECT_THAT(Message(), AllOf(HasSubstr("w_scale_inv is missing"), HasSubstr("F8_E4M3")));
  for (const char* const shape : {"[2,2]", "[3,2]", "[6]", "[1,2,3]", "[130,300]"}) {
    int64_t count = 1;
    const auto extents = nlohmann::json::parse(shape);
    for (const auto& extent : extents) count *= extent.get<int64_t>();
    Write(absl::StrCat(R"("dtype":"F32","shape":)", shape), 4 * count);
    EXPECT_THAT(Message(), AllOf(HasSubstr("w_scale_inv does not fit"),
                                 HasSubstr("expected=[2, 3]"), HasSubstr("weight=[130, 300]")))
        << shape;
  }
  Write(R"("dtype":"F8_E8M0","shape":[2,3])", 6);
  EXPECT_THAT(Message(), AllOf(HasSubstr("type=F8_E8M0"), HasSubstr("known=F32, BF16")));
}

TEST_F(Float8ScalesTest, WithoutAKnownQuantisationThereIsNoTypeToComputeWith) {
  for (const nlohmann::json& config :
       {nlohmann::json(nullptr), nlohmann::json{{"quant_method", "compressed-tensors"}}}) {
    WriteConfig(config);
    Write(R"("dtype":"F32","shape":[2,3])", 24);
    const auto checkpoint = Checkpoint::Open(folder_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ((*checkpoint)->Find("w")->dtype, std::nullopt);
    EXPECT_EQ((*checkpoint)->Find("w")->type_name, "F8_E4M3");
  }
}

TEST(CheckQuantizationTest, RefusesOtherQuantisationsNamingFieldAndValue) {
  EXPECT_TRUE(CheckQuantization(DeepSeekConfig()).ok());
  struct Case {
    const char* field;
    nlohmann::json value;
    const char* message;
  };
  for (const Case& bad : {
           Case{"quant_method", "gptq", "quant_method is not supported: value=\"gptq\""},
           Case{"quant_method", nullptr, "known=\"fp8\""},
           Case{"fmt", "e5m2", "fmt is not supported: value=\"e5m2\" known=\"e4m3\""},
           Case{"weight_block_size", {64, 128}, "value=[64,128] known=[128,128]"},
           Case{"weight_block_size", nullptr, "weight_block_size is not supported: value=null"},
       }) {
    nlohmann::json config = DeepSeekConfig();
    config[bad.field] = bad.value;
    const absl::Status status = CheckQuantization(config);
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message));
  }
  nlohmann::json without_format = DeepSeekConfig();
  without_format.erase("fmt");
  EXPECT_TRUE(CheckQuantization(without_format).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckQuantization("fp8")));
}

}  // namespace
}  // namespace cairn
