#include "worker/decoder.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "base/memory.h"
#include "kernels/gated_activation.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "worker/sum_tree.h"
#include "worker/tensor_row.h"

namespace cairn {
namespace {

// Up to this many rows every thread normalises for itself: cheaper than to wait for each other.
constexpr int64_t kRowsNormedAlone = 4;
constexpr int64_t kGateUpColumns = 2 * kQuantBlock;

constexpr int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Heads are padded to whole vectors in the pool.
int PaddedHeadDim(const ModelConfig& config) {
  return static_cast<int>(RoundUp(config.head_dim, kTileRows));
}

RopePairs PairsOf(const RopeConfig& rope) {
  return rope.pairs == RotaryPairs::kInterleaved ? RopePairs::kInterleaved : RopePairs::kHalfSplit;
}

Gate GateOf(FfnGate gate) { return gate == FfnGate::kSilu ? Gate::kSilu : Gate::kGeluTanh; }

std::vector<Range> LeavesOf(const ShardPlan& plan, Range RankShard::*leaves) {
  std::vector<Range> out;
  for (const RankShard& shard : plan.ranks) out.push_back(shard.*leaves);
  return out;
}

// A sum over K that is cut among the ranks.
struct RowCutSum {
  SumTree tree;
  std::span<const int32_t> leaf_begin;
  int group = 1;  // of leaves
  Range own;
};

// Rows in the formats that the products after a norm read.
struct Normed {
  Activations f32, int8;
};

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
        head_sum_{SumTree(LeavesOf(plan_, &RankShard::query_heads), plan_.head_group),
                  plan_.head_leaf_begin, plan_.head_group, shard_.query_heads},
        ffn_sum_{SumTree(LeavesOf(plan_, &RankShard::ffn_leaves), 1), plan_.ffn_leaf_begin, 1,
                 shard_.ffn_leaves} {}

  absl::Status Allocate();

  void SetCollective(Collective* collective) override {
    collective_ = collective;
    failed_ = false;
    failure_ = absl::OkStatus();
  }
  absl::Status Forward(const DecoderBatch& batch) override;
  absl::Status ComputeLogits(std::span<const int32_t> rows, bool gather) override;
  float* logits(int64_t index) override { return logits_.as<float>() + index * logits_stride_; }
  Range own_vocabulary() const override {
    return {shard_.vocab_tiles.begin * kTileRows,
            std::min<int64_t>(shard_.vocab_tiles.end * kTileRows, config_.vocab_size)};
  }
  void CopyBlock(int32_t from, int32_t to) override;

 private:
  struct Scratch {  // of one thread
    HostBuffer normed_f32, normed_int8, gate_up, sum;
  };

  void ForwardOnThread(const Context& context, const DecoderBatch& batch);
  void Embed(const Context& context, const DecoderBatch& batch);
  const Normed& Normalise(const Context& context, const std::vector<float>& weight,
                          const int32_t* row_index, int64_t num_rows);
  void Product(const Context& context, const PackedMatrix& weights, const Activations& x,
               int64_t num_rows, float* out, int64_t out_stride, bool accumulate);
  void QueryKeyValue(const Context& context, int layer, const Normed& normed, int64_t num_rows);
  void AppendKv(const Context& context, int layer, const DecoderBatch& batch);
  void Attend(const Context& context, int layer);
  void FeedForward(const Context& context, int layer, const Normed& normed, int64_t num_rows);
  void ApplyGate(const Context& context, int layer, int64_t unit, const float* columns,
                 int64_t num_rows);
  void AddRowCutSum(const Context& context, const PackedMatrix& weights, const Activations& x,
                    const RowCutSum& sum, int64_t num_rows);
  void GatherLogits(const Context& context, int64_t num_rows);
  KvLayer Kv(int layer) const;

