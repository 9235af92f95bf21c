#include "worker/latent_attention.h"

#include "kernels/cpu_kernels.h"
#include "kernels/latent.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"

namespace cairn {
LatentAttention::LatentAttention(const ModelConfig& config, const RankShard& shard,
                                 ActivationFormat activations)
    : mla_(config.mla),
      num_heads_(static_cast<int>(shard.query_heads.size())),
      scale_(static_cast<float>(config.attention_scale)),
      norm_eps_(static_cast<float>(config.norm_eps)),
      activations_(activations) {}

absl::Status LatentAttention::Allocate(int64_t max_rows) {
  query_stride_ = PaddedColumns(int64_t{num_heads_} * mla_.query_dim());
  absorbed_stride_ = PaddedColumns(int64_t{num_heads_} * mla_.cached_dim());
  value_columns_ = PaddedColumns(mla_.value_dim);
  values_stride_ = num_heads_ * value_columns_;
  const bool query_latent = mla_.query_latent_dim > 0;
  const int64_t nope_blocks = BlocksFor(mla_.nope_dim) * num_heads_;
  const int64_t attended_blocks = BlocksFor(mla_.latent_dim) * num_heads_;
  constexpr int64_t kFloatBytes = sizeof(float);
  const auto f32_bytes = [](int64_t blocks) {
    return Activations::RowBytes(ActivationFormat::kF32, blocks);
  };
  const struct {
    HostBuffer* buffer;
    int64_t row_bytes;
  } wanted[] = {
      {&queries_, query_latent ? query_stride_ * kFloatBytes : 0},
      {&nope_, f32_bytes(nope_blocks)},
      {&absorbed_, absorbed_stride_ * kFloatBytes},
      {&attended_, f32_bytes(attended_blocks)},
      {&values_, values_stride_ * kFloatBytes},
  };
  for (const auto& [buffer, row_bytes] : wanted) {
    ASSIGN_OR_RETURN(*buffer, HostBuffer::Allocate(max_rows * row_bytes, "activations"));
  }
  return query_latents_.Allocate(max_rows, mla_.query_latent_dim, activations_, "activations");
}

void LatentAttention::ExpandQueries(const Context& context, const ThreadLayer& weights,
                                    const LayerVectors& vectors, const Rows& rows) {
  RmsNorm(context,
          {.x = rows.projected,
           .x_stride = rows.stride,
           .weight = vectors.query_latent_norm.data(),
           .dim = mla_.query_latent_dim,
           .eps = norm_eps_,
           .out_f32 = query_latents_.rows().f32,
           .out_quantised = query_latents_.rows().quantised},
          context.Share(rows.num_rows));
  context.Sync();
  Product(context, weights.query_up, query_latents_.rows().As(FormatFor(weights.query_up.dtype)),
          rows.num_rows, queries_.as<float>(), query_stride_);
  context.Sync();
}

void LatentAttention::Prepare(const Context& context, const ThreadLayer& weights,
                              const LayerVectors& vectors, const KvLayer& kv, const Rows& rows) {
  const bool query_latent = mla_.query_latent_dim > 0;
  if (query_latent) ExpandQueries(context, weights, vectors, rows);
  const int64_t first_latent =
      query_latent ? mla_.query_latent_dim : int64_t{num_heads_} * mla_.query_dim();
  LatentAppend(context, {.kv = kv,
                         .latents = rows.projected + first_latent,
                         .stride = rows.stride,
                         .latent_dim = mla_.latent_dim,
                         .rope_dim = mla_.rope_dim,
                         .norm = vectors.latent_norm.data(),
                         .norm_eps = norm_eps_,
                         .pairs = rows.pairs,
                         .angles = rows.angles,
                         .positions = rows.positions,
                         .blocks = rows.blocks,
                         .num_rows = rows.num_rows});
  LatentQueries(context, {.queries = query_latent ? queries_.as<float>() : rows.projected,
                          .query_stride = query_latent ? query_stride_ : rows.stride,
                          .num_heads = num_heads_,
                          .nope_dim = mla_.nope_dim,
                          .rope_dim = mla_.rope_dim,
                          .latent_dim = mla_.latent_dim,
                          .pairs = rows.pairs,
                          .scale = scale_,
                          .angles = rows.angles,
                          .nope = nope(weights),
                          .absorbed = absorbed_.as<float>(),
                          .absorbed_stride = absorbed_stride_,
                          .num_rows = rows.num_rows});
  context.Sync();
}

void LatentAttention::Absorb(const Context& context, const ThreadLayer& weights, int64_t num_rows) {
  const Activations rows = nope(weights);
  for (int head = 0; head < num_heads_; ++head)
    Product(context, weights.key_up[head], rows.From(0, head * BlocksFor(mla_.nope_dim)), num_rows,
            absorbed_.as<float>() + int64_t{head} * mla_.cached_dim(), absorbed_stride_);
  context.Sync();
}

Activations LatentAttention::nope(const ThreadLayer& weights) const {
  return {FormatFor(weights.key_up.front().dtype), nope_.data(),
          BlocksFor(mla_.nope_dim) * num_heads_};
}

Activations LatentAttention::attended(const ThreadLayer& weights) const {
  return {FormatFor(weights.value_up.front().dtype), attended_.data(),
          BlocksFor(mla_.latent_dim) * num_heads_};
}

void LatentAttention::ToValues(const Context& context, const ThreadLayer& weights, int64_t num_rows,
                               const Activations& out) {
  const Activations latents = attended(weights);
  for (int head = 0; head < num_heads_; ++head)
    Product(context, weights.value_up[head], latents.From(0, head * BlocksFor(mla_.latent_dim)),
            num_rows, values_.as<float>() + head * value_columns_, values_stride_);
  context.Sync();
  const Range units = context.Share(num_rows * num_heads_);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t row = unit / num_heads_, head = unit % num_heads_;
    StoreActivations(context.cpu(),
                     values_.as<float>() + row * values_stride_ + head * value_columns_,
                     mla_.value_dim, out.Slot(row, head * BlocksFor(mla_.value_dim)));
  }
  context.Sync();
}

}  // namespace cairn
