// Fast numerics with expanded keys and values: as close to the golden data as absorbed attention,
// and no more than a few rows stay absorbed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/json_text.h"
#include "tests/worker/model_runner.h"

namespace cairn {
namespace {

using testing::GoldenFloats;
using testing::GoldenInts;
using testing::ModelRunner;
using testing::RunnerOptions;
using testing::RunRequest;
using testing::RunResult;

// family, checkpoint inside its folder, ranks
using Case = std::tuple<std::string, std::string, int>;

class ExpandedAttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    folder_ = std::string(CAIRN_TEST_DATA) + "/golden/models/" + std::get<0>(GetParam());
    auto golden = Checkpoint::Open(folder_ + "/golden.safetensors");
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *std::move(golden);
    const auto meta = ReadJsonFile(folder_ + "/golden.json", {});
    ASSERT_TRUE(meta.ok()) << meta.status();
    tolerance_ = (*meta)["tolerance"]["logits_abs_f32"].get<double>();
  }

  // All prompts together, so that short and long ones share steps.
  std::vector<RunResult> RunAll(int max_step_tokens) {
    RunnerOptions options = {
        .size = std::get<2>(GetParam()), .num_threads = 2, .max_step_tokens = max_step_tokens};
    options.numerics.exact = false;
    auto runner = ModelRunner::Start(folder_ + "/" + std::get<1>(GetParam()), options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    if (!runner.ok()) return {};
    std::vector<RunRequest> requests;
    for (const char* prompt : kPrompts) {
      requests.emplace_back();
      requests.back().prompt = GoldenInts(*golden_, std::string(prompt) + ".ids");
      requests.back().keep_logits = true;
    }
    return (*runner)->Run(requests);
  }

  double WorstError(const RunResult& result, const std::string& prompt) const {
    const bool float32 = std::get<1>(GetParam()) == "f32";
    const auto positions = GoldenInts(*golden_, prompt + (float32 ? ".pos" : ".bf16_pos"));
    const auto expected = GoldenFloats(*golden_, prompt + (float32 ? ".logits" : ".bf16_logits"));
    double worst = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto row = result.logits.find(positions[i]);
      if (row == result.logits.end()) return 1e9;
      const size_t vocab = row->second.size();
      for (size_t v = 0; v < vocab; ++v)
        worst = std::max<double>(worst, std::abs(row->second[v] - expected[i * vocab + v]));
    }
    return worst;
  }

  static constexpr const char* kPrompts[] = {"p300", "p7", "p64", "p1"};
  std::string folder_;
  double tolerance_ = 0;
  std::unique_ptr<Checkpoint> golden_;
};

TEST_P(ExpandedAttentionTest, LogitsAreWithinTheToleranceOfTheGoldenData) {
  for (const int max_step_tokens : {512, 100}) {
    const std::vector<RunResult> fast = RunAll(max_step_tokens);
    ASSERT_EQ(fast.size(), std::size(kPrompts));
    for (size_t i = 0; i < fast.size(); ++i)
      EXPECT_LE(WorstError(fast[i], kPrompts[i]), tolerance_)
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
