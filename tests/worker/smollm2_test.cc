// SmolLM2-135M-Instruct (Q4_1) against float32 references of another engine, and the equality of
// its logits however they are computed. Skipped where the model is not in the cache folder:
// deploy/get_model.py puts it there.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
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

const std::string kModel = std::string(CAIRN_MODEL_CACHE) + "/smollm2-135m-instruct-q4_1.gguf";
const std::string kGolden =
    std::string(CAIRN_TEST_DATA) + "/golden/real/smollm2-135m-instruct-q4_1";

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::ifstream(kModel).good()) GTEST_SKIP() << "no model: " << kModel;
    auto json = ReadJsonFile(kGolden + ".json", {});
    ASSERT_TRUE(json.ok()) << json.status();
    prompts_ = (*json)["prompts"];
    auto golden = Checkpoint::Open(kGolden + ".safetensors");
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *std::move(golden);
  }

  static std::unique_ptr<ModelRunner> Start(const RunnerOptions& options) {
    auto runner = ModelRunner::Start(kModel, options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }

  static RunRequest Request(const nlohmann::json& prompt, int32_t max_tokens) {
    RunRequest request;
    request.prompt = prompt["ids"].get<std::vector<int32_t>>();
    request.max_tokens = max_tokens;
    request.keep_logits = true;
    return request;
  }

  // Greedy tokens are as sure as the reference's margins: equal up to the first below `margin`.
  static void ExpectGreedy(const RunResult& result, const nlohmann::json& prompt, double margin,
                           const std::string& what) {
    const auto expected = prompt["greedy"].get<std::vector<int32_t>>();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (prompt["greedy_margins"][i].get<double>() < margin) return;
      ASSERT_EQ(result.tokens[i], expected[i]) << what << ", token " << i;
    }
  }

  // The largest difference of the reference's 20 best ids at one position: of logits, or of
  // log-probabilities where a common shift is no error.
  double Top20Difference(const std::string& at, const std::vector<float>& logits,
                         bool log_probabilities) {
    const auto ids = GoldenInts(*golden_, at + ".top_ids");
    const auto top = GoldenFloats(*golden_, at + ".top_logits");
    double shift = 0;
    if (log_probabilities) shift = LogSumExp(logits) - GoldenFloats(*golden_, at + ".lse")[0];
    double worst = 0;
    for (size_t i = 0; i < ids.size(); ++i)
      worst = std::max(worst, std::abs(logits[ids[i]] - top[i] - shift));
    return worst;
  }

  static double LogSumExp(const std::vector<float>& logits) {
    double max = logits[0], sum = 0;
    for (const float logit : logits) max = std::max<double>(max, logit);
    for (const float logit : logits) sum += std::exp(logit - max);
    return max + std::log(sum);
  }

  nlohmann::json prompts_;
  std::unique_ptr<Checkpoint> golden_;
};

TEST_F(SmolLm2Test, InFloat32TheLogitsAreTheReference) {
  for (const int size : {1, 2}) {
    RunnerOptions options;
    options.size = size;
    options.numerics.activations = "f32";
    options.numerics.kv_dtype = "f32";
    const auto runner = Start(options);
    for (const auto& [name, prompt] : prompts_.items()) {
      const RunResult result = runner->Run(Request(prompt, prompt["greedy"].size()));
      for (const int32_t position : prompt["positions"].get<std::vector<int32_t>>()) {
        const std::string at = name + "." + std::to_string(position);
        EXPECT_LE(Top20Difference(at, result.logits.at(position), false), 2e-3)
            << at << ", ranks " << size;
      }
      ExpectGreedy(result, prompt, 0.01, name);
    }
  }
}

TEST_F(SmolLm2Test, ByDefaultItIsAsCloseAsEnginesThatQuantiseActivations) {
  for (const int size : {1, 2}) {
    RunnerOptions options;
    options.size = size;
    const auto runner = Start(options);
    for (const auto& [name, prompt] : prompts_.items()) {
      const RunResult result = runner->Run(Request(prompt, prompt["greedy"].size()));
      const auto positions = prompt["positions"].get<std::vector<int32_t>>();
      for (const int32_t position : positions) {
        const std::string at = name + "." + std::to_string(position);
        EXPECT_LE(Top20Difference(at, result.logits.at(position), true),
                  position == positions.back() ? 0.40 : 1.0)
            << at << ", ranks " << size;
      }
      ExpectGreedy(result, prompt, 1.0, name);
      const auto ids = prompt["ids"].get<std::vector<int32_t>>();
      if (ids.size() < 2 || ids.size() > 300) continue;
      const auto expected = GoldenFloats(*golden_, name + ".nll");
      double own = 0, reference = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto& row = result.logits.at(static_cast<int32_t>(i));
        own += LogSumExp(row) - row[ids[i + 1]];
        reference += expected[expected.size() - (ids.size() - 1) + i];
      }
      EXPECT_NEAR(own / (ids.size() - 1), reference / (ids.size() - 1), 0.05) << name;
    }
  }
}

