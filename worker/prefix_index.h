// Finds blocks of the pool by what they hold: the KV of a prefix of tokens.
//
// A block is found by its key (kvstore/key.h), and believed only when parent and tokens are equal
// too: a hit never rests on a hash alone. Only full blocks whose KV has been computed are in here.
// Thread: one, the owner's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "kvstore/key.h"
#include "worker/block_pool.h"

namespace cairn {

// What the pool has of a sequence of tokens.
struct PrefixMatch {
  std::vector<int32_t> blocks;   // hold the first full blocks, in order
  int32_t copy_from = kNoBlock;  // a block that starts with the copy_tokens tokens that follow
  int32_t copy_tokens = 0;
};

class PrefixIndex {
 public:
  PrefixIndex(int32_t num_blocks, int32_t block_tokens);

  // `block` holds `tokens`, block_tokens of them, after what `parent` (a key of this chain or its
  // root) stands for; `key` is their ChildKey. False, without effect, if a block with this key is
  // there (both hold the same, one is enough) or the entry is taken by another key.
  bool Insert(const BlockKey& parent, const BlockKey& key, std::span<const int32_t> tokens,
              int32_t block);
  void Erase(int32_t block);
  // The block with this key, or kNoBlock.
  int32_t Find(const BlockKey& key) const;

  // The longest prefix of `tokens` that is here: first in full blocks, then the block after them
  // with the longest equal start. keys[i] is the key of the i-th full block of the chain from
  // `root`.
  PrefixMatch Match(const BlockKey& root, std::span<const BlockKey> keys,
                    std::span<const int32_t> tokens) const;

  int32_t size() const { return static_cast<int32_t>(by_key_.size()); }

 private:
  // Half of a key; the other half is compared at the block.
  struct ShortKey {
    uint64_t words[2];
    friend bool operator==(const ShortKey&, const ShortKey&) = default;
    template <typename H>
    friend H AbslHashValue(H state, const ShortKey& key) {
      return H::combine(std::move(state), key.words[0]);
    }
  };
  struct Entry {
    BlockKey parent, key;
    std::vector<int32_t> tokens;
  };
  // Where a run of tokens after a parent stands among the children of all parents.
  struct Place {
    const BlockKey& parent;
    std::span<const int32_t> tokens;
  };
  struct ByPlace {
    using is_transparent = void;
    const std::vector<Entry>* entries;
    Place Of(int32_t block) const { return {(*entries)[block].parent, (*entries)[block].tokens}; }
    static Place Of(const Place& place) { return place; }
    static bool Less(const Place& a, const Place& b);
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Less(Of(a), Of(b));
    }
  };

  static ShortKey Shorten(const BlockKey& key);
  void MatchPart(const BlockKey& parent, std::span<const int32_t> tokens, PrefixMatch* match) const;

  const int32_t block_tokens_;
  std::vector<Entry> entries_;  // by block
  absl::flat_hash_map<ShortKey, int32_t> by_key_;
  // Neighbours in this order share the longest starts.
  absl::btree_set<int32_t, ByPlace> by_place_;
};

}  // namespace cairn
