#include "worker/feed_forward.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "kernels/gated_activation.h"
#include "kernels/matmul.h"

namespace cairn {
namespace {

constexpr int64_t kGateUpColumns = 2 * kQuantBlock;
constexpr int64_t kExpertRows = 256;  // rows of a step that the experts take at a time
constexpr int64_t kSumColumns = 256;  // of a row, added up at a time
constexpr int kMaxTreeDepth = 13;     // of kMaxRoutedExperts leaves
static_assert(kMaxRoutedExperts <= 1 << (kMaxTreeDepth - 1));
// What a config may ask for, the kernel takes.
static_assert(kMaxExperts <= kMaxRoutedExperts && kMaxExpertsPerToken <= kMaxChosenExperts);

// One expert's part of a row.
struct Term {
  int32_t expert = 0;
  float weight = 0;
  const float* values = nullptr;
};

// out[n] = the sum of the weighted terms, all of leaves [lo, hi), in the tree of TreeMiddle. There
// is at least one.
void SumTerms(std::span<const Term> terms, int lo, int hi, int64_t n, int depth, float* out) {
  while (terms.size() > 1) {
    const int middle = TreeMiddle(lo, hi);
    const auto right = std::find_if(terms.begin(), terms.end(),
                                    [&](const Term& term) { return term.expert >= middle; });
    if (right == terms.begin()) {
      lo = middle;
    } else if (right == terms.end()) {
      hi = middle;
    } else {
      CHECK_LT(depth, kMaxTreeDepth);
      float sum[kSumColumns];
      SumTerms({terms.begin(), right}, lo, middle, n, depth + 1, out);
      SumTerms({right, terms.end()}, middle, hi, n, depth + 1, sum);
      for (int64_t i = 0; i < n; ++i) out[i] += sum[i];
      return;
    }
  }
  for (int64_t i = 0; i < n; ++i) out[i] = terms[0].weight * terms[0].values[i];
}

RoutingRule RuleOf(const ExpertsConfig& config) {
  return {.num_experts = config.num_experts,
          .num_chosen = config.num_chosen,
          .score =
              config.score == RouterScore::kSigmoid ? ExpertScore::kSigmoid : ExpertScore::kSoftmax,
          .num_groups = config.num_groups,
          .num_groups_kept = config.num_groups_kept,
          .group_top = config.group_top,
          .normalise = config.normalise,
          .scale = static_cast<float>(config.scale)};
}

}  // namespace

// --------------------------------------------------------------------------------- GatedNetwork

absl::Status GatedNetwork::Allocate(int64_t max_rows, int64_t max_blocks, int num_threads,
                                    FfnGate gate) {
  gate_ = gate;
  columns_.resize(num_threads);
  const int64_t floats = std::max(max_rows, max_blocks) * kGateUpColumns;
  for (HostBuffer& columns : columns_) {
    ASSIGN_OR_RETURN(columns,
                     HostBuffer::Allocate(floats * static_cast<int64_t>(sizeof(float)), "scratch"));
  }
  return absl::OkStatus();
}

// Gate and up of the same columns, then their gated product: of many rows 32 columns at a time, of
// a lone row all of the thread's at once, whose weights are then one long read.
void GatedNetwork::Compute(const Context& context, const FfnWeights& weights, const Activations& x,
                           const Activations& x_of_up, int64_t num_rows, int64_t ffn_dim,
                           int64_t first_block, const Activations& out) {
  const GateUpWeights& gate_up = weights.gate_up;
  float* columns = columns_[context.thread()].as<float>();
  const bool same = gate_up.gate.dtype == gate_up.up.dtype;
  const bool at_once = same && num_rows == 1;
  const Range units = gate_up.units;
  if (at_once) {
    PackedMatrix all = gate_up.gate;
    all.num_tiles = units.size() * (gate_up.gate.num_tiles + gate_up.up.num_tiles);
    Product(context, all, x, 1, columns, 0);
  }
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t n = std::min<int64_t>(kQuantBlock, ffn_dim - (first_block + unit) * kQuantBlock);
    if (at_once) {
      ApplyGate(context, columns + (unit - units.begin) * kGateUpColumns, 1, n, unit, out);
      continue;
    }
    const int64_t offset = (unit - units.begin) * gate_up.unit_bytes;
    PackedMatrix gate = gate_up.gate, up = gate_up.up;
    gate.data += offset;
    up.data += offset;
    if (same)
      gate.num_tiles += up.num_tiles;  // they lie one behind the other
    else
      Product(context, up, x_of_up, num_rows, columns + kQuantBlock, kGateUpColumns);
    Product(context, gate, x, num_rows, columns, kGateUpColumns);
    ApplyGate(context, columns, num_rows, n, unit, out);
  }
}

