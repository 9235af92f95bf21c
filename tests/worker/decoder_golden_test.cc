// Logits and greedy continuations against data that other engines made (tests/golden/README.md).

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include <nlohmann/json.hpp>

#include "model/json_text.h"
#include "tests/worker/model_runner.h"

namespace cairn {
namespace {

using testing::GoldenFloats;
using testing::GoldenInts;
using testing::ModelRunner;
using testing::RunRequest;
using testing::RunResult;

// family, checkpoint inside its folder, ranks
using Case = std::tuple<std::string, std::string, int>;

class DecoderGoldenTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto& [family, file, size] = GetParam();
    folder_ = std::string(CAIRN_TEST_DATA) + "/golden/models/" + family;
    float32_ = file == "f32";
    auto golden = Checkpoint::Open(folder_ + "/golden.safetensors");
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *std::move(golden);
    const auto meta = ReadJsonFile(folder_ + "/golden.json", {});
    ASSERT_TRUE(meta.ok()) << meta.status();
    tolerance_ = (*meta)["tolerance"]["logits_abs_f32"].get<double>();
    auto runner = ModelRunner::Start(folder_ + "/" + file, {.size = size});
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  std::string folder_;
  bool float32_ = false;
  double tolerance_ = 0;
  std::unique_ptr<Checkpoint> golden_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_P(DecoderGoldenTest, LogitsAreWithinTheStatedTolerance) {
  const int64_t vocab = runner_->config().vocab_size;
  for (const std::string prompt : {"p1", "p7", "p64", "p300"}) {
    RunRequest request;
    request.prompt = GoldenInts(*golden_, prompt + ".ids");
    request.keep_logits = true;
    const RunResult result = runner_->Run(request);
    const auto positions = GoldenInts(*golden_, prompt + (float32_ ? ".pos" : ".bf16_pos"));
    const auto expected = GoldenFloats(*golden_, prompt + (float32_ ? ".logits" : ".bf16_logits"));
    double worst = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto row = result.logits.find(positions[i]);
      ASSERT_NE(row, result.logits.end()) << prompt << " position " << positions[i];
      for (int64_t v = 0; v < vocab; ++v)
        worst = std::max<double>(worst, std::abs(row->second[v] - expected[i * vocab + v]));
    }
    EXPECT_LE(worst, tolerance_) << prompt;
  }
}

// The continuations were made with the float32 checkpoint.
class DecoderGreedyTest : public DecoderGoldenTest {};

TEST_P(DecoderGreedyTest, ContinuationsAreEqual) {
  for (const std::string prompt : {"p1", "p7", "p64", "p300"}) {
    RunRequest request;
    request.prompt = GoldenInts(*golden_, prompt + ".ids");
    request.max_tokens = 32;
    EXPECT_EQ(runner_->Run(request).tokens, GoldenInts(*golden_, prompt + ".greedy")) << prompt;
  }
}

std::string NameOf(const ::testing::TestParamInfo<Case>& test) {
  std::string name = std::get<0>(test.param) + "_" + std::get<1>(test.param) + "_tp" +
                     std::to_string(std::get<2>(test.param));
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
}

// GGUF has no way to say some of the settings of the others.
const auto kWithGguf =
    ::testing::Values("llama", "llama3_rope", "qwen2", "qwen2_yarn", "qwen3", "mixtral",
                      "qwen3_moe", "deepseek_v2_lite", "deepseek_v3", "dots1");
const auto kWithoutGguf = ::testing::Values("mistral", "gemma2", "gemma3", "deepseek_v2");
const auto kRanks = ::testing::Values(1, 2, 3, 4);

INSTANTIATE_TEST_SUITE_P(Families, DecoderGoldenTest,
                         ::testing::Combine(kWithGguf,
                                            ::testing::Values("f32", "bf16", "model.gguf"), kRanks),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(OtherFamilies, DecoderGoldenTest,
                         ::testing::Combine(kWithoutGguf, ::testing::Values("f32", "bf16"), kRanks),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Families, DecoderGreedyTest,
                         ::testing::Combine(kWithGguf, ::testing::Values("f32"), kRanks), NameOf);
INSTANTIATE_TEST_SUITE_P(OtherFamilies, DecoderGreedyTest,
                         ::testing::Combine(kWithoutGguf, ::testing::Values("f32"), kRanks),
                         NameOf);

}  // namespace
}  // namespace cairn