  ActivationFormat FormatFor(DType dtype) const {
    return ActivationFormatFor(
        dtype, options_.int8_activations ? ActivationFormat::kInt8 : ActivationFormat::kF32);
  }
  const Activations& Pick(const Normed& normed, DType dtype) const {
    return FormatFor(dtype) == ActivationFormat::kInt8 ? normed.int8 : normed.f32;
  }
  // Thread 0 publishes the outbox; false on every thread if a peer is lost.
  bool Exchange(const Context& context, int64_t bytes);
  bool single_rank() const { return plan_.ranks.size() == 1; }

  const ModelConfig config_;
  const ShardPlan plan_;
  const RankShard shard_;
  const RankWeights weights_;
  ThreadTeam& team_;
  const DecoderOptions options_;
  const RowCutSum head_sum_, ffn_sum_;
  Collective* collective_ = nullptr;

  int64_t dim_stride_ = 0, qkv_stride_ = 0, logits_stride_ = 0;  // floats of a row
  HostBuffer pool_;
  int64_t pool_layer_bytes_ = 0;
  HostBuffer x_, qkv_, angles_, normed_f32_, normed_int8_, attended_, gated_, partial_, logits_;
  std::vector<Scratch> scratch_;
  std::vector<Normed> shared_normed_, alone_normed_;  // [thread]: same rows, or the thread's own
  AttentionPlan attention_plan_;                      // of the step
  std::unique_ptr<AttentionScratch> attention_scratch_;

