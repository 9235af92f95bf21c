#include "model/inspect.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/safetensors_writer.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

nlohmann::json InspectJson(const std::string& path) {
  const absl::StatusOr<std::string> text = InspectModel(path, InspectFormat::kJson);
  EXPECT_TRUE(text.ok()) << text.status();
  return nlohmann::json::parse(text.value_or(""), nullptr, false);
}

TEST(InspectTest, ListsMetadataTensorsAndSizes) {
  TemporaryFolder folder;
  GgufWriter writer = TinyModel();
  writer.AddStrings("many", std::vector<std::string>(100, "x"));
  writer.AddBool("yes", true);
  const std::string path = folder.Write("tiny.gguf", writer.File());
  const nlohmann::json json = InspectJson(path);
  EXPECT_EQ(json["format"], "gguf");
  EXPECT_EQ(json["num_tensors"], 12);
  EXPECT_EQ(json["tensors"].size(), 12u);
  EXPECT_EQ(json["metadata"]["llama.block_count"], 1);
  EXPECT_EQ(json["metadata"]["yes"], true);
  EXPECT_EQ(json["metadata"]["many"]["count"], 100);
  EXPECT_EQ(json["metadata"]["many"]["first"].size(), 8u);
  EXPECT_EQ(json["model"]["head_dim"], 8);
  EXPECT_TRUE(json["problem"].is_null());
  for (const nlohmann::json& tensor : json["tensors"]) {
    if (tensor["name"] != "blk.0.attn_k.weight") continue;
    EXPECT_EQ(tensor["dtype"], "F32");
    EXPECT_EQ(tensor["shape"], nlohmann::json({8, 16}));
    EXPECT_EQ(tensor["bytes"], 512);
  }
  const absl::StatusOr<std::string> text = InspectModel(path, InspectFormat::kText);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, AllOf(HasSubstr("blk.0.attn_k.weight"), HasSubstr("llama.block_count = 1")));
}

TEST(InspectTest, SaysHowAModelAttendsAndWhatATokenLeavesInTheCache) {
  const auto model = [](const std::string& family) {
    return InspectJson(absl::StrCat(CAIRN_TEST_DATA, "/golden/models/", family, "/f32"))["model"];
  };
  const nlohmann::json windows = model("gemma3")["attention"];
  EXPECT_EQ(windows["kind"], "grouped");
  EXPECT_EQ(windows["windows"], nlohmann::json({32, 32, 0, 32}));
  EXPECT_EQ(windows["cached_values_per_token"], 4 * 2 * 24);  // layers, keys and values, one head
  const int context = model("gemma3")["context_length"];
  EXPECT_EQ(windows["cached_values_of_context"], (3 * 32 + context) * 2 * 24);
  const nlohmann::json latent = model("deepseek_v3");
  EXPECT_EQ(latent["attention"]["kind"], "latent");
  EXPECT_EQ(latent["attention"]["cached_values_per_token"], 2 * (32 + 8));
  EXPECT_EQ(latent["experts"]["count"], 8);
  EXPECT_EQ(latent["experts"]["shared_ffn_dim"], 32);
  EXPECT_TRUE(model("qwen3")["experts"].is_null());
}

TEST(InspectTest, AConfigWithoutItsWeightsSaysWhatTheModelWouldBe) {
  const std::string family = absl::StrCat(CAIRN_TEST_DATA, "/golden/models/qwen3/f32");
  const nlohmann::json alone = InspectJson(family + "/config.json");
  EXPECT_EQ(alone["model"], InspectJson(family)["model"]);
  EXPECT_EQ(alone["num_tensors"], 0);
  TemporaryFolder folder;
  EXPECT_FALSE(InspectModel(folder.Write("config.json", "[1]"), InspectFormat::kText).ok());
  const std::string unknown = folder.Write("unknown.json", R"({"architectures": ["Other"]})");
  EXPECT_THAT(InspectJson(unknown)["problem"].get<std::string>(), HasSubstr("Other"));
}

TEST(InspectTest, SaysInWordsWhatTheKvCacheTakes) {
  const auto text = InspectModel(absl::StrCat(CAIRN_TEST_DATA, "/golden/configs/SmolLM2-135M.json"),
                                 InspectFormat::kText);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("SmolLM2-135M.json: a config.json without weights\n"));
  EXPECT_THAT(*text, HasSubstr("KV cache at f16: 22.5 KiB a token, 0.18 GiB of 8192 tokens\n"));
}

TEST(InspectTest, ListsASoundFileThatCannotBeRunWithTheReason) {
  TemporaryFolder folder;
  GgufWriter writer;
  writer.AddString("general.architecture", "mamba9");
  writer.AddTensor("iq", {1, 256}, 23, std::vector<std::byte>(136));
  const nlohmann::json json = InspectJson(folder.Write("m.gguf", writer.File()));
  EXPECT_TRUE(json["model"].is_null());
  EXPECT_THAT(json["problem"].get<std::string>(), HasSubstr("mamba9"));
  EXPECT_EQ(json["tensors"][0]["dtype"], "IQ4_XS");
  EXPECT_EQ(json["tensors"][0]["supported"], false);
}

TEST(InspectTest, WritesValidJsonForTextThatIsNoUtf8) {
  TemporaryFolder folder;
  GgufWriter writer = TinyModel();
  writer.AddString("broken", "a\xFF\xC3");
  writer.AddFloat32("nan", std::numeric_limits<float>::quiet_NaN());
  const nlohmann::json json = InspectJson(folder.Write("m.gguf", writer.File()));
  EXPECT_TRUE(json.is_object());
  EXPECT_TRUE(json["metadata"]["nan"].is_null());
}

TEST(InspectTest, RefusesADamagedFileInOneLine) {
  TemporaryFolder folder;
  std::vector<std::byte> file = TinyModel().File();
  file.pop_back();
  const absl::Status status =
      InspectModel(folder.Write("cut.gguf", file), InspectFormat::kText).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cut.gguf"), HasSubstr("blk.0.ffn_down.weight")));
}

TEST(InspectTest, ShowsADirectorysConfig) {
  const nlohmann::json json =
      InspectJson(absl::StrCat(CAIRN_TEST_DATA, "/golden/models/llama3_rope/bf16"));
  EXPECT_EQ(json["format"], "safetensors");
  EXPECT_EQ(json["config"]["dtype"], "bfloat16");
  EXPECT_TRUE(json["problem"].is_null());
}

// Sizes as published configs state them; a value takes 2 bytes.
TEST(InspectTest, TheReadmesTableOfCachesIsWhatTheProgramComputes) {
  std::ifstream file(absl::StrCat(CAIRN_TEST_DATA, "/../README.md"));
  const std::string readme((std::istreambuf_iterator<char>(file)), {});
  int num_models = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat(CAIRN_TEST_DATA, "/golden/configs"))) {
    const nlohmann::json json = InspectJson(entry.path().string());
    ASSERT_TRUE(json["problem"].is_null()) << json["problem"];
    const nlohmann::json& model = json["model"];
    const nlohmann::json& attention = model["attention"];
    const double token_bytes = 2 * attention["cached_values_per_token"].get<double>();
    const double context_bytes = 2 * attention["cached_values_of_context"].get<double>();
    const std::string row = absl::StrFormat(
        "| %s | %.1f KiB | %.2f GiB of %d tokens |", entry.path().stem().string(),
        token_bytes / 1024, context_bytes / (1 << 30), model["context_length"].get<int>());
    EXPECT_THAT(readme, HasSubstr(row));
    ++num_models;
  }
  EXPECT_GE(num_models, 13);
}

}  // namespace
}  // namespace cairn
