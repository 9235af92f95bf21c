// Memory that PagedAttention works in, of a team and of each of its threads. Internal to kernels/.
//
// Thread: a ThreadScratch belongs to one; the rest is divided by attention.cc. Errors: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/attention_tile.h"
#include "kernels/kv_layout.h"

namespace cairn {

// 64 bytes, so that vectors of floats made of it are aligned.
struct alignas(64) Line {
  float lanes[16];
};

// Of the arguments and of the limits alike.
template <typename Sizes>
int AttentionValueDim(const Sizes& sizes) {
  return sizes.value_dim > 0 ? sizes.value_dim : sizes.head_dim;
}

inline int AttentionGroup(int group, int num_heads, int num_kv_heads) {
  return group > 0 ? group : num_heads / num_kv_heads;
}

class FloatBuffer {
 public:
  explicit FloatBuffer(int64_t floats) : lines_(static_cast<size_t>((floats + 15) / 16)) {}
  float* data() { return lines_.empty() ? nullptr : lines_[0].lanes; }

 private:
  std::vector<Line> lines_;
};

// What one thread needs for itself.
struct ThreadScratch {
  ThreadScratch(int64_t unit_rows, int64_t head_dim, int64_t part_floats, bool is_latent)
      : scores(int64_t{kMaxStripRows} * kAttentionTile),
        queries(unit_rows * head_dim),
        parts(unit_rows * part_floats),
        totals(unit_rows * part_floats),
        latent_keys(is_latent ? kAttentionTile * head_dim : 0),
        begin(static_cast<size_t>(unit_rows)),
        valid(static_cast<size_t>(unit_rows)) {}

  FloatBuffer scores, queries, parts, totals;
  FloatBuffer latent_keys;  // of a tile, [group][D][16] of the pool's type
  std::vector<int32_t> begin, valid;
};

class TeamScratch : public AttentionScratch {
 public:
  explicit TeamScratch(const Limits& of)
      : limits(of),
        group(AttentionGroup(of.group, of.num_heads, of.num_kv_heads)),
        padded_head_dim(PaddedDim(of.head_dim)),
        part_floats(kPartHeader + PaddedDim(AttentionValueDim(of))),
        split_rows(SplitRows()),
        split_parts(split_rows * part_floats),
        carry{FloatBuffer(unit_rows() * part_floats), FloatBuffer(unit_rows() * part_floats)} {
    for (int i = 0; i < of.num_threads; ++i)
      threads.emplace_back(unit_rows(), padded_head_dim, part_floats,
                           of.layout == KvLayout::kLatent);
  }

  int64_t unit_rows() const { return int64_t{kQueryPositions} * group; }

  const Limits limits;
  const int group;
  const int padded_head_dim;
  const int64_t part_floats;
  const int64_t split_rows;  // softmax states in flight
  FloatBuffer split_parts;
  FloatBuffer carry[2];  // of the unit that a round ends in; rounds take turns
  std::vector<ThreadScratch> threads;

 private:
  static constexpr int64_t kMaxSplitBytes = int64_t{4} << 20;

  // As many as the largest step could use, within kMaxSplitBytes or what keeps all threads busy.
  int64_t SplitRows() const {
    if (limits.max_split_units > 0) return std::max(limits.max_split_units * group, unit_rows());
    const int64_t row_bytes = part_floats * int64_t{sizeof(float)};
    const int64_t tiles = (limits.max_context + kAttentionTile - 1) / kAttentionTile;
    const int64_t busy = kWholeUnitsPerThread * int64_t{limits.num_threads} * unit_rows();
    const int64_t bound = std::max(kMaxSplitBytes / row_bytes, busy);
    const int64_t rows = std::max(limits.max_rows, int64_t{1}) * limits.num_heads;
    return std::max(std::min(bound, rows * std::max(tiles, int64_t{1})), unit_rows());
  }
};

}  // namespace cairn