  std::atomic<bool> failed_{false};
  absl::Status failure_;  // written by thread 0 between two Syncs
};

absl::Status DecoderImpl::Allocate() {
  const int64_t rows = options_.max_rows;
  const int64_t dim_blocks = BlocksFor(config_.model_dim);
  const int64_t head_blocks = BlocksFor(config_.head_dim) * shard_.query_heads.size();
  dim_stride_ = RoundUp(config_.model_dim, kTileRows);
  qkv_stride_ = RoundUp(QkvRows(config_, shard_), kTileRows);
  logits_stride_ = RoundUp(config_.vocab_size, kTileRows);
  const auto floats = [](int64_t n) { return n * static_cast<int64_t>(sizeof(float)); };
  const auto f32 = [](int64_t blocks) {
    return blocks * Activations::BlockBytes(ActivationFormat::kF32);
  };
  const auto int8 = [](int64_t blocks) {
    return blocks * Activations::BlockBytes(ActivationFormat::kInt8);
  };
  const int threads = team_.num_threads();
  scratch_.resize(threads);
  const int64_t pool_block_bytes =
      KvBytesPerBlock(config_, shard_, options_.kv_dtype, options_.block_tokens);
  pool_layer_bytes_ = pool_block_bytes / config_.num_layers * options_.num_blocks;
  const struct {
    HostBuffer* buffer;
    int64_t bytes;
    const char* what;
  } wanted[] = {
      {&pool_, pool_block_bytes * options_.num_blocks, "KV pool"},
      {&x_, floats(rows * dim_stride_), "activations"},
      {&qkv_, floats(rows * qkv_stride_), "activations"},
      {&angles_, floats(rows * config_.rope.rotary_dim), "activations"},
      {&normed_f32_, f32(rows * dim_blocks), "activations"},
      {&normed_int8_, int8(rows * dim_blocks), "activations"},
      {&attended_, f32(rows * head_blocks), "activations"},
      {&gated_, f32(rows * shard_.ffn_blocks.size()), "activations"},
      {&partial_, single_rank() || options_.exact ? 0 : floats(rows * dim_stride_), "activations"},
      {&logits_, floats(options_.max_logit_rows * logits_stride_), "logits"},
  };
  for (const auto& [buffer, bytes, what] : wanted) {
    ASSIGN_OR_RETURN(*buffer, HostBuffer::Allocate(bytes, what));
  }
  const int64_t sum_floats =
      std::max(head_sum_.tree.scratch_floats(), ffn_sum_.tree.scratch_floats());
  for (Scratch& scratch : scratch_) {
    const struct {
      HostBuffer* buffer;
      int64_t bytes;
    } parts[] = {
        {&scratch.normed_f32, f32(kRowsNormedAlone * dim_blocks)},
        {&scratch.normed_int8, int8(kRowsNormedAlone * dim_blocks)},
        {&scratch.gate_up, floats(std::max(rows, shard_.ffn_blocks.size()) * kGateUpColumns)},
        {&scratch.sum, floats(sum_floats)}};
    for (const auto& [buffer, bytes] : parts) {
      ASSIGN_OR_RETURN(*buffer, HostBuffer::Allocate(bytes, "scratch"));
    }
    alone_normed_.push_back({{ActivationFormat::kF32, scratch.normed_f32.data(), dim_blocks},
                             {ActivationFormat::kInt8, scratch.normed_int8.data(), dim_blocks}});
    shared_normed_.push_back({{ActivationFormat::kF32, normed_f32_.data(), dim_blocks},
                              {ActivationFormat::kInt8, normed_int8_.data(), dim_blocks}});
  }
  // Now rather than in the first requests: the kernel clears a page when it is first written.
  team_.Run([&](const Context& context) {
    const Range share = context.Share(pool_.size_bytes());
    std::memset(pool_.data() + share.begin, 0, static_cast<size_t>(share.size()));
  });
  attention_scratch_ =
      AttentionScratch::Create({.num_threads = threads,
                                .max_rows = rows,
                                .max_sequences = options_.max_sequences,
                                .max_context = options_.context_length,
                                .num_heads = static_cast<int>(shard_.query_heads.size()),
                                .num_kv_heads = static_cast<int>(shard_.kv_heads.size()),
                                .head_dim = PaddedHeadDim(config_)});
  return absl::OkStatus();
}

absl::Status DecoderImpl::Forward(const DecoderBatch& batch) {
  CHECK_LE(static_cast<int64_t>(batch.tokens.size()), options_.max_rows);
  CHECK(single_rank() || collective_ != nullptr) << "a rank of a group without its collective";
  attention_plan_ = PlanAttention(batch.sequences, options_.block_tokens,
                                  static_cast<int>(shard_.kv_heads.size()), team_.num_threads());
  team_.Run([&](const Context& context) { ForwardOnThread(context, batch); });
  return failure_;
}

void DecoderImpl::ForwardOnThread(const Context& context, const DecoderBatch& batch) {
  const int64_t num_rows = static_cast<int64_t>(batch.tokens.size());
  const ThreadWeights& weights = weights_.threads[context.thread()];
  const Activations attended = {FormatFor(weights.layers[0].output.dtype), attended_.data(),
                                BlocksFor(config_.head_dim) * shard_.query_heads.size()};
  Embed(context, batch);
  context.Sync();
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    const LayerVectors& vectors = weights_.layers[layer];
    const Normed& attention_in = Normalise(context, vectors.attention_norm, nullptr, num_rows);
    QueryKeyValue(context, layer, attention_in, num_rows);
    context.Sync();
    AppendKv(context, layer, batch);
    context.Sync();
    Attend(context, layer);
    context.Sync();
    Activations attention_out = attended;
    attention_out.format = FormatFor(weights.layers[layer].output.dtype);
    AddRowCutSum(context, weights.layers[layer].output, attention_out, head_sum_, num_rows);
    if (failed_.load(std::memory_order_relaxed)) return;

    const Normed& ffn_in = Normalise(context, vectors.ffn_norm, nullptr, num_rows);
    FeedForward(context, layer, ffn_in, num_rows);
    context.Sync();
    const Activations gated = {FormatFor(weights.layers[layer].down.dtype), gated_.data(),
                               shard_.ffn_blocks.size()};
    AddRowCutSum(context, weights.layers[layer].down, gated, ffn_sum_, num_rows);
    if (failed_.load(std::memory_order_relaxed)) return;
  }
}

