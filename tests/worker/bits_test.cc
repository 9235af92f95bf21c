// The equality matrix: however a request is computed, its logits have the same bits.
//
// The reference is the request alone, in one chunk, on one rank and one thread, with a cold cache.
// Each test varies one thing (and the last one several) and compares SHA-256 of the logits of every
// computed position, and the sampled tokens.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/worker/model_runner.h"

namespace cairn {
namespace {

using testing::GoldenInts;
using testing::ModelRunner;
using testing::RunnerOptions;
using testing::RunRequest;
using testing::RunResult;

constexpr int kNewTokens = 12;

class BitsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string folder = std::string(CAIRN_TEST_DATA) + "/golden/models/" + GetParam();
    model_ = folder + "/f32";
    auto golden = Checkpoint::Open(folder + "/golden.safetensors");
    ASSERT_TRUE(golden.ok()) << golden.status();
    for (const std::string prompt : {"p1", "p7", "p64", "p300"}) {
      RunRequest request;
      request.prompt = GoldenInts(**golden, prompt + ".ids");
      request.max_tokens = kNewTokens;
      requests_.push_back(request);
      // The same prompt drawn, not greedy.
      request.sampling.temperature = 0.8f;
      request.sampling.top_p = 0.95f;
      request.sampling.seed = 7;
      request.sampling.presence_penalty = 0.5f;
      requests_.push_back(request);
    }
    RunnerOptions cold;
    cold.prefix_cache = false;
    const auto runner = Start(cold);
    for (const RunRequest& request : requests_) reference_.push_back(runner->Run(request));
    for (const RunResult& result : reference_) {
      ASSERT_EQ(result.tokens.size(), static_cast<size_t>(kNewTokens));
    }
  }

