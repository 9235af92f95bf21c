// Latent attention with keys and values expanded from their latent vectors: what fast numerics do
// for many rows of one sequence. The bits differ from those of absorbed attention, so exact
// numerics never do.
//
// Absorbed, a row costs each token of its context latent_dim + rope_dim products for a score and
// latent_dim for a value, in every head; expanded, nope_dim + rope_dim and value_dim, after keys
// and values of the whole context were made, once for all rows: latent_dim (nope_dim + value_dim) a
// token. Source: arXiv 2405.04434, section 2.1.
//
// Thread: Plan on one; Attend: all threads of the team, the same with the same arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/activations.h"
#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/context.h"
#include "kernels/kv_layout.h"
#include "model/model_config.h"
#include "worker/normed.h"
#include "worker/shard_plan.h"
#include "worker/weights.h"

namespace cairn {

class ExpandedAttention {
 public:
  struct Options {
    ActivationFormat activations = ActivationFormat::kF32;  // what quantised weights read
    DType kv_dtype = DType::kF32;
    int64_t max_rows = 0;     // of a step
    int64_t max_context = 0;  // tokens of one sequence
    int num_threads = 1;
  };
  ExpandedAttention(const ModelConfig& config, const RankShard& shard, const Options& options);
  // Errors: ResourceExhausted.
  absl::Status Allocate();

  // From so many rows of one sequence on it is less work than absorbed attention.
  int64_t min_rows() const { return min_rows_; }

  // Takes the sequences of a step that have enough rows; returns the others. What `sequences` point
  // to outlives the step.
  std::vector<AttentionSequence> Plan(std::span<const AttentionSequence> sequences);

  struct Args {
    KvLayer latents = {};            // complete for all rows
    const float* queries = nullptr;  // [T][query_stride]: the rank's heads, turned and scaled
    int64_t query_stride = 0;
    Activations out = {};  // [T]: head h at block h * BlocksFor(value_dim)
  };
  // Writes the rows of the sequences that Plan took. Syncs inside and at the end.
  void Attend(const Context& context, const ThreadLayer& weights, const Args& args);

 private:
  struct Sequence {
    AttentionSequence in_pool;   // of latent vectors
    AttentionSequence expanded;  // the same rows over the expanded blocks
    AttentionPlan plan;          // of `expanded`
  };

  ActivationFormat FormatFor(DType dtype) const {
    return ActivationFormatFor(dtype, options_.activations);
  }
  // Keys and values of tokens 0 .. num_tokens - 1, of heads_at_once_ heads.
  void Expand(const Context& context, const ThreadLayer& weights, const Args& args,
              const AttentionSequence& sequence, int first_head);
  void ReadLatents(const Context& context, const KvLayer& latents,
                   const AttentionSequence& sequence, int32_t first_token, int32_t num_tokens,
                   std::span<const ActivationFormat> formats);
  void Store(const Context& context, const KvLayer& latents, const AttentionSequence& sequence,
             int32_t first_token, int32_t num_tokens);

  const MlaConfig mla_;
  const int num_heads_;
  const Options options_;
  int heads_at_once_ = 1;
  int64_t min_rows_ = 0;
  int64_t key_columns_ = 0, head_columns_ = 0, columns_ = 0;  // floats of a row of expanded_
  KvLayer kv_;                        // the expanded blocks, each a tile of the context
  std::vector<int32_t> block_table_;  // 0, 1, 2, ...
  HostBuffer pool_, expanded_;
  NormedRows latents_;  // [kAttentionTile]
  std::unique_ptr<AttentionScratch> scratch_;
  std::vector<Sequence> sequences_;  // of the step
};

}  // namespace cairn
