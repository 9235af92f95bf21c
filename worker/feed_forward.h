// The gated feed-forward network of a layer, and that of experts of which each row takes some.
//
// Experts: rows are sorted by expert, each expert of the rank computes its rows in one product, and
// every row adds its experts up in the fixed tree over all of them, of which those that were not
// chosen are no part. So neither other rows nor the number of ranks can change a bit.
// Thread: all threads of the team call the same with the same arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/activations.h"
#include "kernels/context.h"
#include "kernels/routing.h"
#include "model/model_config.h"
#include "worker/normed.h"
#include "worker/rank_sums.h"
#include "worker/weights.h"

namespace cairn {

// Gate, up and their gated product, which the down product then reads.
class GatedNetwork {
 public:
  // `columns`: of one thread, for max_rows rows. Errors: ResourceExhausted.
  absl::Status Allocate(int64_t max_rows, int64_t max_blocks, int num_threads, FfnGate gate);

  // out[num_rows][blocks]: of the rank's blocks, the first of which is `first_block` of ffn_dim.
  // Does not Sync.
  void Compute(const Context& context, const FfnWeights& weights, const Activations& x,
               const Activations& x_of_up, int64_t num_rows, int64_t ffn_dim, int64_t first_block,
               const Activations& out);

 private:
  void ApplyGate(const Context& context, const float* columns, int64_t num_rows, int64_t n,
                 int64_t unit, const Activations& out) const;

  FfnGate gate_ = FfnGate::kSilu;
  std::vector<HostBuffer> columns_;  // [thread]
};

// The experts of one rank.
class ExpertNetwork {
 public:
  // `sums` outlives it. row_stride: floats of a row of what is added up.
  ExpertNetwork(const ModelConfig& config, const ShardPlan& plan, int rank,
                ActivationFormat activations, RankSums& sums);
  // Errors: ResourceExhausted.
  absl::Status Allocate(int64_t max_rows, int64_t row_stride, int num_threads);

  // target[num_rows][row_stride] += the weighted sum of each row's experts, over all ranks. Rows
  // are taken some at a time. Syncs at the end; sums.failed() afterwards if a peer was lost.
  void Add(const Context& context, const ThreadLayer& weights, const LayerVectors& vectors,
           const Normed& normed, int64_t num_rows, float* target);

  const RowCutSum& sum() const { return sum_; }
  static int64_t MaxRows(int64_t max_rows);  // that are taken at a time

 private:
  void Route(const Context& context, const ThreadLayer& weights, const LayerVectors& vectors,
             const Normed& normed, int64_t first_row, int64_t num_rows);
  void SortByExpert(int64_t num_rows);
  void Gather(const Context& context, const ThreadLayer& weights, const Normed& normed,
              int64_t first_row);
  void ComputeGated(const Context& context, const ThreadLayer& weights);
  void ComputeDown(const Context& context, const ThreadLayer& weights);
  void SumRow(Range leaves, int64_t row, Range columns, float* out) const;
  void AddSums(const Context& context, int64_t num_rows, float* target);

  int64_t num_sorted() const { return begin_.back(); }
  ActivationFormat FormatFor(DType dtype) const { return ActivationFormatFor(dtype, activations_); }

  const ExpertsConfig config_;
  const RoutingRule rule_;
  const int64_t model_dim_;
  const Range own_;  // experts
  const ActivationFormat activations_;
  const FfnGate gate_;
  const RowCutSum sum_;
  RankSums& sums_;
  GatedNetwork gated_network_;
  int64_t row_stride_ = 0, logits_stride_ = 0;
  HostBuffer logits_, gated_, out_;
  NormedRows gathered_;                // the sorted rows
  std::vector<ExpertChoice> choices_;  // [rows][num_chosen]
  std::vector<int32_t> sorted_at_;  // [rows][num_chosen] among the sorted rows; -1: another rank's
  std::vector<int32_t> begin_;      // [own experts + 1] of the sorted rows
  std::vector<int32_t> places_;     // row of each sorted row
};

}  // namespace cairn
