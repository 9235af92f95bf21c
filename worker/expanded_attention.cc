#include "worker/expanded_attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/log.h"
#include "kernels/cpu_kernels.h"
#include "kernels/dequantise.h"
#include "kernels/matmul.h"

namespace cairn {
namespace {

constexpr int64_t kMostPoolBytes = int64_t{64} << 20;  // unless one head alone needs more
constexpr const char* kWhat = "expanded keys and values";
constexpr int kMaxDim = 1 << 14;  // 64 KiB of stack

int64_t LeastRows(const MlaConfig& mla) {
  const int64_t absorbed = 2 * int64_t{mla.latent_dim} + mla.rope_dim;
  const int64_t expanded = int64_t{mla.query_dim()} + mla.value_dim;
  // Values may not be wider than keys: attention has one width for both.
  if (absorbed <= expanded || mla.value_dim > mla.query_dim())
    return std::numeric_limits<int64_t>::max();
  const int64_t making = int64_t{mla.latent_dim} * (mla.nope_dim + mla.value_dim);
  return making / (absorbed - expanded) + 1;
}

const std::byte* LatentOf(const KvLayer& latents, const AttentionSequence& sequence,
                          int32_t token) {
  return latents.keys(0, sequence.block_table[token / latents.block_tokens]) +
         int64_t{token % latents.block_tokens} * latents.head_dim * Info(latents.dtype).block_bytes;
}

}  // namespace

ExpandedAttention::ExpandedAttention(const ModelConfig& config, const RankShard& shard,
                                     const Options& options)
    : mla_(config.mla),
      num_heads_(static_cast<int>(shard.query_heads.size())),
      options_(options),
      min_rows_(LeastRows(config.mla)),
      key_columns_(PaddedColumns(config.mla.nope_dim)),
      head_columns_(key_columns_ + PaddedColumns(config.mla.value_dim)) {
  CHECK(mla_.latent_dim <= kMaxDim && mla_.query_dim() <= kMaxDim && mla_.value_dim <= kMaxDim);
}

absl::Status ExpandedAttention::Allocate() {
  if (min_rows_ > options_.max_rows) return absl::OkStatus();
  const int64_t num_blocks = (options_.max_context + kAttentionTile - 1) / kAttentionTile;
  kv_ = {.dtype = options_.kv_dtype,
         .block_tokens = kAttentionTile,
         .head_dim = PaddedDim(mla_.query_dim())};
  kv_.block_stride = kv_.block_bytes();
  kv_.head_stride = kv_.block_stride * num_blocks;
  for (int heads = 1; heads <= num_heads_; ++heads)
    if (num_heads_ % heads == 0 && heads * kv_.head_stride <= kMostPoolBytes)
      heads_at_once_ = heads;
  kv_.num_kv_heads = heads_at_once_;
  columns_ = heads_at_once_ * head_columns_;
  ASSIGN_OR_RETURN(pool_, HostBuffer::Allocate(heads_at_once_ * kv_.head_stride, kWhat));
  ASSIGN_OR_RETURN(
      expanded_,
      HostBuffer::Allocate(kAttentionTile * columns_ * static_cast<int64_t>(sizeof(float)), kWhat));
  RETURN_IF_ERROR(latents_.Allocate(kAttentionTile, mla_.latent_dim, options_.activations, kWhat));
  kv_.base = pool_.data();
  block_table_.resize(num_blocks);
  std::iota(block_table_.begin(), block_table_.end(), 0);
  scratch_ = AttentionScratch::Create({.num_threads = options_.num_threads,
                                       .max_rows = options_.max_rows,
                                       .max_sequences = 1,
                                       .max_context = options_.max_context,
                                       .num_heads = heads_at_once_,
                                       .num_kv_heads = heads_at_once_,
                                       .head_dim = mla_.query_dim(),
                                       .value_dim = mla_.value_dim});
  return absl::OkStatus();
}

std::vector<AttentionSequence> ExpandedAttention::Plan(
    std::span<const AttentionSequence> sequences) {
  sequences_.clear();
  std::vector<AttentionSequence> others;
  for (const AttentionSequence& sequence : sequences) {
    if (sequence.num_rows < min_rows_) {
      others.push_back(sequence);
      continue;
    }
    AttentionSequence expanded = sequence;
    expanded.block_table = block_table_.data();
    sequences_.push_back({.in_pool = sequence, .expanded = expanded, .plan = {}});
  }
  for (Sequence& sequence : sequences_)  // they no longer move
    sequence.plan = PlanAttention({&sequence.expanded, 1}, kAttentionTile, heads_at_once_,
                                  options_.num_threads);
  return others;
}

void ExpandedAttention::Attend(const Context& context, const ThreadLayer& weights,
                               const Args& args) {
  for (const Sequence& sequence : sequences_) {
    for (int head = 0; head < num_heads_; head += heads_at_once_) {
      Expand(context, weights, args, sequence.in_pool, head);
      PagedAttention(context,
                     {.kv = kv_,
                      .queries = args.queries + int64_t{head} * mla_.query_dim(),
                      .query_stride = args.query_stride,
                      .num_heads = heads_at_once_,
                      .head_dim = mla_.query_dim(),
                      .value_dim = mla_.value_dim,
                      .plan = &sequence.plan,
                      .out = args.out.From(0, head * BlocksFor(mla_.value_dim))},
                     *scratch_);
      context.Sync();
    }
  }
}

void ExpandedAttention::Expand(const Context& context, const ThreadLayer& weights, const Args& args,
                               const AttentionSequence& sequence, int first_head) {
  const ActivationFormat formats[] = {FormatFor(weights.key_expand[first_head].dtype),
                                      FormatFor(weights.value_up[first_head].dtype)};
  const int32_t end = sequence.first_position + sequence.num_rows;
  for (int32_t token = 0; token < end; token += kAttentionTile) {
    const int32_t count = std::min(kAttentionTile, end - token);
    ReadLatents(context, args.latents, sequence, token, count,
                std::span(formats, formats[0] == formats[1] ? 1 : 2));
    context.Sync();
    for (int h = 0; h < heads_at_once_; ++h) {
      float* columns = expanded_.as<float>() + h * head_columns_;
      Product(context, weights.key_expand[first_head + h], latents_.rows().As(formats[0]), count,
              columns, columns_);
      Product(context, weights.value_up[first_head + h], latents_.rows().As(formats[1]), count,
              columns + key_columns_, columns_);
    }
    context.Sync();
    Store(context, args.latents, sequence, token, count);
  }
  context.Sync();
}

void ExpandedAttention::ReadLatents(const Context& context, const KvLayer& latents,
                                    const AttentionSequence& sequence, int32_t first_token,
                                    int32_t num_tokens, std::span<const ActivationFormat> formats) {
  float values[kMaxDim];
  const Range mine = context.Share(num_tokens);
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    const auto token = static_cast<int32_t>(first_token + t);
    DequantiseRow(latents.dtype, LatentOf(latents, sequence, token), mla_.latent_dim, values);
    for (const ActivationFormat format : formats)
      StoreActivations(context.cpu(), values, mla_.latent_dim,
                       latents_.rows().As(format).Slot(t, 0));
  }
}

