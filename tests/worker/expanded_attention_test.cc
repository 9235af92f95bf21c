// Fast numerics with expanded keys and values: as close to the golden data as absorbed attention,
// and no more than a few rows stay absorbed.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/worker/golden_model.h"
#include "tests/worker/model_runner.h"

namespace cairn {
namespace {

using testing::GoldenModel;
using testing::ModelRunner;
using testing::RunnerOptions;
using testing::RunRequest;
using testing::RunResult;

// family, checkpoint inside its folder, ranks
using Case = std::tuple<std::string, std::string, int>;

class ExpandedAttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(golden_.Open(std::get<0>(GetParam()), std::get<1>(GetParam())));
  }

  // All prompts together, so that short and long ones share steps.
  std::vector<RunResult> RunAll(int max_step_tokens) {
    RunnerOptions options = {
        .size = std::get<2>(GetParam()), .num_threads = 2, .max_step_tokens = max_step_tokens};
    options.numerics.exact = false;
    auto runner = ModelRunner::Start(golden_.path(), options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    if (!runner.ok()) return {};
    std::vector<RunRequest> requests;
    for (const char* prompt : kPrompts) {
      requests.emplace_back();
      requests.back().prompt = golden_.ids(prompt);
      requests.back().keep_logits = true;
    }
    return (*runner)->Run(requests);
  }

  static constexpr const char* kPrompts[] = {"p300", "p7", "p64", "p1"};
  GoldenModel golden_;
};

TEST_P(ExpandedAttentionTest, LogitsAreWithinTheToleranceOfTheGoldenData) {
  for (const int max_step_tokens : {512, 100}) {
    const std::vector<RunResult> fast = RunAll(max_step_tokens);
    ASSERT_EQ(fast.size(), std::size(kPrompts));
    for (size_t i = 0; i < fast.size(); ++i)
      EXPECT_LE(golden_.WorstError(fast[i], kPrompts[i]), golden_.tolerance())
          << kPrompts[i] << " in steps of " << max_step_tokens;
  }
}

TEST_P(ExpandedAttentionTest, OnlyRunsOfManyRowsAreExpanded) {
  const std::vector<RunResult> whole = RunAll(512), in_small_steps = RunAll(16);
  ASSERT_EQ(whole.size(), in_small_steps.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool is_long = std::string(kPrompts[i]) == "p300" || std::string(kPrompts[i]) == "p64";
    EXPECT_EQ(whole[i].digests == in_small_steps[i].digests, !is_long) << kPrompts[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, ExpandedAttentionTest,
    ::testing::Values(Case{"deepseek_v2", "f32", 1}, Case{"deepseek_v2", "bf16", 4},
                      Case{"deepseek_v2_lite", "f32", 2}, Case{"deepseek_v2_lite", "model.gguf", 1},
                      Case{"deepseek_v3", "f32", 1}, Case{"deepseek_v3", "model.gguf", 3}),
    [](const auto& test) {
      std::string name = std::get<0>(test.param) + "_" + std::get<1>(test.param) + "_tp" +
                         std::to_string(std::get<2>(test.param));
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

}  // namespace
}  // namespace cairn
