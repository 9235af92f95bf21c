#include "cli/offline_engine.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/bounded_queue.h"
#include "base/cpu_quota.h"
#include "base/log.h"
#include "kvstore/key.h"
#include "worker/rank.h"

namespace cairn {
namespace {

constexpr int32_t kDefaultStepTokens = 512;

absl::StatusOr<ResolvedRankOptions> Resolve(const Checkpoint& checkpoint, const ModelConfig& config,
                                            const EngineFlags& flags, const OfflineNeeds& needs) {
  RankOptions options;
  options.size = flags.tp;
  options.num_threads =
      flags.threads > 0 ? flags.threads : ReadCpuLimits().ThreadsPerRank(flags.tp);
  ASSIGN_OR_RETURN(options.isa, ChooseIsa(flags.isa));
  options.numerics.exact = flags.numerics == "exact";
  options.numerics.activations = flags.activations;
  options.numerics.kv_dtype = flags.kv_dtype;
  options.block_tokens = flags.block_tokens;
  options.max_step_tokens = flags.chunk > 0 ? flags.chunk : kDefaultStepTokens;
  options.max_running = needs.max_running;
  options.context_length = flags.context_tokens;
  options.num_token_ids = needs.num_token_ids;
  options.num_blocks = 1;
  ASSIGN_OR_RETURN(ResolvedRankOptions resolved, ResolveRankOptions(checkpoint, config, options));
  if (flags.kv_memory_bytes > 0) {
    options.num_blocks = static_cast<int32_t>(std::min<int64_t>(
        flags.kv_memory_bytes / resolved.kv_bytes_per_block, std::numeric_limits<int32_t>::max()));
  } else {
    const int64_t tokens = needs.tokens_per_sequence > 0 ? std::min(needs.tokens_per_sequence,
                                                                    resolved.options.context_length)
                                                         : resolved.options.context_length;
    const int64_t blocks = MostBlocksOfSequence({.block_tokens = flags.block_tokens,
                                                 .max_step_tokens = options.max_step_tokens,
                                                 .groups = resolved.kv_groups},
                                                tokens + flags.block_tokens);
    options.num_blocks = static_cast<int32_t>(
        std::min<int64_t>(blocks * needs.max_running, std::numeric_limits<int32_t>::max()));
  }
  return ResolveRankOptions(checkpoint, config, options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OfflineEngine>> OfflineEngine::Open(const std::string& model) {
  std::unique_ptr<OfflineEngine> offline(new OfflineEngine);
  ASSIGN_OR_RETURN(offline->checkpoint_, Checkpoint::Open(model));
  ASSIGN_OR_RETURN(offline->config_, LoadModelConfig(*offline->checkpoint_));
  return offline;
}

absl::Status OfflineEngine::StartEngine(const EngineFlags& flags, const OfflineNeeds& needs) {
  ASSIGN_OR_RETURN(const ResolvedRankOptions resolved,
                   Resolve(*checkpoint_, config_, flags, needs));
  ASSIGN_OR_RETURN(
      std::unique_ptr<LocalGroup> group,
      LocalGroup::Start(*checkpoint_, config_, resolved, FollowerPlace::kProcesses, nullptr));
  weight_bytes_ = group->leader().weight_bytes() * resolved.options.size;
  num_threads_ = resolved.options.num_threads * resolved.options.size;
  for (const KvGroup& table_group : resolved.kv_groups)
    kv_bytes_per_token_ +=
        table_group.num_tables * resolved.kv_bytes_per_block / resolved.options.block_tokens;
  Rank* leader = &group->leader();
  // The pool lives and dies with this process, so its keys need no fingerprint of the weights.
  const BlockKey root = IdentityRoot(KvIdentity{.block_tokens = resolved.options.block_tokens});
  ASSIGN_OR_RETURN(engine_,
                   Engine::Start({.scheduler = {.num_blocks = resolved.options.num_blocks,
                                                .block_tokens = resolved.options.block_tokens,
                                                .groups = resolved.kv_groups,
                                                .max_running = resolved.options.max_running,
                                                .max_step_tokens = resolved.options.max_step_tokens,
                                                .max_waiting = 1 << 16,
                                                .context_length = resolved.options.context_length,
                                                .vocab_size = config_.vocab_size,
                                                .prefix_cache = needs.prefix_cache,
                                                .identity_root = std::string(AsBytes(root))},
                                  .idle_steps = resolved.options.size > 1},
                                 std::move(group), [](const absl::Status&) {}));
  Engine* engine = engine_.get();
  leader->SetLogitsCapture([engine](int32_t slot, int32_t position, std::span<const float> logits) {
    engine->OnLogits(slot, position, logits);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<TokenEvent>>> OfflineEngine::RunAll(
    std::vector<GenerateRequest> requests,
    const std::function<bool(size_t index, const TokenEvent&)>& on_event) {
  struct Item {
    size_t index;
    TokenEvent event;
  };
  constexpr size_t kMaxQueuedEvents = size_t{1} << 20;
  // Outlives this call, should it return early while requests still run.
  auto queue = std::make_shared<BoundedQueue<Item>>(kMaxQueuedEvents);
  std::vector<Engine::Handle> handles;
  const auto cancel_all = [&] {
    for (const Engine::Handle handle : handles) engine_->Cancel(handle);
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    absl::StatusOr<Engine::Handle> handle =
        engine_->Submit(std::move(requests[i]), [queue, i](const TokenEvent& event) {
          if (!queue->TryPush({i, event})) LOG(FATAL) << "offline event queue is full";
        });
    if (!handle.ok()) {
      cancel_all();
      return handle.status();
    }
    handles.push_back(*handle);
  }
  std::vector<std::vector<TokenEvent>> results(requests.size());
  for (size_t running = requests.size(); running > 0;) {
    std::optional<Item> item = queue->Pop(absl::InfiniteDuration());
    if (!item) continue;
    if (item->event.finish_reason == FinishReason::kError) {
      cancel_all();
      return item->event.error;
    }
    if (item->event.finish_reason != FinishReason::kNone) --running;
    if (on_event != nullptr && !on_event(item->index, item->event))
      engine_->Cancel(handles[item->index]);
    results[item->index].push_back(std::move(item->event));
  }
  return results;
}

}  // namespace cairn
