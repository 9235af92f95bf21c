// The books of the KV pool: which blocks are free, which are held, and which are cached.
//
// Blocks are given out in bundles: one block for each table of a layer group, all for the same
// tokens (worker/kv_group.h); in most models a bundle is one block. A bundle is held while a
// reference counts it. When the last one goes, an indexed bundle (its content can be found again:
// worker/prefix_index.h) stays as cached and is evicted only when blocks are needed and too few are
// free; any other bundle's blocks are free at once. Cached bundles are evicted least recently used
// first and never before a cached child. Holders release a chain of bundles from its end to its
// start, which alone nearly gives that order.
//
// Invariant, in blocks: free + held + cached = num_blocks.
// Thread: one, the owner's. Every operation takes constant time (but see Release).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace cairn {

inline constexpr int32_t kNoBundle = -1;

class BlockPool {
 public:
  // `on_evict` is told of each indexed bundle that loses its content, before its blocks are used
  // again.
  BlockPool(int32_t num_blocks, std::function<void(int32_t bundle)> on_evict);

  int32_t num_blocks() const { return static_cast<int32_t>(bundles_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_blocks_.size()); }
  int32_t num_held() const { return num_held_; }
  int32_t num_cached() const { return num_cached_; }
  // How many blocks Allocate can give.
  int32_t num_available() const { return num_free() + num_cached_; }

  // A bundle of so many blocks with one reference and no content, or kNoBundle if too many are
  // held. Ids are below num_blocks; a bundle of one block has its id, if all are of one.
  int32_t Allocate(int32_t num_blocks);
  // Of a held or cached bundle.
  std::span<const int32_t> blocks(int32_t bundle) const { return bundles_[bundle].blocks; }
  // One more reference to a held or cached bundle.
  void Hold(int32_t bundle);
  // One reference less. If the bundle becomes cached while its parent already is, the parents move
  // behind it in the order of eviction: a walk as long as their chain.
  void Release(int32_t bundle);
  // The same for a bundle that is hardly wanted again: the first to be evicted. Its parent must
  // have been released so, or not be cached.
  void ReleaseAsOldest(int32_t bundle);

  // The held bundle's content can be found from now on, after that of `parent` (kNoBundle: at the
  // start of a sequence, or the parent is gone).
  void SetIndexed(int32_t bundle, int32_t parent);
  bool indexed(int32_t bundle) const { return bundles_[bundle].indexed; }

  // Evicts everything cached.
  void EvictAll();

  // Ends the process if the books are wrong. Takes time linear in the pool.
  void CheckInvariants() const;

 private:
  struct Bundle {
    std::vector<int32_t> blocks;  // empty: the id is free
    int32_t num_references = 0;
    bool indexed = false;
    bool cached = false;  // in the list of cached bundles
    // Goes up when the content is lost, so that a child does not take the next content for its
    // parent's.
    uint32_t generation = 0;
    int32_t parent = kNoBundle;
    uint32_t parent_generation = 0;
    int32_t older = kNoBundle, newer = kNoBundle;  // neighbours in the list of cached bundles
  };

  // Whether it was the last reference, and the content is to be kept.
  bool DropReference(int32_t bundle);
  void Free(int32_t bundle);
  void Evict(int32_t bundle);
  void Unlink(int32_t bundle);
  // Between two neighbours of the list of cached bundles; kNoBundle: at that end.
  void Link(int32_t bundle, int32_t older, int32_t newer);
  void LinkAsNewest(int32_t bundle) { Link(bundle, newest_, kNoBundle); }
  void LinkAsOldest(int32_t bundle) { Link(bundle, kNoBundle, oldest_); }
  int32_t size(int32_t bundle) const { return static_cast<int32_t>(blocks(bundle).size()); }
  // The parent of an indexed bundle if its content is still there, else kNoBundle.
  int32_t ParentOf(const Bundle& bundle) const;

  const std::function<void(int32_t)> on_evict_;
  std::vector<Bundle> bundles_;  // by id
  std::vector<int32_t> free_ids_, free_blocks_;
  int32_t oldest_ = kNoBundle, newest_ = kNoBundle;  // ends of the list of cached bundles
  int32_t num_held_ = 0;
  int32_t num_cached_ = 0;
};

}  // namespace cairn
