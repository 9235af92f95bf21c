#include "worker/decoder.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "base/memory.h"
#include "kernels/attention.h"
#include "kernels/gated_activation.h"
#include "kernels/matmul.h"
#include "kernels/rope.h"
#include "worker/expanded_attention.h"
#include "worker/feed_forward.h"
#include "worker/latent_attention.h"
#include "worker/normed.h"
#include "worker/rank_sums.h"
#include "worker/row_norms.h"
#include "worker/tensor_row.h"

namespace cairn {
namespace {

// Elements that a token leaves in the pool for each KV head as its key.
int CachedDim(const ModelConfig& config) {
  return config.attention == AttentionKind::kMla ? config.mla.cached_dim() : config.head_dim;
}
int PaddedCachedDim(const ModelConfig& config) { return PaddedDim(CachedDim(config)); }

// Of one head, as the output projection reads it.
int ValueDim(const ModelConfig& config) {
  return config.attention == AttentionKind::kMla ? config.mla.value_dim : config.head_dim;
}

RopePairs PairsOf(const RopeConfig& rope) {
  return rope.pairs == RotaryPairs::kInterleaved ? RopePairs::kInterleaved : RopePairs::kHalfSplit;
}

class DecoderImpl : public Decoder {
 public:
  DecoderImpl(const ModelConfig& config, const ShardPlan& plan, RankWeights weights,
              ThreadTeam& team, const DecoderOptions& options)
      : config_(config),
        plan_(plan),
        shard_(plan_.ranks[options.rank]),
        weights_(std::move(weights)),
        team_(team),
        options_(options),
        is_mla_(config.attention == AttentionKind::kMla),
        tables_(MakeKvTables(config)),
        sums_(plan_, options.rank, options.exact),
        head_sum_(plan_, &RankShard::query_heads, plan_.head_leaf_begin, plan_.head_group,
                  options.rank),
        ffn_sum_(plan_, &RankShard::ffn_leaves, plan_.ffn_leaf_begin, 1, options.rank),
        shared_sum_(plan_, &RankShard::shared_leaves, plan_.shared_leaf_begin, 1, options.rank),
        latent_(config_, shard_, options.activations),
        experts_(config_, plan_, options.rank, options.activations, sums_) {}

  absl::Status Allocate();

  void SetCollective(Collective* collective) override { sums_.SetCollective(collective); }
  absl::Status Forward(const DecoderBatch& batch) override;
  absl::Status ComputeLogits(std::span<const int32_t> rows, bool gather) override;
  float* logits(int64_t index) override { return logits_.as<float>() + index * logits_stride_; }
  Range own_vocabulary() const override {
    return {shard_.vocab_tiles.begin * kTileRows,
            std::min<int64_t>(shard_.vocab_tiles.end * kTileRows, config_.vocab_size)};
  }
  void CopyBlock(int32_t from, int32_t to) override;

 private:
  absl::Status AllocateActivations();
  void PlanAttentions(const DecoderBatch& batch);
  void ForwardOnThread(const Context& context, const DecoderBatch& batch);
  void Embed(const Context& context, const DecoderBatch& batch);
  const Normed& Normalise(const Context& context, const std::vector<float>& weight,
                          int64_t num_rows) {
    return norms_.Normalise(context, x_.as<float>(), dim_stride_, weight, nullptr, num_rows);
  }
  void QueryKeyValue(const Context& context, int layer, const Normed& normed, int64_t num_rows);
  void AppendKv(const Context& context, int layer, const DecoderBatch& batch);
  void Attend(const Context& context, int layer);
  void AttendLatent(const Context& context, int layer, const DecoderBatch& batch);
  void FeedForward(const Context& context, int layer, const Normed& normed, int64_t num_rows,
                   float* target);
  float* SumTarget(const Context& context, int64_t num_rows);
  void AddSum(const Context& context, const std::vector<float>& weight, int64_t num_rows);
  void CapLogits(const Context& context, const PackedMatrix& head, int64_t num_rows);
  void GatherLogits(const Context& context, int64_t num_rows);
  KvLayer Kv(int layer) const;
  Activations AttendedAs(DType next) const;

  ActivationFormat FormatFor(DType dtype) const {
    return ActivationFormatFor(dtype, options_.activations);
  }
  const Activations& Pick(const Normed& normed, DType dtype) const {
    return normed.As(FormatFor(dtype));
  }
  const int32_t* BlocksOf(const DecoderBatch& batch, int layer) const {
    return batch.tables[tables_.layers[layer].table].blocks.data();
  }
  const float* Angles(int layer) const {
    return angles_.as<float>() + angles_begin_[config_.layers[layer].rope];
  }

