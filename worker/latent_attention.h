// What latent attention computes around the attention itself: queries in the latent space before
// it, values out of it afterwards.
//
// Source: arXiv 2405.04434. The up projections are absorbed for prefill and decode
// alike, so that a row's result does not depend on which of the two it was computed in.
// Thread: all threads of the team call the same with the same arguments.
#pragma once

#include <cstdint>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/activations.h"
#include "kernels/context.h"
#include "kernels/kv_layout.h"
#include "kernels/rope.h"
#include "model/model_config.h"
#include "worker/normed.h"
#include "worker/shard_plan.h"
#include "worker/weights.h"

namespace cairn {

class LatentAttention {
 public:
  LatentAttention(const ModelConfig& config, const RankShard& shard, ActivationFormat activations);
  // Errors: ResourceExhausted.
  absl::Status Allocate(int64_t max_rows);

  struct Rows {
    float* projected = nullptr;  // [T][stride]: the product ThreadLayer::qkv; changed
    int64_t stride = 0;
    int64_t num_rows = 0;
    const float* angles = nullptr;
    const int32_t* positions = nullptr;
    const int32_t* blocks = nullptr;
    RopePairs pairs = RopePairs::kInterleaved;
  };
  // Appends to the pool and turns and scales the queries. The rows are complete before; Syncs
  // inside and at the end.
  void Prepare(const Context& context, const ThreadLayer& weights, const LayerVectors& vectors,
               const KvLayer& kv, const Rows& rows);

  // Completes queries(), of which Prepare wrote what turns. Syncs at the end.
  void Absorb(const Context& context, const ThreadLayer& weights, int64_t num_rows);

  // [T][query_stride]: the rank's heads of cached_dim elements each, scaled.
  const float* queries() const { return absorbed_.as<float>(); }
  int64_t query_stride() const { return absorbed_stride_; }
  // The rank's heads of query_dim elements each, turned and scaled, as Prepare leaves them: in the
  // rows that it was given, or in its own.
  const float* expanded_queries(const float* projected) const {
    return mla_.query_latent_dim > 0 ? queries_.as<float>() : projected;
  }
  int64_t expanded_query_stride(int64_t projected_stride) const {
    return mla_.query_latent_dim > 0 ? query_stride_ : projected_stride;
  }
  // What attention writes: each head's weighted sum of latent vectors.
  Activations attended(const ThreadLayer& weights) const;

  // out: head h at block h * BlocksFor(value_dim). attended() is complete before; Syncs inside and
  // at the end.
  void ToValues(const Context& context, const ThreadLayer& weights, int64_t num_rows,
                const Activations& out);

 private:
  ActivationFormat FormatFor(DType dtype) const { return ActivationFormatFor(dtype, activations_); }
  // What of the queries is absorbed, [T]: head h at block h * BlocksFor(nope_dim).
  Activations nope(const ThreadLayer& weights) const;
  // The rank's queries from their latent vectors; they are complete before.
  void ExpandQueries(const Context& context, const ThreadLayer& weights,
                     const LayerVectors& vectors, const Rows& rows);

  const MlaConfig mla_;
  const int num_heads_;
  const float scale_, norm_eps_;
  const ActivationFormat activations_;
  int64_t query_stride_ = 0, absorbed_stride_ = 0, values_stride_ = 0;
  int64_t value_columns_ = 0;  // of a head, whole tiles
  HostBuffer queries_, nope_, absorbed_, attended_, values_;
  NormedRows query_latents_;
};

}  // namespace cairn