// A key is what was expanded of it, then the part that turns, which the pool has for all heads.
void ExpandedAttention::Store(const Context& context, const KvLayer& latents,
                              const AttentionSequence& sequence, int32_t first_token,
                              int32_t num_tokens) {
  const int64_t bytes = Info(kv_.dtype).block_bytes;
  const int32_t block = first_token / kAttentionTile;
  alignas(64) std::byte key[kMaxDim * sizeof(float)];
  const Range units = context.Share(int64_t{num_tokens} * heads_at_once_);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const auto t = static_cast<int32_t>(unit % num_tokens);
    const auto head = static_cast<int>(unit / num_tokens);
    const float* columns = expanded_.as<float>() + t * columns_ + head * head_columns_;
    context.cpu().round_to(kv_.dtype, columns, mla_.nope_dim, key);
    std::memcpy(key + mla_.nope_dim * bytes,
                LatentOf(latents, sequence, first_token + t) + mla_.latent_dim * bytes,
                mla_.rope_dim * bytes);
    std::byte* to = kv_.keys(head, block) + t * bytes;
    for (int d = 0; d < mla_.query_dim(); ++d, to += kAttentionTile * bytes)
      std::memcpy(to, key + d * bytes, bytes);
    context.cpu().round_to(kv_.dtype, columns + key_columns_, mla_.value_dim,
                           kv_.values(head, block) + int64_t{t} * kv_.head_dim * bytes);
  }
}

}  // namespace cairn