  const ModelConfig config_;
  const ShardPlan plan_;
  const RankShard shard_;
  const RankWeights weights_;
  ThreadTeam& team_;
  const DecoderOptions options_;
  const bool is_mla_;
  const KvTables tables_;
  RankSums sums_;
  RowNorms norms_;
  const RowCutSum head_sum_, ffn_sum_, shared_sum_;
  LatentAttention latent_;
  std::unique_ptr<ExpandedAttention> expanded_;  // of latent attention in fast numerics
  std::vector<AttentionSequence> absorbed_;      // of the step: what is not expanded
  ExpertNetwork experts_;
  GatedNetwork gated_network_;

  int64_t dim_stride_ = 0, qkv_stride_ = 0, logits_stride_ = 0;  // floats of a row
  HostBuffer pool_;
  int64_t pool_layer_bytes_ = 0;
  HostBuffer x_, sum_, qkv_, angles_, attended_, gated_, logits_;
  std::vector<int64_t> angles_begin_;           // [rope] in floats
  std::vector<AttentionPlan> attention_plans_;  // of the step, by table
  std::unique_ptr<AttentionScratch> attention_scratch_;
};

absl::Status DecoderImpl::Allocate() {
  attention_plans_.resize(tables_.num_tables());
  RETURN_IF_ERROR(AllocateActivations());
  RETURN_IF_ERROR(norms_.Allocate(options_.max_rows, config_.model_dim,
                                  static_cast<float>(config_.norm_eps), options_.activations,
                                  team_.num_threads()));
  const int threads = team_.num_threads();
  RETURN_IF_ERROR(sums_.Allocate(
      options_.max_rows, dim_stride_,
      std::max({head_sum_.tree.scratch_floats(), ffn_sum_.tree.scratch_floats(),
                shared_sum_.tree.scratch_floats(), experts_.sum().tree.scratch_floats()}),
      threads));
  RETURN_IF_ERROR(gated_network_.Allocate(
      options_.max_rows, std::max(shard_.ffn_blocks.size(), shard_.shared_blocks.size()), threads,
      config_.gate));
  if (is_mla_) RETURN_IF_ERROR(latent_.Allocate(options_.max_rows));
  if (is_mla_ && !options_.exact) {
    expanded_ = std::make_unique<ExpandedAttention>(
        config_, shard_,
        ExpandedAttention::Options{.activations = options_.activations,
                                   .kv_dtype = options_.kv_dtype,
                                   .max_rows = options_.max_rows,
                                   .max_context = options_.context_length,
                                   .num_threads = threads});
    RETURN_IF_ERROR(expanded_->Allocate());
  }
  if (config_.has_experts()) {
    RETURN_IF_ERROR(experts_.Allocate(options_.max_rows, dim_stride_, threads));
  }
  const int64_t pool_block_bytes =
      KvBytesPerBlock(config_, shard_, options_.kv_dtype, options_.block_tokens);
  pool_layer_bytes_ = pool_block_bytes / tables_.layers_per_block * options_.num_blocks;
  ASSIGN_OR_RETURN(pool_, HostBuffer::Allocate(pool_block_bytes * options_.num_blocks, "KV pool"));
  // Now rather than in the first requests: the kernel clears a page when it is first written.
  team_.Run([&](const Context& context) {
    const Range share = context.Share(pool_.size_bytes());
    std::memset(pool_.data() + share.begin, 0, static_cast<size_t>(share.size()));
  });
  attention_scratch_ =
      AttentionScratch::Create({.num_threads = threads,
                                .max_rows = options_.max_rows,
                                .max_sequences = options_.max_sequences,
                                .max_context = options_.context_length,
                                .num_heads = static_cast<int>(shard_.query_heads.size()),
                                .num_kv_heads = static_cast<int>(shard_.kv_heads.size()),
                                .head_dim = CachedDim(config_),
                                .group = shard_.largest_group(plan_.head_group),
                                .value_dim = is_mla_ ? config_.mla.latent_dim : config_.head_dim,
                                .layout = is_mla_ ? KvLayout::kLatent : KvLayout::kKeysAndValues});
  return absl::OkStatus();
}

absl::Status DecoderImpl::AllocateActivations() {
  const int64_t rows = options_.max_rows;
  const int64_t head_blocks = BlocksFor(ValueDim(config_)) * shard_.query_heads.size();
  const int64_t ffn_blocks = std::max(shard_.ffn_blocks.size(), shard_.shared_blocks.size());
  dim_stride_ = PaddedColumns(config_.model_dim);
  qkv_stride_ = PaddedColumns(QkvRows(config_, shard_));
  logits_stride_ = PaddedColumns(config_.vocab_size);
  int64_t angle_floats = 0;
  for (const RopeConfig& rope : config_.ropes) {
    angles_begin_.push_back(angle_floats);
    angle_floats += rows * rope.rotary_dim;
  }
  const auto floats = [](int64_t n) { return n * static_cast<int64_t>(sizeof(float)); };
  const auto f32 = [](int64_t blocks) {
    return blocks * Activations::BlockBytes(ActivationFormat::kF32);
  };
  const struct {
    HostBuffer* buffer;
    int64_t bytes;
    const char* what;
  } wanted[] = {
      {&x_, floats(rows * dim_stride_), "activations"},
      {&sum_, config_.post_norms ? floats(rows * dim_stride_) : 0, "activations"},
      {&qkv_, floats(rows * qkv_stride_), "activations"},
      {&angles_, floats(angle_floats), "activations"},
      {&attended_, f32(rows * head_blocks), "activations"},
      {&gated_, f32(rows * ffn_blocks), "activations"},
      {&logits_, floats(options_.max_logit_rows * logits_stride_), "logits"},
  };
  for (const auto& [buffer, bytes, what] : wanted) {
    ASSIGN_OR_RETURN(*buffer, HostBuffer::Allocate(bytes, what));
  }
  return absl::OkStatus();
}

void DecoderImpl::PlanAttentions(const DecoderBatch& batch) {
  CHECK_EQ(batch.tables.size(), attention_plans_.size());
  if (expanded_ != nullptr) {
    CHECK_EQ(attention_plans_.size(), 1u);
    absorbed_ = expanded_->Plan(batch.tables[0].sequences);
    attention_plans_[0] = PlanAttention(absorbed_, options_.block_tokens, 1, team_.num_threads());
    return;
  }
  for (size_t table = 0; table < attention_plans_.size(); ++table)
    attention_plans_[table] = PlanAttention(batch.tables[table].sequences, options_.block_tokens,
                                            static_cast<int>(shard_.kv_heads.size()),
                                            team_.num_threads(), tables_.windows[table]);
}

absl::Status DecoderImpl::Forward(const DecoderBatch& batch) {
  CHECK_LE(static_cast<int64_t>(batch.tokens.size()), options_.max_rows);
  CHECK(sums_.single_rank() || sums_.has_collective())
      << "a rank of a group without its collective";
  PlanAttentions(batch);
  team_.Run([&](const Context& context) { ForwardOnThread(context, batch); });
  return sums_.failure();
}

void DecoderImpl::ForwardOnThread(const Context& context, const DecoderBatch& batch) {
  const int64_t num_rows = static_cast<int64_t>(batch.tokens.size());
  const ThreadWeights& weights = weights_.threads[context.thread()];
  Embed(context, batch);
  context.Sync();
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    const LayerVectors& vectors = weights_.layers[layer];
    const PackedMatrix& output = weights.layers[layer].output;
    const Normed& attention_in = Normalise(context, vectors.attention_norm, num_rows);
    QueryKeyValue(context, layer, attention_in, num_rows);
    context.Sync();
    if (is_mla_) {
      AttendLatent(context, layer, batch);
    } else {
      AppendKv(context, layer, batch);
      context.Sync();
      Attend(context, layer);
      context.Sync();
    }
    sums_.AddProduct(context, output, AttendedAs(output.dtype), head_sum_, num_rows,
                     SumTarget(context, num_rows));
    if (sums_.failed()) return;
    AddSum(context, vectors.post_attention_norm, num_rows);

    const Normed& ffn_in = Normalise(context, vectors.ffn_norm, num_rows);
    FeedForward(context, layer, ffn_in, num_rows, SumTarget(context, num_rows));
    if (sums_.failed()) return;
    AddSum(context, vectors.post_ffn_norm, num_rows);
  }
}

void DecoderImpl::Embed(const Context& context, const DecoderBatch& batch) {
  const Range rows = context.Share(static_cast<int64_t>(batch.tokens.size()));
  const Tensor& table = *weights_.embedding;
  const auto scale = static_cast<float>(config_.embedding_scale);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* x = x_.as<float>() + row * dim_stride_;
    ReadRow(table, batch.tokens[row], x);
    if (scale != 1) ScaleRow(context, scale, config_.model_dim, x);
  }
  for (size_t i = 0; i < config_.ropes.size(); ++i) {
    const RopeConfig& rope = config_.ropes[i];
    RopeAngles(batch.positions.data(), rope.inverse_frequency.data(),
               static_cast<int64_t>(rope.inverse_frequency.size()), rope.amplitude, rows,
               angles_.as<float>() + angles_begin_[i]);
  }
}