// A sample of the equality matrix at real sizes; bits_test has the whole of it on small models.
class SmolLm2BitsTest : public SmolLm2Test {
 protected:
  void SetUp() override {
    SmolLm2Test::SetUp();
    if (IsSkipped()) return;
    for (const auto& [name, prompt] : prompts_.items()) {
      if (prompt["n"].get<int>() > 100) continue;
      requests_.push_back(Request(prompt, kNewTokens));
      requests_.back().keep_logits = false;
    }
    requests_.push_back(Request(prompts_["long"], kNewTokens));
    requests_.back().keep_logits = false;
    requests_.back().prompt.resize(600);  // more than two tiles of attention
    requests_.push_back(requests_.back());
    requests_.back().sampling.temperature = 1;
    requests_.back().sampling.seed = 11;
    RunnerOptions cold;
    cold.prefix_cache = false;
    const auto runner = Start(cold);
    for (const RunRequest& request : requests_) reference_.push_back(runner->Run(request));
  }

  void ExpectSame(const std::vector<RunResult>& results, const std::string& what) {
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].tokens, reference_[i].tokens) << what << ", request " << i;
      for (const auto& [position, digest] : results[i].digests)
        ASSERT_EQ(digest, reference_[i].digests.at(position))
            << what << ", request " << i << " at " << position;
    }
  }

  static constexpr int kNewTokens = 6;
  std::vector<RunRequest> requests_;
  std::vector<RunResult> reference_;
};

TEST_F(SmolLm2BitsTest, HoweverItIsComputed) {
  struct Variant {
    std::string name;
    RunnerOptions options;
  };
  std::vector<Variant> variants(6);
  variants[0].name = "together";
  variants[1].name = "chunks of 7";
  variants[1].options.max_step_tokens = 7;
  variants[2].name = "2 ranks, blocks of 64, chunks of 100";
  variants[2].options.size = 2;
  variants[2].options.block_tokens = 64;
  variants[2].options.max_step_tokens = 100;
  variants[3].name = "3 ranks x 2 threads";
  variants[3].options.size = 3;
  variants[3].options.num_threads = 2;
  variants[4].name = "4 ranks";
  variants[4].options.size = 4;
  variants[5].name = "2 threads, a small pool";
  variants[5].options.num_threads = 2;
  variants[5].options.num_blocks = 42;
  if (ChooseIsa("avx512").ok()) {
    variants.push_back({"AVX-512", {}});
    variants.back().options.isa = Isa::kAvx512;
  }
  for (const Variant& variant : variants) {
    const auto runner = Start(variant.options);
    ExpectSame(runner->Run(requests_), variant.name);
    ExpectSame(runner->Run(requests_), variant.name + ", warm");
  }
}

// The whole product, in tests of one number of ranks and threads each.
class SmolLm2MatrixTest : public SmolLm2BitsTest,
                          public ::testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(SmolLm2MatrixTest, WhateverTheBlocksTheChunksAndTheNeighbours) {
  std::vector<Isa> isas = {Isa::kAvx2};
  if (ChooseIsa("avx512").ok()) isas.push_back(Isa::kAvx512);
  for (const Isa isa : isas) {
    for (const int block_tokens : {16, 32, 64, 128, 256}) {
      for (const int chunk : {1, 7, 64, 100, 512}) {
        RunnerOptions options;
        std::tie(options.size, options.num_threads) = GetParam();
        options.isa = isa;
        options.block_tokens = block_tokens;
        options.max_step_tokens = chunk;
        const std::string what = std::string(IsaName(isa)) + ", blocks of " +
                                 std::to_string(block_tokens) + ", chunks of " +
                                 std::to_string(chunk);
        const auto runner = Start(options);
        ExpectSame(runner->Run(requests_), what);
        ExpectSame(runner->Run(requests_), what + ", warm");
        std::vector<RunResult> alone;
        for (const RunRequest& request : requests_) alone.push_back(runner->Run(request));
        ExpectSame(alone, what + ", alone");
      }
    }
    RunnerOptions small;
    std::tie(small.size, small.num_threads) = GetParam();
    small.isa = isa;
    small.num_blocks = 42;
    const auto runner = Start(small);
    ExpectSame(runner->Run(requests_), "a small pool");
  }
}

INSTANTIATE_TEST_SUITE_P(RanksAndThreads, SmolLm2MatrixTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 2)));

}  // namespace
}  // namespace cairn