void GatedNetwork::ApplyGate(const Context& context, const float* columns, int64_t num_rows,
                             int64_t n, int64_t unit, const Activations& out) const {
  GatedActivation(context, {.gate_kind = gate_ == FfnGate::kSilu ? Gate::kSilu : Gate::kGeluTanh,
                            .gate = columns,
                            .up = columns + kQuantBlock,
                            .stride = kGateUpColumns,
                            .num_rows = num_rows,
                            .n = static_cast<int>(n),
                            .out = out,
                            .out_block = unit});
}

// -------------------------------------------------------------------------------- ExpertNetwork

ExpertNetwork::ExpertNetwork(const ModelConfig& config, const ShardPlan& plan, int rank,
                             ActivationFormat activations, RankSums& sums)
    : config_(config.experts),
      rule_(RuleOf(config.experts)),
      model_dim_(config.model_dim),
      own_(plan.ranks[rank].experts),
      activations_(activations),
      gate_(config.gate),
      sum_(plan, &RankShard::experts, {}, 1, rank),
      sums_(sums) {}

int64_t ExpertNetwork::MaxRows(int64_t max_rows) { return std::min(max_rows, kExpertRows); }

absl::Status ExpertNetwork::Allocate(int64_t max_rows, int64_t row_stride, int num_threads) {
  const int64_t rows = MaxRows(max_rows), places = rows * config_.num_chosen;
  row_stride_ = row_stride;
  logits_stride_ = PaddedColumns(config_.num_experts);
  const int64_t ffn_blocks = BlocksFor(config_.ffn_dim);
  constexpr int64_t kFloatBytes = sizeof(float);
  const struct {
    HostBuffer* buffer;
    int64_t bytes;
  } wanted[] = {
      {&logits_, rows * logits_stride_ * kFloatBytes},
      {&gated_, places * Activations::RowBytes(ActivationFormat::kF32, ffn_blocks)},
      {&out_, places * row_stride * kFloatBytes},
  };
  for (const auto& [buffer, bytes] : wanted) {
    ASSIGN_OR_RETURN(*buffer, HostBuffer::Allocate(bytes, "activations of experts"));
  }
  RETURN_IF_ERROR(gathered_.Allocate(places, model_dim_, activations_, "activations of experts"));
  choices_.resize(places);
  sorted_at_.resize(places);
  begin_.resize(own_.size() + 1);
  places_.resize(places);
  return gated_network_.Allocate(rows, ffn_blocks, num_threads, gate_);
}

void ExpertNetwork::Add(const Context& context, const ThreadLayer& weights,
                        const LayerVectors& vectors, const Normed& normed, int64_t num_rows,
                        float* target) {
  for (int64_t first = 0; first < num_rows && !sums_.failed(); first += kExpertRows) {
    const int64_t rows = std::min(kExpertRows, num_rows - first);
    Route(context, weights, vectors, normed, first, rows);
    context.Sync();
    if (context.thread() == 0) SortByExpert(rows);
    context.Sync();
    Gather(context, weights, normed, first);
    context.Sync();
    ComputeGated(context, weights);
    context.Sync();
    ComputeDown(context, weights);
    context.Sync();
    AddSums(context, rows, target + first * row_stride_);
  }
}

void ExpertNetwork::Route(const Context& context, const ThreadLayer& weights,
                          const LayerVectors& vectors, const Normed& normed, int64_t first_row,
                          int64_t num_rows) {
  Product(context, weights.router, normed.As(FormatFor(weights.router.dtype)).From(first_row),
          num_rows, logits_.as<float>(), logits_stride_);
  context.Sync();
  const Range rows = context.Share(num_rows);
  const float* bias = vectors.router_bias.empty() ? nullptr : vectors.router_bias.data();
  for (int64_t row = rows.begin; row < rows.end; ++row)
    ChooseExperts(context, rule_, logits_.as<float>() + row * logits_stride_, bias,
                  choices_.data() + row * config_.num_chosen);
}

// Rows of an expert keep their order.
void ExpertNetwork::SortByExpert(int64_t num_rows) {
  const int64_t num_choices = num_rows * config_.num_chosen;
  std::fill(begin_.begin(), begin_.end(), 0);
  const auto is_own = [&](int32_t expert) { return own_.begin <= expert && expert < own_.end; };
  for (int64_t i = 0; i < num_choices; ++i)
    if (is_own(choices_[i].expert)) ++begin_[choices_[i].expert - own_.begin + 1];
  for (size_t e = 1; e < begin_.size(); ++e) begin_[e] += begin_[e - 1];
  for (int64_t i = 0; i < num_choices; ++i) {
    sorted_at_[i] = -1;
    if (!is_own(choices_[i].expert)) continue;
    const int32_t at = begin_[choices_[i].expert - own_.begin]++;
    sorted_at_[i] = at;
    places_[at] = static_cast<int32_t>(i / config_.num_chosen);
  }
  // Each begin has moved to its end, which is the next one's begin.
  std::rotate(begin_.begin(), begin_.end() - 1, begin_.end());
  const int32_t total = begin_.front();
  begin_.front() = 0;
  CHECK_EQ(begin_.back(), total);
}

