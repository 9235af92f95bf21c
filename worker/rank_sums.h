// Sums over K that are cut among the ranks of a group, and the messages that carry them.
//
// Thread: all threads of the team call the same with the same arguments; SetCollective between
// steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "worker/collective.h"
#include "worker/shard_plan.h"
#include "worker/sum_tree.h"

namespace cairn {

// The leaves of one kind of sum: which there are, and which this rank adds up.
struct RowCutSum {
  // leaf_begin: of all leaves, in 32-blocks of K; may be empty for leaves that are no part of K.
  RowCutSum(const ShardPlan& plan, Range RankShard::*leaves, std::span<const int32_t> begin,
            int leaf_group, int rank);

  SumTree tree;
  std::span<const int32_t> leaf_begin;
  int group = 1;  // of leaves
  Range own;
};

class RankSums {
 public:
  RankSums(const ShardPlan& plan, int rank, bool exact) : rank_(rank), exact_(exact) {
    single_rank_ = plan.ranks.size() == 1;
  }
  // row_stride: floats of a row of every sum. Errors: ResourceExhausted.
  absl::Status Allocate(int64_t max_rows, int64_t row_stride, int64_t scratch_floats,
                        int num_threads);

  // The group of the steps from now on; null for a group of one.
  void SetCollective(Collective* collective);
  Collective& collective() { return *collective_; }
  bool has_collective() const { return collective_ != nullptr; }
  int rank() const { return rank_; }
  bool single_rank() const { return single_rank_; }
  // Whether a peer was lost; failure() says why, between steps.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  const absl::Status& failure() const { return failure_; }

  // Thread 0 publishes the outbox; false on every thread if a peer is lost.
  bool Exchange(const Context& context, int64_t bytes);

  // target[num_rows][row_stride] += the product, summed over all ranks. In exact numerics the sum
  // has the tree of its leaves, whoever owns them; else each rank is one leaf. Syncs at the end.
  void AddProduct(const Context& context, const PackedMatrix& weights,
                  const Activations& activations, const RowCutSum& sum, int64_t num_rows,
                  float* target);

  // The same for sums that this rank wrote into the outbox itself, one for each of its subtrees.
  void AddOutbox(const Context& context, const RowCutSum& sum, int64_t num_rows, float* target);
  float* Outbox() { return reinterpret_cast<float*>(collective_->Outbox()); }

 private:
  void AddUnordered(const Context& context, MatmulArgs args, int64_t elements, float* target);
  // This thread's elements of a message.
  static Range Mine(const Context& context, int64_t elements);

  const int rank_;
  const bool exact_;
  bool single_rank_ = true;
  int64_t row_stride_ = 0;
  Collective* collective_ = nullptr;
  HostBuffer partial_;               // of the sum of another order
  std::vector<HostBuffer> scratch_;  // [thread]
  std::atomic<bool> failed_{false};
  absl::Status failure_;  // written by thread 0 between two Syncs
};

}  // namespace cairn
