// Finds the bundles of one layer group by what they hold: the KV of a prefix of tokens.
//
// A bundle (worker/block_pool.h) is found by its key (kvstore/key.h), and believed only when parent
// and tokens are equal too: a hit never rests on a hash alone. Only full ones whose KV has been
// computed are in here.
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

// A bundle that starts with the first num_tokens of some tokens.
struct PartMatch {
  int32_t bundle = kNoBundle;
  int32_t num_tokens = 0;
};

class PrefixIndex {
 public:
  // num_bundles: ids are below it.
  PrefixIndex(int32_t num_bundles, int32_t block_tokens);
  PrefixIndex(const PrefixIndex&) = delete;  // by_place_ knows where entries_ is
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // `bundle` holds `tokens`, block_tokens of them, after what `parent` (a key of this chain or its
  // root) stands for; `key` is their ChildKey. False, without effect, if a bundle with this key is
  // there (both hold the same, one is enough) or the entry is taken by another key.
  bool Insert(const BlockKey& parent, const BlockKey& key, std::span<const int32_t> tokens,
              int32_t bundle);
  void Erase(int32_t bundle);
  // The bundle with this key, or kNoBundle.
  int32_t Find(const BlockKey& key) const;
  // The same, if it holds just these tokens after this parent.
  int32_t FindExact(const BlockKey& parent, const BlockKey& key,
                    std::span<const int32_t> tokens) const;

  // Of the bundles after `parent`, the one with the longest start equal to that of `tokens`.
  PartMatch MatchPart(const BlockKey& parent, std::span<const int32_t> tokens) const;

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
    Place Of(int32_t bundle) const {
      return {(*entries)[bundle].parent, (*entries)[bundle].tokens};
    }
    static Place Of(const Place& place) { return place; }
    static bool Less(const Place& a, const Place& b);
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Less(Of(a), Of(b));
    }
  };

  static ShortKey Shorten(const BlockKey& key);

  const int32_t block_tokens_;
  std::vector<Entry> entries_;  // by bundle
  absl::flat_hash_map<ShortKey, int32_t> by_key_;
  // Neighbours in this order share the longest starts.
  absl::btree_set<int32_t, ByPlace> by_place_;
};

}  // namespace cairn
