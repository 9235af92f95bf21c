// A prompt of 128k tokens on a small model of each kind of attention: the pool needs the blocks
// that were computed beforehand and no more, and neither the plan of a step nor the time to make it
// grows with the context.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/model_runner.h"
#include "tests/worker/random_model.h"
#include "worker/decoder.h"
#include "worker/kv_tables.h"
#include "worker/sequence_blocks.h"
#include "worker/shard_plan.h"

namespace cairn {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;
using testing::RunRequest;
using testing::RunResult;
using testing::WriteRandomModel;

constexpr int kPromptTokens = 131072, kNewTokens = 65;
constexpr int kStepTokens = 1024, kBlockTokens = 32;
constexpr int kVocab = 64;

// What the engine did for one step: the bytes of its plan, and the time from the end of the step
// before to the plan.
struct PlannedStep {
  size_t plan_bytes = 0;
  double seconds = 0;
};

class Recorder : public StepExecutor {
 public:
  Recorder(std::unique_ptr<StepExecutor> executor, std::vector<PlannedStep>* steps)
      : executor_(std::move(executor)), steps_(steps) {}

  absl::StatusOr<StepResult> Run(const StepPlan& plan) override {
    const std::chrono::duration<double> planning = Clock::now() - end_;
    if (!plan.segments.empty()) steps_->push_back({EncodeStepPlan(plan).size(), planning.count()});
    auto result = executor_->Run(plan);
    end_ = Clock::now();
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const std::unique_ptr<StepExecutor> executor_;
  std::vector<PlannedStep>* const steps_;
  Clock::time_point end_ = Clock::now();
};

struct Kind {
  const char* name;
  nlohmann::json config;
};

nlohmann::json Config(const char* architecture, const char* model_type, int num_layers,
                      const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json config = {{"architectures", {architecture}},
                           {"model_type", model_type},
                           {"num_hidden_layers", num_layers},
                           {"hidden_size", 16},
                           {"intermediate_size", 32},
                           {"num_attention_heads", 1},
                           {"num_key_value_heads", 1},
                           {"head_dim", 16},
                           {"vocab_size", kVocab},
                           {"max_position_embeddings", kPromptTokens + kNewTokens},
                           {"rms_norm_eps", 1e-5}};
  config.update(more);
  return config;
}

std::vector<Kind> Kinds() {
  return {
      {"all tokens", Config("LlamaForCausalLM", "llama", 1)},
      {"window", Config("MistralForCausalLM", "mistral", 2, {{"sliding_window", 4096}})},
      {"window and all tokens", Config("Gemma3ForCausalLM", "gemma3_text", 3,
                                       {{"sliding_window", 512}, {"sliding_window_pattern", 3}})},
      {"latent", Config("DeepseekV2ForCausalLM", "deepseek_v2", 1,
                        {{"kv_lora_rank", 16},
                         {"q_lora_rank", nullptr},
                         {"qk_nope_head_dim", 16},
                         {"qk_rope_head_dim", 16},
                         {"v_head_dim", 16},
                         {"n_routed_experts", nullptr}})},
      {"experts",
       Config("MixtralForCausalLM", "mixtral", 1,
              {{"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"sliding_window", nullptr}})},
  };
}

// A pool for one sequence of all the test's tokens; the last one needs no place.
KvBooks::Options PoolFor(const ModelConfig& config) {
  KvBooks::Options pool = {.block_tokens = kBlockTokens,
                           .max_step_tokens = kStepTokens,
                           .groups = MakeKvTables(config).groups};
  pool.num_blocks =
      static_cast<int32_t>(MostBlocksOfSequence(pool, kPromptTokens + kNewTokens - 1));
  return pool;
}

struct LongRun {
  ModelConfig config;
  RunResult result;
  std::vector<PlannedStep> steps;
};

// In a pool of exactly the blocks that were computed for the long prompt.
LongRun RunLong(const std::string& folder, int prompt_tokens) {
  LongRun run;
  const auto checkpoint = Checkpoint::Open(folder + "/config.json");
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  run.config = *LoadModelConfig(**checkpoint);
  RunnerOptions options = {.num_threads = 2,
                           .block_tokens = kBlockTokens,
                           .max_step_tokens = kStepTokens,
                           .max_running = 1};
  options.pool_blocks = PoolFor(run.config).num_blocks;
  options.wrap = [&run](std::unique_ptr<StepExecutor> executor) {
    return std::make_unique<Recorder>(std::move(executor), &run.steps);
  };
  auto runner = ModelRunner::Start(folder, options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  if (!runner.ok()) return run;
  RunRequest request;
  request.capture = false;
  request.max_tokens = kNewTokens;
  for (int i = 0; i < prompt_tokens; ++i) request.prompt.push_back(i * 7 % kVocab);
  run.result = (*runner)->Run(request);
  return run;
}

double MedianPlanning(const std::vector<PlannedStep>& steps) {
  std::vector<double> seconds;
  for (const PlannedStep& step : steps) seconds.push_back(step.seconds);
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

size_t MostBytes(const std::vector<PlannedStep>& steps) {
  size_t most = 0;
  for (const PlannedStep& step : steps) most = std::max(most, step.plan_bytes);
  return most;
}

TEST(LongContextTest, MemoryIsAsComputedAndPlansDoNotGrow) {
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.name);
    TemporaryFolder folder;
    WriteRandomModel(kind.config, &folder);
    const LongRun shorter = RunLong(folder.path(), kStepTokens);
    const LongRun run = RunLong(folder.path(), kPromptTokens);
    ASSERT_TRUE(run.result.error.ok()) << run.result.error;
    ASSERT_EQ(run.result.tokens.size(), static_cast<size_t>(kNewTokens));
    KvBooks::Options pool = PoolFor(run.config);
    EXPECT_GE(MaxTokensInPool(pool), kPromptTokens + kNewTokens - 1);
    --pool.num_blocks;
    EXPECT_LT(MaxTokensInPool(pool), kPromptTokens + kNewTokens - 1);

    // The prompt travels with the first plan, and with no other.
    constexpr size_t kPrefillSteps = kPromptTokens / kStepTokens, kPart = 16;
    ASSERT_EQ(run.steps.size(), kPrefillSteps + kNewTokens - 1);
    const auto part = [&](size_t first, size_t count) {
      return std::vector<PlannedStep>(run.steps.begin() + first, run.steps.begin() + first + count);
    };
    const auto early = part(1, kPart), late = part(kPrefillSteps - kPart, kPart);
    const auto decode = part(kPrefillSteps, kNewTokens - 1);
    const std::vector<PlannedStep> short_decode(shorter.steps.end() - (kNewTokens - 1),
                                                shorter.steps.end());
    // Larger numbers of blocks may take a byte more each, and so may that of the step.
    const auto num_tables = static_cast<size_t>(MakeKvTables(run.config).num_tables());
    EXPECT_LE(MostBytes(late), MostBytes(early) + 1 + num_tables * kStepTokens / kBlockTokens);
    EXPECT_LE(MostBytes(decode), MostBytes(short_decode) + 1 + num_tables);

    const double seconds = MedianPlanning(decode), few = MedianPlanning(short_decode);
    std::printf(
        "%s: plans of prefill %zu and %zu bytes, of decode %zu and %zu, planning %.1f us "
        "after %d tokens, %.1f us after %d\n",
        kind.name, MostBytes(early), MostBytes(late), MostBytes(short_decode), MostBytes(decode),
        few * 1e6, kStepTokens, seconds * 1e6, kPromptTokens);
    // Were it proportional to the context, it would be 128 times as long.
    EXPECT_LT(seconds, 8 * few + 1e-3);
  }
}

// What a pool takes is what the config says a sequence needs, where no dimension is padded.
TEST(LongContextTest, AModelWithoutWindowsTakesTheBytesItsConfigStates) {
  for (const Kind& kind : Kinds()) {
    if (kind.config.contains("sliding_window") && !kind.config["sliding_window"].is_null())
      continue;
    TemporaryFolder folder;
    WriteRandomModel(kind.config, &folder);
    const auto checkpoint = Checkpoint::Open(folder.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const ModelConfig config = *LoadModelConfig(**checkpoint);
    const auto plan = MakeShardPlan(config, 1);
    ASSERT_TRUE(plan.ok()) << plan.status();
    static_assert((kPromptTokens + kNewTokens - 1) % kBlockTokens == 0);
    const int64_t bytes = PoolFor(config).num_blocks *
                          KvBytesPerBlock(config, plan->ranks[0], DType::kF16, kBlockTokens);
    EXPECT_EQ(bytes, 2 * CachedValues(config, kPromptTokens + kNewTokens - 1)) << kind.name;
  }
}

}  // namespace
}  // namespace cairn