// Where a layer's sum goes: onto x, or apart if it is normalised first. There it starts from -0,
// which changes no sum.
float* DecoderImpl::SumTarget(const Context& context, int64_t num_rows) {
  if (!config_.post_norms) return x_.as<float>();
  const Range mine = context.Share(num_rows * dim_stride_);
  std::fill(sum_.as<float>() + mine.begin, sum_.as<float>() + mine.end, -0.0f);
  context.Sync();
  return sum_.as<float>();
}

// x += the norm of the sum, where that is apart.
void DecoderImpl::AddSum(const Context& context, const std::vector<float>& weight,
                         int64_t num_rows) {
  if (!config_.post_norms) return;
  norms_.AddNormalised(context, sum_.as<float>(), dim_stride_, weight, num_rows, x_.as<float>());
}

void DecoderImpl::QueryKeyValue(const Context& context, int layer, const Normed& normed,
                                int64_t num_rows) {
  const std::vector<float>& bias = weights_.layers[layer].qkv_bias;
  for (const PackedMatrix& part : weights_.threads[context.thread()].layers[layer].qkv) {
    if (!bias.empty()) {
      const int64_t begin = part.first_tile * kTileRows;
      const int64_t end = std::min<int64_t>(begin + part.num_tiles * kTileRows, bias.size());
      for (int64_t row = 0; row < num_rows; ++row)
        std::copy(bias.begin() + begin, bias.begin() + end,
                  qkv_.as<float>() + row * qkv_stride_ + begin);
    }
    Product(context, part, Pick(normed, part.dtype), num_rows, qkv_.as<float>(), qkv_stride_,
            !bias.empty());
  }
}