void ExpertNetwork::Gather(const Context& context, const ThreadLayer& weights, const Normed& normed,
                           int64_t first_row) {
  if (weights.experts.empty()) return;
  const GateUpWeights& gate_up = weights.experts.front().gate_up;
  const Range rows = context.Share(num_sorted());
  const ActivationFormat wanted[] = {FormatFor(gate_up.gate.dtype), FormatFor(gate_up.up.dtype)};
  for (int i = 0; i < (wanted[0] == wanted[1] ? 1 : 2); ++i) {
    const Activations& from = normed.As(wanted[i]);
    const Activations& to = gathered_.rows().As(wanted[i]);
    for (int64_t row = rows.begin; row < rows.end; ++row)
      std::memcpy(to.row(row), from.row(first_row + places_[row]),
                  static_cast<size_t>(to.row_bytes()));
  }
}

void ExpertNetwork::ComputeGated(const Context& context, const ThreadLayer& weights) {
  for (int64_t e = 0; e < own_.size(); ++e) {
    const int64_t num_rows = begin_[e + 1] - begin_[e];
    if (num_rows == 0) continue;
    const FfnWeights& expert = weights.experts[e];
    const Activations gated = {FormatFor(expert.down.dtype), gated_.data(),
                               BlocksFor(config_.ffn_dim)};
    gated_network_.Compute(
        context, expert, gathered_.rows().As(FormatFor(expert.gate_up.gate.dtype)).From(begin_[e]),
        gathered_.rows().As(FormatFor(expert.gate_up.up.dtype)).From(begin_[e]), num_rows,
        config_.ffn_dim, 0, gated.From(begin_[e]));
  }
}

void ExpertNetwork::ComputeDown(const Context& context, const ThreadLayer& weights) {
  for (int64_t e = 0; e < own_.size(); ++e) {
    const PackedMatrix& down = weights.experts[e].down;
    const Activations gated = {FormatFor(down.dtype), gated_.data(), BlocksFor(config_.ffn_dim)};
    Product(context, down, gated.From(begin_[e]), begin_[e + 1] - begin_[e],
            out_.as<float>() + begin_[e] * row_stride_, row_stride_);
  }
}

// out = columns of the sum of the row's experts among `leaves`; -0, which changes no sum, if it has
// none there.
void ExpertNetwork::SumRow(Range leaves, int64_t row, Range columns, float* out) const {
  Term terms[kMaxChosenExperts];
  size_t num_terms = 0;
  for (int64_t i = row * config_.num_chosen; i < (row + 1) * config_.num_chosen; ++i) {
    const ExpertChoice& choice = choices_[i];
    if (choice.expert < leaves.begin || choice.expert >= leaves.end) continue;
    terms[num_terms++] = {choice.expert, choice.weight,
                          out_.as<float>() + sorted_at_[i] * row_stride_ + columns.begin};
  }
  if (num_terms == 0) return static_cast<void>(std::fill_n(out, columns.size(), -0.0f));
  SumTerms({terms, num_terms}, static_cast<int>(leaves.begin), static_cast<int>(leaves.end),
           columns.size(), 0, out);
}

void ExpertNetwork::AddSums(const Context& context, int64_t num_rows, float* target) {
  const int64_t pieces = (row_stride_ + kSumColumns - 1) / kSumColumns;
  const Range units = context.Share(num_rows * pieces);
  const std::span<const Range> subtrees = sum_.tree.subtrees(sums_.rank());
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t row = unit / pieces, first = unit % pieces * kSumColumns;
    const Range columns = {first, std::min(first + kSumColumns, row_stride_)};
    if (!sums_.single_rank()) {
      for (size_t i = 0; i < subtrees.size(); ++i)
        SumRow(subtrees[i], row, columns,
               sums_.Outbox() + (static_cast<int64_t>(i) * num_rows + row) * row_stride_ + first);
      continue;
    }
    float sum[kSumColumns];
    SumRow(own_, row, columns, sum);
    float* to = target + row * row_stride_ + first;
    AddRows(context, to, sum, columns.size(), to);
  }
  if (sums_.single_rank())
    context.Sync();
  else
    sums_.AddOutbox(context, sum_, num_rows, target);
}

}  // namespace cairn