void DecoderImpl::Embed(const Context& context, const DecoderBatch& batch) {
  const Range rows = context.Share(static_cast<int64_t>(batch.tokens.size()));
  const Tensor& table = *weights_.embedding;
  for (int64_t row = rows.begin; row < rows.end; ++row)
    ReadRow(table, batch.tokens[row], x_.as<float>() + row * dim_stride_);
  RopeAngles(batch.positions.data(), config_.rope.inverse_frequency.data(),
             static_cast<int64_t>(config_.rope.inverse_frequency.size()), config_.rope.amplitude,
             rows, angles_.as<float>());
}

// Normalises x of num_rows rows into both formats. Few rows are computed by every thread for
// itself; of many each thread computes its share and waits for the rest.
const Normed& DecoderImpl::Normalise(const Context& context, const std::vector<float>& weight,
                                     const int32_t* row_index, int64_t num_rows) {
  const bool alone = num_rows <= kRowsNormedAlone;
  const Normed& out = (alone ? alone_normed_ : shared_normed_)[context.thread()];
  RmsNormArgs args = {.x = x_.as<float>(),
                      .x_stride = dim_stride_,
                      .row_index = row_index,
                      .weight = weight.data(),
                      .dim = config_.model_dim,
                      .eps = static_cast<float>(config_.norm_eps),
                      .out_f32 = out.f32,
                      .out_int8 = {}};
  if (options_.int8_activations) args.out_int8 = out.int8;
  RmsNorm(context, args, alone ? Range{0, num_rows} : context.Share(num_rows));
  if (!alone) context.Sync();
  return out;
}

void DecoderImpl::Product(const Context& context, const PackedMatrix& weights, const Activations& x,
                          int64_t num_rows, float* out, int64_t out_stride, bool accumulate) {
  if (weights.num_tiles == 0) return;
  Matmul(context, {.weights = weights,
                   .x = x,
                   .first_block = 0,
                   .num_rows = num_rows,
                   .out = out,
                   .out_stride = out_stride,
                   .accumulate = accumulate,
                   .leaves = {}});
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
  KvLayer kv = {.dtype = options_.kv_dtype,
                .block_tokens = options_.block_tokens,
                .head_dim = PaddedHeadDim(config_),
                .num_kv_heads = static_cast<int>(shard_.kv_heads.size()),
                .base = pool_.data() + layer * pool_layer_bytes_,
                .head_stride = 0,
                .block_stride = 0};
  kv.block_stride = 2 * kv.extent_bytes();
  kv.head_stride = kv.block_stride * options_.num_blocks;
  return kv;
}

void DecoderImpl::AppendKv(const Context& context, int layer, const DecoderBatch& batch) {
  RopeAppend(context, {.kv = Kv(layer),
                       .qkv = qkv_.as<float>(),
                       .qkv_stride = qkv_stride_,
                       .num_heads = static_cast<int>(shard_.query_heads.size()),
                       .head_dim = config_.head_dim,
                       .rotary_dim = config_.rope.rotary_dim,
                       .pairs = PairsOf(config_.rope),
                       .query_scale = static_cast<float>(config_.attention_scale),
                       .angles = angles_.as<float>(),
                       .positions = batch.positions.data(),
                       .blocks = batch.blocks.data(),
                       .num_rows = static_cast<int64_t>(batch.tokens.size())});
}

void DecoderImpl::Attend(const Context& context, int layer) {
  const DType next = weights_.threads[context.thread()].layers[layer].output.dtype;
  PagedAttention(context,
                 {.kv = Kv(layer),
                  .queries = qkv_.as<float>(),
                  .query_stride = qkv_stride_,
                  .num_heads = static_cast<int>(shard_.query_heads.size()),
                  .head_dim = config_.head_dim,
                  .plan = &attention_plan_,
                  .out = {FormatFor(next), attended_.data(),
                          BlocksFor(config_.head_dim) * shard_.query_heads.size()}},
                 *attention_scratch_);
}

