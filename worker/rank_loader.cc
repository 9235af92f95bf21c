#include "worker/rank_loader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/cpu_quota.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "kvstore/key.h"
#include "model/fingerprint.h"
#include "worker/identity.h"

namespace cairn {
namespace {

RankOptions MakeOptions(const AssignMessage& assignment, const RankLoaderOptions& loader,
                        const Tokenizer& tokenizer) {
  const EngineSettings& settings = assignment.settings;
  RankOptions options;
  options.rank = assignment.rank;
  options.size = assignment.size;
  options.isa = loader.isa;
  options.numerics.exact = settings.exact;
  options.numerics.activations = settings.activations;
  options.numerics.kv_dtype = settings.kv_dtype;
  options.block_tokens = settings.block_tokens;
  options.max_step_tokens = settings.max_step_tokens;
  options.max_running = settings.max_running;
  options.context_length = settings.context_tokens;
  options.num_token_ids = tokenizer.vocab_size();
  options.num_blocks = 1;  // until the size of a block is known
  const int local_ranks = loader.local_ranks > 0 ? loader.local_ranks : assignment.ranks_on_host;
  const CpuLimits limits = ReadCpuLimits();
  options.num_threads = loader.threads > 0 ? loader.threads : limits.ThreadsPerRank(local_ranks);
  LOG(INFO) << "rank.threads threads=" << options.num_threads << " local_ranks=" << local_ranks
            << " " << limits.ToString();
  return options;
}

// Blocks of the pool: what the memory holds, but never more than all sequences could fill.
absl::StatusOr<int32_t> NumBlocks(const AssignMessage& assignment, const ModelConfig& config,
                                  const ResolvedRankOptions& resolved) {
  const EngineSettings& settings = assignment.settings;
  const int64_t context =
      settings.context_tokens > 0 ? settings.context_tokens : config.context_length;
  const int64_t per_sequence = MostBlocksOfSequence({.block_tokens = settings.block_tokens,
                                                     .max_step_tokens = settings.max_step_tokens,
                                                     .groups = resolved.kv_groups},
                                                    context + settings.block_tokens);
  const int64_t wanted = per_sequence * settings.max_running;
  const int64_t fitting =
      settings.kv_memory_bytes / std::max<int64_t>(resolved.kv_bytes_per_block, 1);
  int64_t num_tables = 0;
  for (const KvGroup& group : resolved.kv_groups) num_tables += group.num_tables;
  if (fitting < 2 * num_tables) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "kv-memory too small: %d bytes, the KV of %d tokens has %d", settings.kv_memory_bytes,
        settings.block_tokens, resolved.kv_bytes_per_block * num_tables));
  }
  return static_cast<int32_t>(std::min<int64_t>({wanted, fitting, int64_t{1} << 30}));
}

// What can never be there is refused now, and not by the kernel in the middle of a request. Other
// processes need memory too: what passes may still be too much.
absl::Status CheckMemory(int64_t pool_bytes, int64_t weight_bytes) {
  const MemoryLimit limit = ReadMemoryLimit();
  if (pool_bytes <= limit.bytes && weight_bytes <= limit.bytes - pool_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "memory is short: a block pool of %d bytes and weights of %d, limit %d (%s): give less "
      "--kv-memory, or more ranks",
      pool_bytes, weight_bytes, limit.bytes, limit.file));
}

absl::StatusOr<LoadedRank> Load(const Checkpoint& checkpoint, const ModelConfig& config,
                                const Tokenizer& tokenizer, const RankLoaderOptions& loader,
                                const AssignMessage& assignment,
                                std::function<void(const Rank::LoadProgress&)> on_progress) {
  ASSIGN_OR_RETURN(
      ResolvedRankOptions resolved,
      ResolveRankOptions(checkpoint, config, MakeOptions(assignment, loader, tokenizer)));
  ASSIGN_OR_RETURN(resolved.options.num_blocks, NumBlocks(assignment, config, resolved));
  const int64_t pool_bytes = resolved.options.num_blocks * resolved.kv_bytes_per_block;
  RETURN_IF_ERROR(CheckMemory(pool_bytes, 0));
  LoadedRank loaded;
  ASSIGN_OR_RETURN(loaded.rank, Rank::Load(checkpoint, config, resolved, std::move(on_progress)));
  RETURN_IF_ERROR(CheckMemory(pool_bytes, loaded.rank->weight_bytes()));

  const Sha256Digest weights = loader.cache_directory.empty()
                                   ? WeightsFingerprint(checkpoint)
                                   : CachedWeightsFingerprint(checkpoint, loader.cache_directory);
  const BlockKey root = IdentityRoot(ModelIdentity(config, resolved, std::string(AsBytes(weights)),
                                                   TokenizerFingerprint(tokenizer)));
  loaded.identity = std::string(AsBytes(root));

  const EngineSettings& settings = assignment.settings;
  SchedulerOptions& scheduler = loaded.scheduler;
  scheduler.num_blocks = resolved.options.num_blocks;
  scheduler.block_tokens = settings.block_tokens;
  scheduler.groups = resolved.kv_groups;
  scheduler.max_running = settings.max_running;
  scheduler.max_step_tokens = settings.max_step_tokens;
  scheduler.max_waiting = settings.max_waiting;
  scheduler.context_length =
      settings.context_tokens > 0 ? settings.context_tokens : config.context_length;
  scheduler.vocab_size = config.vocab_size;
  scheduler.prefix_cache = settings.prefix_cache;
  scheduler.identity_root = loaded.identity;
  loaded.max_message_bytes = resolved.max_message_bytes;
  loaded.num_threads = resolved.options.num_threads;
  loaded.kv_bytes = pool_bytes;
  loaded.max_request_tokens = static_cast<int32_t>(
      std::min<int64_t>(scheduler.context_length, MaxTokensInPool(PoolOptions(scheduler))));
  LOG(INFO) << "rank.loaded rank=" << assignment.rank << " size=" << assignment.size
            << " weight_bytes=" << loaded.rank->weight_bytes()
            << " read_bytes=" << loaded.rank->read_bytes() << " blocks=" << scheduler.num_blocks
            << " kv_bytes_per_block=" << resolved.kv_bytes_per_block
            << " largest_request_tokens=" << loaded.max_request_tokens;
  return loaded;
}

}  // namespace

RankLoader NewRankLoader(const Checkpoint* checkpoint, const ModelConfig* config,
                         const Tokenizer* tokenizer, const RankLoaderOptions& options) {
  return [=](const AssignMessage& assignment,
             std::function<void(const Rank::LoadProgress&)> on_progress) {
    return Load(*checkpoint, *config, *tokenizer, options, assignment, std::move(on_progress));
  };
}

}  // namespace cairn