KvLayer DecoderImpl::Kv(int layer) const {
  KvLayer kv = {.layout = is_mla_ ? KvLayout::kLatent : KvLayout::kKeysAndValues,
                .dtype = options_.kv_dtype,
                .block_tokens = options_.block_tokens,
                .head_dim = PaddedCachedDim(config_),
                .num_kv_heads = static_cast<int>(shard_.kv_heads.size()),
                .value_dim = is_mla_ ? config_.mla.latent_dim : 0,
                .base = pool_.data() + tables_.layers[layer].layer * pool_layer_bytes_};
  kv.block_stride = kv.block_bytes();
  kv.head_stride = kv.block_stride * options_.num_blocks;
  return kv;
}

Activations DecoderImpl::AttendedAs(DType next) const {
  return {FormatFor(next), attended_.data(),
          BlocksFor(ValueDim(config_)) * shard_.query_heads.size()};
}

void DecoderImpl::AppendKv(const Context& context, int layer, const DecoderBatch& batch) {
  const LayerVectors& vectors = weights_.layers[layer];
  const RopeConfig& rope = config_.ropes[config_.layers[layer].rope];
  RopeAppend(context, {.kv = Kv(layer),
                       .qkv = qkv_.as<float>(),
                       .qkv_stride = qkv_stride_,
                       .num_heads = static_cast<int>(shard_.query_heads.size()),
                       .head_dim = config_.head_dim,
                       .rotary_dim = rope.rotary_dim,
                       .pairs = PairsOf(rope),
                       .query_norm = config_.qk_norm ? vectors.query_norm.data() : nullptr,
                       .key_norm = config_.qk_norm ? vectors.key_norm.data() : nullptr,
                       .norm_eps = static_cast<float>(config_.norm_eps),
                       .query_scale = static_cast<float>(config_.attention_scale),
                       .angles = Angles(layer),
                       .positions = batch.positions.data(),
                       .blocks = BlocksOf(batch, layer),
                       .num_rows = static_cast<int64_t>(batch.tokens.size())});
}