// Gate and up of the same columns, then their gated product: of many rows 32 columns at a time, of
// a lone row all of the thread's at once, whose weights are then one long read.
void DecoderImpl::FeedForward(const Context& context, int layer, const Normed& normed,
                              int64_t num_rows) {
  const GateUpWeights& gate_up = weights_.threads[context.thread()].layers[layer].gate_up;
  float* columns = scratch_[context.thread()].gate_up.as<float>();
  const bool same = gate_up.gate.dtype == gate_up.up.dtype;
  const bool at_once = same && num_rows == 1;
  const Range units = gate_up.units;
  if (at_once) {
    PackedMatrix all = gate_up.gate;
    all.num_tiles = units.size() * (gate_up.gate.num_tiles + gate_up.up.num_tiles);
    Product(context, all, Pick(normed, all.dtype), 1, columns, 0, false);
  }
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    if (at_once) {
      ApplyGate(context, layer, unit, columns + (unit - units.begin) * kGateUpColumns, 1);
      continue;
    }
    const int64_t offset = (unit - units.begin) * gate_up.unit_bytes;
    PackedMatrix gate = gate_up.gate, up = gate_up.up;
    gate.data += offset;
    up.data += offset;
    if (same) {
      gate.num_tiles += up.num_tiles;  // they lie one behind the other
    } else {
      Product(context, up, Pick(normed, up.dtype), num_rows, columns + kQuantBlock, kGateUpColumns,
              false);
    }
    Product(context, gate, Pick(normed, gate.dtype), num_rows, columns, kGateUpColumns, false);
    ApplyGate(context, layer, unit, columns, num_rows);
  }
}

void DecoderImpl::ApplyGate(const Context& context, int layer, int64_t unit, const float* columns,
                            int64_t num_rows) {
  const ThreadLayer& weights = weights_.threads[context.thread()].layers[layer];
  const int64_t first_column = (shard_.ffn_blocks.begin + unit) * kQuantBlock;
  GatedActivation(
      context,
      {.gate_kind = GateOf(config_.gate),
       .gate = columns,
       .up = columns + kQuantBlock,
       .stride = kGateUpColumns,
       .num_rows = num_rows,
       .n = static_cast<int>(std::min<int64_t>(kQuantBlock, config_.ffn_dim - first_column)),
       .out = {FormatFor(weights.down.dtype), gated_.data(), shard_.ffn_blocks.size()},
       .out_block = unit});
}

bool DecoderImpl::Exchange(const Context& context, int64_t bytes) {
  context.Sync();
  if (context.thread() == 0) {
    failure_ = collective_->AllGatherV(bytes);
    if (!failure_.ok()) failed_ = true;
  }
  context.Sync();
  return !failed_.load(std::memory_order_relaxed);
}

// x += the product, summed over all ranks. In exact numerics the sum has the tree of its leaves,
// whoever owns them; else each rank is one leaf.
void DecoderImpl::AddRowCutSum(const Context& context, const PackedMatrix& weights,
                               const Activations& activations, const RowCutSum& sum,
                               int64_t num_rows) {
  float* x = x_.as<float>();
  MatmulArgs args = {.weights = weights,
                     .x = activations,
                     .first_block = 0,
                     .num_rows = num_rows,
                     .out = x,
                     .out_stride = dim_stride_,
                     .accumulate = true,
                     .leaves = {}};
  const int lo = static_cast<int>(sum.own.begin), hi = static_cast<int>(sum.own.end);
  if (single_rank()) {
    if (options_.exact) args.leaves = {sum.leaf_begin, lo, hi, sum.group};
    if (weights.num_tiles > 0) Matmul(context, args);
    context.Sync();
    return;
  }
  const int64_t elements = num_rows * dim_stride_;
  const Range units = context.Share(elements / kTileRows);
  const Range mine = {units.begin * kTileRows, units.end * kTileRows};
  args.accumulate = false;
  if (!options_.exact) {
    args.out = partial_.as<float>();
    if (weights.num_tiles > 0) Matmul(context, args);
    context.Sync();
    if (context.thread() == 0) {
      failure_ = collective_->AllReduceSum({partial_.as<float>(), static_cast<size_t>(elements)});
      if (!failure_.ok()) failed_ = true;
    }
    context.Sync();
    AddRows(context, x + mine.begin, partial_.as<float>() + mine.begin, mine.size(),
            x + mine.begin);
    context.Sync();
    return;
  }
  const std::span<const Range> subtrees = sum.tree.subtrees(options_.rank);
  args.out = reinterpret_cast<float*>(collective_->Outbox());
  for (const Range& subtree : subtrees) {
    args.leaves = {sum.leaf_begin, static_cast<int>(subtree.begin), static_cast<int>(subtree.end),
                   sum.group};
    args.first_block = sum.leaf_begin[subtree.begin] - sum.leaf_begin[lo];
    if (weights.num_tiles > 0) Matmul(context, args);
    args.out += elements;
  }
  if (!Exchange(context, static_cast<int64_t>(subtrees.size() * elements * sizeof(float)))) return;
  sum.tree.Add(context, *collective_, elements, mine, scratch_[context.thread()].sum.as<float>(),
               x);
  context.Sync();
}

