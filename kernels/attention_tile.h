// One tile of the context for some query rows of one KV head: what attention.cc asks of each
// instruction set. Internal to kernels/.
//
// Thread: any; a call touches only its arguments. Errors: none, the caller has checked the shapes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/activations.h"
#include "kernels/kv_layout.h"

namespace cairn {

inline constexpr int kGroupTokens = 16;  // tokens that fill a vector: the finest unit of reading
inline constexpr int kTileGroups = kAttentionTile / kGroupTokens;
inline constexpr int kPrefetchGroups = 16;  // how far ahead of its reads a kernel prefetches

// Where the tokens of one tile lie. Group g holds tokens 16 g .. 16 g + 15 of the tile: element
// (d, t) of its keys at groups[g] + d * key_stride + t, element (t, d) of its values at
// groups[num_groups + g] + t * value_stride + d, in elements of `dtype`.
struct AttentionTile {
  DType dtype = DType::kF16;
  int value_dim = 0;     // of a value, padded to a multiple of 16
  int value_stride = 0;  // elements from token to token
  int key_stride = 0;    // elements from dimension to dimension
  int num_groups = 0;
  // In the order they are read: keys, values, then the keys the thread reads next, which are only
  // prefetched. All kPrefetchGroups entries behind the values are valid to prefetch.
  const std::byte* groups[2 * kTileGroups + kPrefetchGroups] = {};
};

// The softmax state of one query row over a range of the context, as floats: the maximum score,
// the sum of weights relative to it, then from kPartHeader on value_dim weighted sums of values.
// A maximum of -infinity means that nothing was seen; sum and values then mean nothing.
inline constexpr int kPartHeader = 16;

struct AttendTileArgs {
  const AttentionTile* tile = nullptr;
  int head_dim = 0;                // elements of a query
  const float* queries = nullptr;  // of num_rows, in the order of PackQueries
  int num_rows = 0;
  // A row sees the tokens from begin (null: from 0) up to valid, which may be <= begin; none is
  // above kAttentionTile.
  const int32_t* begin = nullptr;  // [num_rows]
  const int32_t* valid = nullptr;
  float score_cap = 0;      // c: a score s becomes c * tanh(s / c); 0: it stays
  float* scores = nullptr;  // scratch [kMaxStripRows][kAttentionTile]
  float* parts = nullptr;   // [num_rows][kPartHeader + value_dim], written
};
inline constexpr int kMaxStripRows = 12;

struct PackQueriesArgs {
  const float* const* positions = nullptr;  // query (p, g) at positions[p] + g * head_dim
  int group = 0;     // query heads per KV head; row r is position r / group, head r % group
  int num_rows = 0;  // positions * group
  int head_dim = 0;
  float* out = nullptr;  // [num_rows * head_dim]
};

}  // namespace cairn
