#include "tests/worker/model_runner.h"

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/bounded_queue.h"
#include "base/log.h"
#include "base/sha256.h"
#include "kvstore/key.h"
#include "worker/kv_tables.h"
#include "worker/local_group.h"

namespace cairn::testing {

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Start(const std::string& path,
                                                                const RunnerOptions& options) {
  auto runner = std::make_unique<ModelRunner>();
  ASSIGN_OR_RETURN(runner->checkpoint_, Checkpoint::Open(path));
  ASSIGN_OR_RETURN(runner->config_, LoadModelConfig(*runner->checkpoint_));
  RankOptions rank;
  rank.size = options.size;
  rank.num_threads = options.num_threads;
  rank.isa = options.isa;
  rank.numerics = options.numerics;
  rank.block_tokens = options.block_tokens;
  rank.num_blocks = options.pool_blocks > 0
                        ? options.pool_blocks
                        : options.num_blocks * MakeKvTables(runner->config_).num_tables();
  rank.max_step_tokens = options.max_step_tokens;
  rank.max_running = options.max_running;
  ASSIGN_OR_RETURN(const ResolvedRankOptions resolved,
                   ResolveRankOptions(*runner->checkpoint_, runner->config_, rank));
  ASSIGN_OR_RETURN(std::unique_ptr<LocalGroup> group,
                   LocalGroup::Start(*runner->checkpoint_, runner->config_, resolved,
                                     FollowerPlace::kThreads, nullptr));
  Rank* leader = &group->leader();
  std::unique_ptr<StepExecutor> executor = std::move(group);
  if (options.wrap) executor = options.wrap(std::move(executor));
  const BlockKey root = IdentityRoot(KvIdentity{.block_tokens = options.block_tokens});
  ASSIGN_OR_RETURN(runner->engine_,
                   Engine::Start({.scheduler = {.num_blocks = rank.num_blocks,
                                                .block_tokens = options.block_tokens,
                                                .groups = resolved.kv_groups,
                                                .max_running = options.max_running,
                                                .max_step_tokens = options.max_step_tokens,
                                                .context_length = resolved.options.context_length,
                                                .vocab_size = runner->config_.vocab_size,
                                                .prefix_cache = options.prefix_cache,
                                                .identity_root = std::string(AsBytes(root))},
                                  .idle_steps = options.size > 1},
                                 std::move(executor), [](const absl::Status&) {}));
  Engine* engine = runner->engine_.get();
  leader->SetLogitsCapture([engine](int32_t slot, int32_t position, std::span<const float> logits) {
    engine->OnLogits(slot, position, logits);
  });
  return runner;
}

std::vector<RunResult> ModelRunner::Run(const std::vector<RunRequest>& requests) {
  using Item = std::pair<size_t, TokenEvent>;
  BoundedQueue<Item> queue(1 << 20);
  std::vector<RunResult> results(requests.size());
  size_t running = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    GenerateRequest request;
    request.id = "test";
    request.prompt = requests[i].prompt;
    request.sampling = requests[i].sampling;
    request.max_tokens = requests[i].max_tokens;
    request.cache_salt = requests[i].cache_salt;
    if (requests[i].capture)
      request.capture_logits = [result = &results[i], keep = requests[i].keep_logits](
                                   int32_t position, std::span<const float> logits) {
        result->digests[position] = ToHex(HashSha256(std::as_bytes(logits)));
        if (keep) result->logits[position].assign(logits.begin(), logits.end());
      };
    const absl::StatusOr<Engine::Handle> handle =
        engine_->Submit(std::move(request), [&queue, i](const TokenEvent& event) {
          CHECK(queue.TryPush({i, event}));
        });
    if (handle.ok())
      ++running;
    else
      results[i].error = handle.status();
  }
  while (running > 0) {
    const std::optional<Item> item = queue.Pop(absl::Minutes(5));
    CHECK(item.has_value()) << "no event for five minutes";
    RunResult& result = results[item->first];
    const TokenEvent& event = item->second;
    if (event.has_token) result.tokens.push_back(event.token.token);
    if (event.finish_reason == FinishReason::kNone) continue;
    result.finish_reason = event.finish_reason;
    result.error = event.error;
    result.usage = event.usage;
    --running;
  }
  return results;
}

namespace {

template <typename T>
std::vector<T> Values(const Checkpoint& golden, const std::string& name) {
  const Tensor* tensor = golden.Find(name);
  CHECK(tensor != nullptr) << name;
  CHECK_EQ(static_cast<int64_t>(tensor->data.size()),
           tensor->num_elements * static_cast<int64_t>(sizeof(T)));
  std::vector<T> out(tensor->num_elements);
  std::memcpy(out.data(), tensor->data.data(), tensor->data.size());
  return out;
}

}  // namespace

std::vector<int32_t> GoldenInts(const Checkpoint& golden, const std::string& name) {
  return Values<int32_t>(golden, name);
}
std::vector<float> GoldenFloats(const Checkpoint& golden, const std::string& name) {
  return Values<float>(golden, name);
}

}  // namespace cairn::testing