void DecoderImpl::Attend(const Context& context, int layer) {
  PagedAttention(context,
                 {.kv = Kv(layer),
                  .queries = qkv_.as<float>(),
                  .query_stride = qkv_stride_,
                  .num_heads = static_cast<int>(shard_.query_heads.size()),
                  .group = plan_.head_group,
                  .skipped_heads = shard_.skipped_heads(plan_.head_group),
                  .head_dim = config_.head_dim,
                  .score_cap = static_cast<float>(config_.score_cap),
                  .plan = &attention_plans_[tables_.layers[layer].table],
                  .out = AttendedAs(weights_.threads[context.thread()].layers[layer].output.dtype)},
                 *attention_scratch_);
}

void DecoderImpl::AttendLatent(const Context& context, int layer, const DecoderBatch& batch) {
  const ThreadLayer& weights = weights_.threads[context.thread()].layers[layer];
  const auto num_rows = static_cast<int64_t>(batch.tokens.size());
  const KvLayer kv = Kv(layer);
  latent_.Prepare(context, weights, weights_.layers[layer], kv,
                  {.projected = qkv_.as<float>(),
                   .stride = qkv_stride_,
                   .num_rows = num_rows,
                   .angles = Angles(layer),
                   .positions = batch.positions.data(),
                   .blocks = BlocksOf(batch, layer),
                   .pairs = PairsOf(config_.ropes[config_.layers[layer].rope])});
  const AttentionPlan& plan = attention_plans_[tables_.layers[layer].table];
  if (!plan.sequences.empty()) {
    latent_.Absorb(context, weights, num_rows);
    PagedAttention(context,
                   {.kv = kv,
                    .queries = latent_.queries(),
                    .query_stride = latent_.query_stride(),
                    .num_heads = static_cast<int>(shard_.query_heads.size()),
                    .head_dim = config_.mla.cached_dim(),
                    .value_dim = config_.mla.latent_dim,
                    .score_cap = static_cast<float>(config_.score_cap),
                    .plan = &plan,
                    .out = latent_.attended(weights)},
                   *attention_scratch_);
    context.Sync();
    latent_.ToValues(context, weights, num_rows, AttendedAs(weights.output.dtype));
  }
  if (expanded_ == nullptr) return;
  expanded_->Attend(context, weights,
                    {.latents = kv,
                     .queries = latent_.expanded_queries(qkv_.as<float>()),
                     .query_stride = latent_.expanded_query_stride(qkv_stride_),
                     .out = AttendedAs(weights.output.dtype)});
}

void DecoderImpl::FeedForward(const Context& context, int layer, const Normed& normed,
                              int64_t num_rows, float* target) {
  const ThreadLayer& weights = weights_.threads[context.thread()].layers[layer];
  const bool has_experts = config_.layers[layer].experts;
  if (has_experts) {
    experts_.Add(context, weights, weights_.layers[layer], normed, num_rows, target);
    if (sums_.failed() || config_.experts.shared_ffn_dim == 0) return;
  }
  const Range blocks = has_experts ? shard_.shared_blocks : shard_.ffn_blocks;
  const FfnWeights& ffn = weights.ffn;
  const Activations gated = {FormatFor(ffn.down.dtype), gated_.data(), blocks.size()};
  gated_network_.Compute(context, ffn, Pick(normed, ffn.gate_up.gate.dtype),
                         Pick(normed, ffn.gate_up.up.dtype), num_rows,
                         has_experts ? config_.experts.shared_ffn_dim : config_.ffn_dim,
                         blocks.begin, gated);
  context.Sync();
  sums_.AddProduct(context, ffn.down, gated, has_experts ? shared_sum_ : ffn_sum_, num_rows,
                   target);
}

absl::Status DecoderImpl::ComputeLogits(std::span<const int32_t> rows, bool gather) {
  const int64_t num_rows = static_cast<int64_t>(rows.size());
  CHECK_LE(num_rows, options_.max_logit_rows);
  team_.Run([&](const Context& context) {
    const Normed& normed = norms_.Normalise(context, x_.as<float>(), dim_stride_,
                                            weights_.final_norm, rows.data(), num_rows);
    const PackedMatrix& head = weights_.threads[context.thread()].head;
    Product(context, head, Pick(normed, head.dtype), num_rows,
            logits_.as<float>() + shard_.vocab_tiles.begin * kTileRows, logits_stride_);
    if (config_.logit_cap > 0) CapLogits(context, head, num_rows);
    if (gather && !sums_.single_rank()) GatherLogits(context, num_rows);
  });
  return sums_.failure();
}

