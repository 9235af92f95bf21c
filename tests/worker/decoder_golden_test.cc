// Logits and greedy continuations against data that other engines made (tests/golden/README.md).

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "tests/worker/golden_model.h"
#include "tests/worker/model_runner.h"

namespace cairn {
namespace {

using testing::GoldenModel;
using testing::ModelRunner;
using testing::RunRequest;

// family, checkpoint inside its folder, ranks
using Case = std::tuple<std::string, std::string, int>;

class DecoderGoldenTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto& [family, file, size] = GetParam();
    ASSERT_NO_FATAL_FAILURE(golden_.Open(family, file));
    auto runner = ModelRunner::Start(golden_.path(), {.size = size});
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  GoldenModel golden_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_P(DecoderGoldenTest, LogitsAreWithinTheStatedTolerance) {
  for (const std::string prompt : {"p1", "p7", "p64", "p300"}) {
    RunRequest request;
    request.prompt = golden_.ids(prompt);
    request.keep_logits = true;
    EXPECT_LE(golden_.WorstError(runner_->Run(request), prompt), golden_.tolerance()) << prompt;
  }
}

// The continuations were made with the float32 checkpoint.
class DecoderGreedyTest : public DecoderGoldenTest {};

TEST_P(DecoderGreedyTest, ContinuationsAreEqual) {
  for (const std::string prompt : {"p1", "p7", "p64", "p300"}) {
    RunRequest request;
    request.prompt = golden_.ids(prompt);
    request.max_tokens = 32;
    EXPECT_EQ(runner_->Run(request).tokens, golden_.greedy(prompt)) << prompt;
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
