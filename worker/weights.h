// A rank's share of a model's weights, repacked at load into the lane order of the kernels.
//
// Each thread of the rank owns fixed rows of every matrix, laid out in one arena in the order a
// step reads them: the memory stream of a decode step is one sequential sweep per thread.
// Thread: loaded by one thread (which uses the team); read-only afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "worker/shard_plan.h"

namespace cairn {

// One thread's part of a matrix whose rows may be of several types (a file's choice per tensor).
using MatrixParts = std::vector<PackedMatrix>;

// Units of 32 ffn columns: two tiles of gate rows, then the two tiles of the same up rows.
struct GateUpWeights {
  PackedMatrix gate, up;   // of the thread's first unit, 2 tiles each
  int64_t unit_bytes = 0;  // from one unit to the next
  Range units;             // this thread's, counted from the rank's first
};

// A gated feed-forward network.
struct FfnWeights {
  GateUpWeights gate_up;
  PackedMatrix down;  // K: the rank's ffn columns
};

struct ThreadLayer {
  // Rows: the rank's query heads, key heads, value heads. Latent attention: the latent vector of
  // the queries (or the rank's query heads, if they have none), then what is cached.
  MatrixParts qkv;
  PackedMatrix query_up;               // from the latent vector: the rank's query heads
  std::vector<PackedMatrix> key_up;    // [own head] from a query to the latent vector
  std::vector<PackedMatrix> value_up;  // [own head] from the latent vector to a value
  // [own head] from the latent vector to the part of a key that does not turn, if asked for
  std::vector<PackedMatrix> key_expand;
  PackedMatrix output;  // K: the rank's query heads, each a segment
  FfnWeights ffn;       // of a layer with experts: the network beside them
  PackedMatrix router;
  std::vector<FfnWeights> experts;  // [own expert]
};

struct ThreadWeights {
  HostBuffer arena;
  std::vector<ThreadLayer> layers;
  PackedMatrix head;  // rows: the rank's vocabulary
};

// What is read row by row stays as float32, one copy a rank.
struct LayerVectors {
  std::vector<float> attention_norm, ffn_norm;            // [model_dim]
  std::vector<float> post_attention_norm, post_ffn_norm;  // [model_dim], or empty
  std::vector<float> qkv_bias;                            // of the rank's rows of qkv, or empty
  std::vector<float> query_norm, key_norm;                // [head_dim], or empty
  std::vector<float> query_latent_norm, latent_norm;      // of latent attention
  std::vector<float> router_bias;                         // [num_experts], or empty
};

struct RankWeights {
  std::vector<ThreadWeights> threads;
  std::vector<LayerVectors> layers;
  std::vector<float> final_norm;
  const Tensor* embedding = nullptr;  // in the mapped file
  int64_t packed_bytes = 0;
  int64_t read_bytes = 0;  // of the file
};

// Rows of the rank's product ThreadLayer::qkv, not rounded up to tiles.
int64_t QkvRows(const ModelConfig& config, const RankShard& shard);

// `on_progress` is called on the calling thread with packed bytes done and in total.
// expand_keys: latent attention gets ThreadLayer::key_expand too.
// Errors: those of FindWeight; ResourceExhausted if the memory is not there.
absl::StatusOr<RankWeights> LoadRankWeights(
    const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
    ThreadTeam& team, const std::function<void(int64_t, int64_t)>& on_progress,
    bool expand_keys = false);

}  // namespace cairn
