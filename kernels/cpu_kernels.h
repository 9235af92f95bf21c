// The functions that are compiled once per instruction set, as a table chosen at start.
//
// *_avx2.cc and *_avx512.cc include the same .inc files, each in its own namespace. Arguments
// are plain structs without member functions: code that the linker may share between the two (an
// inline function, a std template) could carry AVX-512 instructions onto a machine that lacks them.
// Every function is pure in its arguments and gives the same bits on both. Thread: any. Errors:
// none; callers have checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/activations.h"
#include "kernels/attention_tile.h"
#include "kernels/gated_activation.h"
#include "kernels/rope.h"

namespace cairn {

// MatmulArgs without spans. There is at least one leaf.
struct MatmulCall {
  DType dtype = DType::kF32;
  ActivationFormat format = ActivationFormat::kF32;
  int terms = 1;                       // NumTerms(format)
  const std::byte* weights = nullptr;  // packed tiles
  int64_t num_tiles = 0;
  int64_t tile_bytes = 0;
  int64_t table_bytes = 0;       // of a tile, in front of its blocks
  const std::byte* x = nullptr;  // [num_rows][terms][x_blocks]
  int64_t x_blocks = 0;
  int64_t first_block = 0;  // of a tile and of a row of x
  int64_t num_rows = 0;
  float* out = nullptr;  // of the first tile's first column
  int64_t out_stride = 0;
  bool accumulate = false;
  const int32_t* leaf_begin = nullptr;
  int leaf_lo = 0;
  int leaf_hi = 0;
  // [leaf_hi - leaf_lo] subtrees that end with each leaf: so often its sum, added to the sum that
  // waits on its left, becomes the sum of both.
  const uint8_t* merges = nullptr;
};

struct RmsNormCall {
  const float* x = nullptr;
  const float* weight = nullptr;
  int64_t dim = 0;
  float eps = 0;
  std::byte* out_f32 = nullptr;  // either may be null
  ActivationSlot out_quantised = {};
};

struct GateCall {
  Gate kind = Gate::kSilu;
  const float* gate = nullptr;
  const float* up = nullptr;
  int n = 0;
  ActivationSlot out = {};
};

struct RotateCall {
  RopePairs pairs = RopePairs::kInterleaved;
  const float* angles = nullptr;  // [num_pairs][cos, sin]
  int num_pairs = 0;
  float* values = nullptr;  // one head, in place
};

inline constexpr int kLogitChunk = 64;  // logits that share a maximum or a sum

struct CpuKernels {
  const char* name;
  void (*matmul)(const MatmulCall& call);
  void (*store_activations)(const float* values, int64_t n, const ActivationSlot& out);
  void (*rms_norm)(const RmsNormCall& call);
  void (*gate)(const GateCall& call);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*scale)(float factor, int64_t n, float* values);
  void (*rotate)(const RotateCall& call);
  // Rounds n floats to a KV type, to nearest, ties to even.
  void (*round_to)(DType dtype, const float* values, int64_t n, void* out);

  // Attention; see attention_tile.h for the layouts.
  void (*pack_queries)(const PackQueriesArgs& args);
  void (*attend_tile)(const AttendTileArgs& args);
  // 16 tokens of dim elements, row_bytes apart, become [dim][16].
  void (*transpose_tokens)(DType dtype, const std::byte* rows, int64_t row_bytes, int dim,
                           std::byte* out);
  // values[i] = cap * tanh(values[i] / cap).
  void (*cap)(float cap, int64_t n, float* values);
  // total = total, then part, in this order; a part that saw nothing changes nothing.
  void (*merge_attention)(const float* part, int padded_value_dim, float* total);
  // Divides by the sum of weights and writes one logical shard of value_dim activations.
  void (*finish_attention)(const float* total, int value_dim, const ActivationSlot& out);

  // A row of logits in chunks of kLogitChunk. weight = exp((logit - max) * inverse_temperature);
  // a NaN counts as -infinity.
  void (*chunk_maxima)(const float* logits, int64_t n, float* maxima);
  void (*chunk_sums)(const float* logits, int64_t n, float max, float inverse_temperature,
                     float* sums);  // of weights
  void (*logit_weights)(const float* logits, int64_t n, float max, float inverse_temperature,
                        float* weights);
};

namespace avx2 {
const CpuKernels& Kernels();
void Matmul(const MatmulCall& call);  // takes long to compile: a file of its own
}  // namespace avx2
namespace avx512 {
const CpuKernels& Kernels();
void Matmul(const MatmulCall& call);
}  // namespace avx512

}  // namespace cairn
