// Rotary position embedding of queries and keys, and the append of keys and values to the pool.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/kv_layout.h"

namespace cairn {

// Which elements of a head make a pair: (2i, 2i+1), or (i, i + rotary_dim/2).
enum class RopePairs : uint8_t { kInterleaved, kHalfSplit };

// angles[r][i] = {cos, sin} of positions[r] * inverse_frequency[i], computed in double and rounded
// once, times `scale` (YaRN's attention factor, 1 otherwise). rows: this thread's share.
void RopeAngles(const int32_t* positions, const double* inverse_frequency, int64_t num_frequencies,
                double scale, Range rows, float* angles);

struct RopeAppendArgs {
  KvLayer kv = {};
  float* qkv =
      nullptr;  // [T][qkv_stride]: query heads, then key heads, then value heads, D_true each
  int64_t qkv_stride = 0;
  int num_heads = 0;   // query heads of this rank
  int head_dim = 0;    // D_true, of qkv; kv.head_dim is the same padded to a multiple of 16
  int rotary_dim = 0;  // leading elements that turn; 2 * number of frequencies
  RopePairs pairs = RopePairs::kInterleaved;
  const float* query_norm = nullptr;  // [head_dim] RMSNorm of each head before it turns; or null
  const float* key_norm = nullptr;
  float norm_eps = 0;
  float query_scale = 1;               // multiplied into the rotated queries
  const float* angles = nullptr;       // [T][rotary_dim / 2][cos, sin]
  const int32_t* positions = nullptr;  // [T]
  // [T] block of the pool that holds the row's position; slot = position mod block_tokens.
  const int32_t* blocks = nullptr;
  int64_t num_rows = 0;
};

// Normalises each head of queries and keys (kernels/rms_norm.h) if there are norms, then
// turns them in place (rotate: a' = a*cos - b*sin, b' = a*sin + b*cos, each an fma of a
// rounded product) and stores keys and values, rounded to kv.dtype, in their blocks. Divides
// (row, head) units among threads. Does not Sync.
void RopeAppend(const Context& context, const RopeAppendArgs& args);

}  // namespace cairn
