// The books of the KV pool: which blocks are free, which are held, and which are cached.
//
// A block is held while a reference counts it. When the last one goes, an indexed block (its
// content can be found again: worker/prefix_index.h) stays as cached and is evicted only when a
// block is needed and none is free; any other block is free at once. Cached blocks are evicted
// least recently used first and never before a cached child. Holders release a chain of blocks from
// its end to its start, which alone nearly gives that order.
//
// Invariant: free + held + cached = num_blocks.
// Thread: one, the owner's. Every operation takes constant time (but see Release).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace cairn {

inline constexpr int32_t kNoBlock = -1;

class BlockPool {
 public:
  // `on_evict` is told of each indexed block that loses its content, before it is used again.
  BlockPool(int32_t num_blocks, std::function<void(int32_t block)> on_evict);

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_held() const { return num_held_; }
  int32_t num_cached() const { return num_cached_; }
  // How many blocks Allocate can give.
  int32_t num_available() const { return num_free() + num_cached_; }

  // A block with one reference and no content, or kNoBlock if all are held.
  int32_t Allocate();
  // One more reference to a held or cached block.
  void Hold(int32_t block);
  // One reference less. If the block becomes cached while its parent already is, the parents move
  // behind it in the order of eviction: a walk as long as their chain.
  void Release(int32_t block);

  // The held block's content can be found from now on, after that of `parent` (kNoBlock: at the
  // start of a sequence).
  void SetIndexed(int32_t block, int32_t parent);
  bool indexed(int32_t block) const { return blocks_[block].indexed; }

  // Evicts everything cached.
  void EvictAll();

  // Ends the process if the books are wrong. Takes time linear in the pool.
  void CheckInvariants() const;

 private:
  struct Block {
    int32_t num_references = 0;
    bool indexed = false;
    bool cached = false;  // in the list of cached blocks
    // Goes up when the content is lost, so that a child does not take the next content for its
    // parent's.
    uint32_t generation = 0;
    int32_t parent = kNoBlock;
    uint32_t parent_generation = 0;
    int32_t older = kNoBlock, newer = kNoBlock;  // neighbours in the list of cached blocks
  };

  void Evict(int32_t block);
  void Unlink(int32_t block);
  void LinkAsNewest(int32_t block);
  // The parent of an indexed block if its content is still there, else kNoBlock.
  int32_t ParentOf(const Block& block) const;

  const std::function<void(int32_t)> on_evict_;
  std::vector<Block> blocks_;
  std::vector<int32_t> free_;
  int32_t oldest_ = kNoBlock, newest_ = kNoBlock;  // ends of the list of cached blocks
  int32_t num_held_ = 0;
  int32_t num_cached_ = 0;
};

}  // namespace cairn