absl::Status DecoderImpl::ComputeLogits(std::span<const int32_t> rows, bool gather) {
  const int64_t num_rows = static_cast<int64_t>(rows.size());
  CHECK_LE(num_rows, options_.max_logit_rows);
  team_.Run([&](const Context& context) {
    const Normed& normed = Normalise(context, weights_.final_norm, rows.data(), num_rows);
    const PackedMatrix& head = weights_.threads[context.thread()].head;
    Product(context, head, Pick(normed, head.dtype), num_rows,
            logits_.as<float>() + shard_.vocab_tiles.begin * kTileRows, logits_stride_, false);
    if (gather && !single_rank()) GatherLogits(context, num_rows);
  });
  return failure_;
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
  auto* outbox = reinterpret_cast<float*>(collective_->Outbox());
  for (int64_t row = mine.begin; row < mine.end; ++row)
    std::memcpy(outbox + row * own_width, logits(row) + first(options_.rank),
                own_width * sizeof(float));
  if (!Exchange(context, num_rows * own_width * static_cast<int64_t>(sizeof(float)))) return;
  for (int rank = 0; rank < static_cast<int>(plan_.ranks.size()); ++rank) {
    if (rank == options_.rank) continue;
    const auto* inbox = reinterpret_cast<const float*>(collective_->Inbox(rank).data());
    for (int64_t row = mine.begin; row < mine.end; ++row)
      std::memcpy(logits(row) + first(rank), inbox + row * width(rank),
                  width(rank) * sizeof(float));
  }
}

void DecoderImpl::CopyBlock(int32_t from, int32_t to) {
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    const KvLayer kv = Kv(layer);
    for (int head = 0; head < kv.num_kv_heads; ++head)
      std::memcpy(kv.keys(head, to), kv.keys(head, from), kv.block_stride);
  }
}

}  // namespace

int64_t KvBytesPerBlock(const ModelConfig& config, const RankShard& shard, DType kv_dtype,
                        int32_t block_tokens) {
  return int64_t{2} * config.num_layers * shard.kv_heads.size() * block_tokens *
         PaddedHeadDim(config) * Info(kv_dtype).block_bytes;
}

int64_t MaxMessageBytes(const ModelConfig& config, const ShardPlan& plan, int32_t max_rows,
                        int32_t max_logit_rows) {
  const int subtrees =
      std::max(SumTree(LeavesOf(plan, &RankShard::query_heads), plan.head_group).max_subtrees(),
               SumTree(LeavesOf(plan, &RankShard::ffn_leaves), 1).max_subtrees());
  int64_t vocab_tiles = 0;
  for (const RankShard& shard : plan.ranks)
    vocab_tiles = std::max(vocab_tiles, shard.vocab_tiles.size());
  const int64_t sums = int64_t{subtrees} * max_rows * RoundUp(config.model_dim, kTileRows);
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
