// The blocks of one sequence: in each layer group the bundles of its tokens, of which those that
// lie wholly before the group's window are given back while it runs.
//
// Thread: one, the scheduler's; a plain class over its pool and indexes.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kvstore/key.h"
#include "worker/block_pool.h"
#include "worker/kv_group.h"
#include "worker/prefix_index.h"
#include "worker/step.h"

namespace cairn {

// The bundles of one sequence in one group. Bundle i holds the tokens of block i.
struct GroupBlocks {
  int32_t first = 0;  // held from here on; those before are kNoBundle
  std::vector<int32_t> bundles = {};

  int32_t end() const { return static_cast<int32_t>(bundles.size()); }
};
using SequenceBlocks = std::vector<GroupBlocks>;  // by group

// What the pool has of a sequence of tokens, in every group: the blocks that the token after them
// sees, then the start of a block that all groups have.
struct PrefixMatch {
  int32_t num_blocks = 0;
  int32_t copy_tokens = 0;
  SequenceBlocks groups = {};           // each ends at num_blocks
  std::vector<int32_t> copy_from = {};  // [group], empty without a copy
};

// The pool of a group of ranks, with what can be found in it.
class KvBooks {
 public:
  struct Options {
    int32_t num_blocks = 0;
    int32_t block_tokens = 0;
    int32_t max_step_tokens = 0;
    std::vector<KvGroup> groups;
  };
  explicit KvBooks(const Options& options);

  const BlockPool& pool() const { return pool_; }
  void EvictAll() { pool_.EvictAll(); }

  // The longest prefix of `tokens` that is here. keys[i] is the key of the i-th full block of the
  // chain from `root`.
  PrefixMatch Match(const BlockKey& root, std::span<const BlockKey> keys,
                    std::span<const int32_t> tokens) const;
  // The blocks of a new sequence of num_tokens tokens: those of the match and new ones, as many as
  // it may hold at first. Gives up the copy if it is in the way. False, without effect, if the pool
  // does not have them and `spare_rows` blocks of every table beside.
  bool Take(PrefixMatch* match, int32_t num_tokens, int32_t spare_rows, SequenceBlocks* blocks);
  void Release(SequenceBlocks* blocks);
  void Release(std::vector<int32_t>* bundles);

  // Gives back what a sequence with so many computed tokens no longer sees.
  void Slide(int32_t num_computed, SequenceBlocks* blocks);
  // Takes what it may hold of num_tokens tokens and does not have. Returns up to which token there
  // are blocks now: short of num_tokens if the pool has no more, or if a window must slide first.
  // Notes what was taken in `appends`.
  int32_t Extend(int32_t num_computed, int32_t num_tokens, int32_t slot, SequenceBlocks* blocks,
                 std::vector<BlockAppend>* appends);

  // Block `index` of the sequence is full and computed: makes it findable in every group that holds
  // it. An equal one that is there already stays the only one that is found.
  void Index(const BlockKey& parent, const BlockKey& key, std::span<const int32_t> tokens,
             int32_t index, const SequenceBlocks& blocks);

  // For the ranks.
  std::vector<TableStart> Tables(const SequenceBlocks& blocks) const;
  void AppendCopies(const PrefixMatch& match, const SequenceBlocks& blocks,
                    std::vector<BlockCopy>* copies) const;

 private:
  int32_t num_groups() const { return static_cast<int32_t>(options_.groups.size()); }
  int32_t BlocksFor(int32_t num_tokens) const {
    return (num_tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  // The first block that the token at `position` sees.
  int32_t FirstSeen(int32_t group, int32_t position) const {
    return FirstSeenToken(options_.groups[group], position) / options_.block_tokens;
  }
  // Where the blocks end that a sequence may hold.
  int32_t EndOf(int32_t group, int32_t num_computed, int32_t num_tokens) const;
  std::vector<int32_t> MatchFull(int32_t group, const BlockKey& root,
                                 std::span<const BlockKey> keys, std::span<const int32_t> tokens,
                                 int32_t most) const;
  int32_t MatchWindows(const BlockKey& root, std::span<const BlockKey> keys,
                       std::span<const int32_t> tokens, int32_t most) const;
  int32_t Exact(int32_t group, const BlockKey& root, std::span<const BlockKey> keys,
                std::span<const int32_t> tokens, int32_t index) const;
  void MatchCopy(const BlockKey& parent, std::span<const int32_t> tokens, PrefixMatch* match) const;
  int32_t NewBlocks(const PrefixMatch& match, int32_t num_tokens) const;
  int32_t Allocate(int32_t group);

  const Options options_;
  std::deque<PrefixIndex> indexes_;       // by group; never moved
  std::vector<int32_t> group_of_bundle_;  // by id
  BlockPool pool_;
};

// The most blocks that one sequence of so many tokens holds.
int64_t MostBlocksOfSequence(const KvBooks::Options& options, int64_t num_tokens);
// The most tokens of one sequence that the pool can hold.
int32_t MaxTokensInPool(const KvBooks::Options& options);

}  // namespace cairn
