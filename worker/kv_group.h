// How the KV of a model is divided among block tables.
//
// A layer group is the layers that see the same window: they need the blocks of the same tokens at
// the same time. The pool has blocks of one size, for as many layers as divides every group; so a
// group has one table or several, and the blocks of its tables for the same tokens are taken, found
// and given back together, as a bundle. Most models have one group with one table.
// Thread: any; plain values.
#pragma once

#include <cstdint>

namespace cairn {

inline constexpr int32_t kMaxKvGroups = 64;
inline constexpr int32_t kMaxTables = 4096;  // of a group

struct KvGroup {
  int32_t window = 0;  // tokens that a position sees, itself included; 0: all before it
  int32_t num_tables = 1;

  bool operator==(const KvGroup&) const = default;
};

// The first token that position `position` of the group sees.
constexpr int32_t FirstSeenToken(const KvGroup& group, int32_t position) {
  return group.window == 0 || position < group.window ? 0 : position - group.window + 1;
}

// The most blocks that one sequence holds in a table of the group while it computes steps of up to
// max_step_tokens, if it never holds more than `num_blocks`.
constexpr int32_t MostBlocksHeld(const KvGroup& group, int32_t num_blocks, int32_t block_tokens,
                                 int32_t max_step_tokens) {
  if (group.window == 0) return num_blocks;
  const int64_t tokens = int64_t{group.window} - 1 + max_step_tokens;
  const int64_t blocks = (tokens + block_tokens - 1) / block_tokens + 1;
  return blocks < num_blocks ? static_cast<int32_t>(blocks) : num_blocks;
}

}  // namespace cairn