  std::unique_ptr<ModelRunner> Start(const RunnerOptions& options) {
    auto runner = ModelRunner::Start(model_, options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    return runner.ok() ? *std::move(runner) : nullptr;
  }

  // Every position that was computed has the reference's bits.
  void ExpectSame(const RunResult& result, size_t index, const std::string& what) {
    EXPECT_EQ(result.tokens, reference_[index].tokens) << what << ", request " << index;
    int differing = 0;
    for (const auto& [position, digest] : result.digests)
      if (digest != reference_[index].digests.at(position)) ++differing;
    EXPECT_EQ(differing, 0) << what << ", request " << index << ", of " << result.digests.size();
    // The last computed positions are never in a cache.
    EXPECT_GE(result.digests.size(), static_cast<size_t>(kNewTokens)) << what;
  }

  void ExpectAllSame(const RunnerOptions& options, const std::string& what) {
    const auto runner = Start(options);
    ASSERT_NE(runner, nullptr) << what;
    for (size_t i = 0; i < requests_.size(); ++i) ExpectSame(runner->Run(requests_[i]), i, what);
    const std::vector<RunResult> together = runner->Run(requests_);
    for (size_t i = 0; i < together.size(); ++i) ExpectSame(together[i], i, what + ", together");
  }

  std::string model_;
  std::vector<RunRequest> requests_;
  std::vector<RunResult> reference_;
};

TEST_P(BitsTest, InABatchOfMixedNeighbours) {
  RunnerOptions options;
  options.prefix_cache = false;
  ExpectAllSame(options, "batch");
}

TEST_P(BitsTest, InChunksOfEverySize) {
  const auto longest = static_cast<int32_t>(requests_.back().prompt.size());
  const std::vector<int32_t> sizes = {1,  2,  3,  4,  5,  6,  7,   8,   9,   11,  13,  15,
                                      16, 17, 31, 32, 33, 64, 100, 128, 255, 256, 257, longest - 1};
  for (const int32_t size : sizes) {
    RunnerOptions options;
    options.prefix_cache = false;
    options.max_step_tokens = size;
    const auto runner = Start(options);
    for (size_t i = 0; i < requests_.size(); ++i)
      ExpectSame(runner->Run(requests_[i]), i, "chunk " + std::to_string(size));
  }
}

// The pool keeps full blocks: what it holds of the prompt is followed by other tokens up to the end
// of their block, so that every length is a hit, whole blocks and parts of one.
TEST_P(BitsTest, AfterAPrefixHitOfEveryLength) {
  RunnerOptions options;
  options.num_blocks = 4096;
  const auto runner = Start(options);
  for (size_t i = 0; i < requests_.size(); i += 2) {
    RunRequest request = requests_[i];
    for (size_t length = 1; length <= request.prompt.size(); ++length) {
      request.cache_salt = std::to_string(i) + "/" + std::to_string(length);
      RunRequest first = request;
      first.prompt.resize(length);
      const int32_t other = length < request.prompt.size() && request.prompt[length] == 5 ? 6 : 5;
      first.prompt.resize((length / 16 + 1) * 16, other);
      first.max_tokens = 1;
      runner->Run(first);
      const RunResult result = runner->Run(request);
      const auto most = static_cast<int32_t>(std::min(length, request.prompt.size() - 1));
      EXPECT_EQ(result.usage.cached_tokens, most);
      ExpectSame(result, i, "hit of " + std::to_string(length));
    }
  }
}

// Whoever holds the same blocks reads them together (kernels/attention_plan.h).
TEST_P(BitsTest, BesideOthersOnTheSameBlocks) {
  for (const int ranks : {1, 3}) {
    RunnerOptions options;
    options.size = ranks;
    options.num_threads = 2;
    const auto runner = Start(options);
    const size_t longest = requests_.size() - 2;
    runner->Run(requests_[longest]);
    std::vector<RunRequest> requests;
    for (size_t i = 0; i < 8; ++i) requests.push_back(requests_[longest + i % 2]);
    const std::vector<RunResult> together = runner->Run(requests);
    for (size_t i = 0; i < together.size(); ++i) {
      EXPECT_GT(together[i].usage.cached_tokens, 256);  // a whole tile
      ExpectSame(together[i], longest + i % 2, "on the same blocks");
    }
  }
}

// Sixteen growing requests in a pool that holds a few of them.
TEST_P(BitsTest, AfterPreemption) {
  constexpr int kLong = 60;
  std::vector<RunRequest> requests;
  for (int copy = 0; copy < 4; ++copy)
    for (size_t i = 2; i < 6; ++i) {
      requests.push_back(requests_[i]);
      requests.back().max_tokens = kLong;
      requests.back().sampling.seed = copy;
    }
  RunnerOptions options;
  options.prefix_cache = false;
  std::vector<RunResult> alone;
  {
    const auto runner = Start(options);
    for (const RunRequest& request : requests) alone.push_back(runner->Run(request));
  }
  options.num_blocks = 24;
  options.max_step_tokens = 64;
  for (const bool cache : {false, true}) {
    options.prefix_cache = cache;
    const auto runner = Start(options);
    const std::vector<RunResult> together = runner->Run(requests);
    EXPECT_GT(runner->stats().num_preemptions, 4);
    for (size_t i = 0; i < together.size(); ++i) {
      EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
      EXPECT_EQ(together[i].usage.completion_tokens, kLong);
      for (const auto& [position, digest] : together[i].digests)
        ASSERT_EQ(digest, alone[i].digests.at(position)) << i << " at " << position;
    }
  }
}

TEST_P(BitsTest, WithAnotherBlockSize) {
  for (const int32_t size : {32, 64, 128, 256}) {
    RunnerOptions options;
    options.block_tokens = size;
    ExpectAllSame(options, "blocks of " + std::to_string(size));
  }
}

TEST_P(BitsTest, OnAnyNumberOfRanks) {
  for (const int ranks : {2, 3, 4}) {
    RunnerOptions options;
    options.size = ranks;
    ExpectAllSame(options, std::to_string(ranks) + " ranks");
  }
}

TEST_P(BitsTest, OnAnyNumberOfThreads) {
  for (const int threads : {2, 3, 5}) {
    RunnerOptions options;
    options.num_threads = threads;
    ExpectAllSame(options, std::to_string(threads) + " threads");
  }
}

TEST_P(BitsTest, OnRanksOfSeveralThreads) {
  for (const int ranks : {2, 3, 4}) {
    for (const int threads : {2, 3}) {
      RunnerOptions options;
      options.size = ranks;
      options.num_threads = threads;
      ExpectAllSame(options, std::to_string(ranks) + " ranks x " + std::to_string(threads));
    }
  }
}

TEST_P(BitsTest, OnTheWiderInstructionSet) {
  if (!ChooseIsa("avx512").ok()) GTEST_SKIP() << "this processor has no AVX-512 VNNI";
  RunnerOptions options;
  options.isa = Isa::kAvx512;
  ExpectAllSame(options, "AVX-512");
  options.size = 3;
  options.num_threads = 2;
  ExpectAllSame(options, "AVX-512, 3 ranks x 2 threads");
}

TEST_P(BitsTest, WithEverythingAtOnce) {
  RunnerOptions options;
  options.size = 4;
  options.num_threads = 2;
  options.block_tokens = 64;
  options.max_step_tokens = 37;
  options.num_blocks = 9;
  const auto runner = Start(options);
  for (int round = 0; round < 2; ++round) {
    const std::vector<RunResult> together = runner->Run(requests_);
    for (size_t i = 0; i < together.size(); ++i) ExpectSame(together[i], i, "everything");
  }
}

// The control: without exact numerics the ranks' sums have another order, and it shows.
TEST_P(BitsTest, FastNumericsDiffer) {
  RunnerOptions options;
  options.size = 2;
  options.numerics.exact = false;
  const auto runner = Start(options);
  const RunResult result = runner->Run(requests_.back());
  int differing = 0;
  for (const auto& [position, digest] : result.digests)
    if (digest != reference_.back().digests.at(position)) ++differing;
  EXPECT_GT(differing, 0);
}

// One of each kind of attention and feed-forward network: plain groups, a window in every layer, in
// some layers (with caps; with norms of heads and ropes of their own), experts, latent attention.
INSTANTIATE_TEST_SUITE_P(Families, BitsTest,
                         ::testing::Values("llama", "llama3_rope", "mistral", "gemma2", "gemma3",
                                           "qwen3_moe", "deepseek_v2", "deepseek_v3"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace cairn