// Of the columns that this thread has just computed.
void DecoderImpl::CapLogits(const Context& context, const PackedMatrix& head, int64_t num_rows) {
  const int64_t first = (shard_.vocab_tiles.begin + head.first_tile) * kTileRows;
  for (int64_t row = 0; row < num_rows; ++row)
    CapRow(context, static_cast<float>(config_.logit_cap), head.num_tiles * kTileRows,
           logits(row) + first);
}

// Every rank sends its columns of every row.
void DecoderImpl::GatherLogits(const Context& context, int64_t num_rows) {
  const auto width = [&](int rank) {
    return plan_.ranks[rank].vocab_tiles.size() * static_cast<int64_t>(kTileRows);
  };
  const auto first = [&](int rank) { return plan_.ranks[rank].vocab_tiles.begin * kTileRows; };
  const int64_t own_width = width(options_.rank);
  context.Sync();
  const Range mine = context.Share(num_rows);
  auto* outbox = sums_.Outbox();
  for (int64_t row = mine.begin; row < mine.end; ++row)
    std::memcpy(outbox + row * own_width, logits(row) + first(options_.rank),
                own_width * sizeof(float));
  if (!sums_.Exchange(context, num_rows * own_width * static_cast<int64_t>(sizeof(float)))) return;
  for (int rank = 0; rank < static_cast<int>(plan_.ranks.size()); ++rank) {
    if (rank == options_.rank) continue;
    const auto* inbox = reinterpret_cast<const float*>(sums_.collective().Inbox(rank).data());
    for (int64_t row = mine.begin; row < mine.end; ++row)
      std::memcpy(logits(row) + first(rank), inbox + row * width(rank),
                  width(rank) * sizeof(float));
  }
}

void DecoderImpl::CopyBlock(int32_t from, int32_t to) {
  KvLayer kv = Kv(0);
  for (int layer = 0; layer < tables_.layers_per_block; ++layer) {
    kv.base = pool_.data() + layer * pool_layer_bytes_;
    for (int head = 0; head < kv.num_kv_heads; ++head)
      std::memcpy(kv.keys(head, to), kv.keys(head, from), kv.block_stride);
  }
}

}  // namespace

int64_t KvBytesPerBlock(const ModelConfig& config, const RankShard& shard, DType kv_dtype,
                        int32_t block_tokens) {
  const int num_extents = config.attention == AttentionKind::kMla ? 1 : 2;
  return int64_t{num_extents} * MakeKvTables(config).layers_per_block * shard.kv_heads.size() *
         block_tokens * PaddedCachedDim(config) * Info(kv_dtype).block_bytes;
}

int64_t MaxMessageBytes(const ModelConfig& config, const ShardPlan& plan, int32_t max_rows,
                        int32_t max_logit_rows) {
  const auto subtrees = [&](Range RankShard::*leaves, int group) {
    return int64_t{RowCutSum(plan, leaves, {}, group, 0).tree.max_subtrees()};
  };
  int64_t vocab_tiles = 0;
  for (const RankShard& shard : plan.ranks)
    vocab_tiles = std::max(vocab_tiles, shard.vocab_tiles.size());
  const int64_t most_subtrees =
      std::max({subtrees(&RankShard::query_heads, plan.head_group),
                subtrees(&RankShard::ffn_leaves, 1), subtrees(&RankShard::shared_leaves, 1)});
  const int64_t rows_of_sums =
      std::max(most_subtrees * max_rows,
               subtrees(&RankShard::experts, 1) * ExpertNetwork::MaxRows(max_rows));
  const int64_t sums = rows_of_sums * PaddedColumns(config.model_dim);
  const int64_t logits = vocab_tiles * kTileRows * max_logit_rows;
  constexpr int64_t kLeastBytes = int64_t{64} << 10;  // plans travel by the same collective
  return std::max(kLeastBytes, std::max(sums, logits) * static_cast<int64_t>(sizeof(float)));
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelConfig& config,
                                                         const ShardPlan& plan, RankWeights weights,
                                                         ThreadTeam& team,
                                                         const DecoderOptions& options) {
  auto decoder = std::make_unique<DecoderImpl>(config, plan, std::move(weights), team, options);
  RETURN_IF_ERROR(decoder->Allocate());
  return decoder;
}

}  // namespace cairn
