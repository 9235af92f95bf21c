#include "worker/block_pool.h"

#include <utility>

#include "base/log.h"

namespace cairn {

BlockPool::BlockPool(int32_t num_blocks, std::function<void(int32_t)> on_evict)
    : on_evict_(std::move(on_evict)) {
  CHECK_GE(num_blocks, 1);
  blocks_.resize(num_blocks);
  free_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

int32_t BlockPool::Allocate() {
  if (free_.empty()) {
    if (oldest_ == kNoBlock) return kNoBlock;
    Evict(oldest_);
  }
  const int32_t block = free_.back();
  free_.pop_back();
  CHECK_EQ(blocks_[block].num_references, 0);
  blocks_[block].num_references = 1;
  ++num_held_;
  return block;
}

void BlockPool::Hold(int32_t block) {
  Block& entry = blocks_[block];
  if (entry.num_references == 0) {
    CHECK(entry.cached) << "block " << block << " is free: it has no content to hold";
    Unlink(block);
    ++num_held_;
  }
  ++entry.num_references;
}

void BlockPool::Release(int32_t block) {
  Block& entry = blocks_[block];
  CHECK_GE(entry.num_references, 1);
  if (--entry.num_references > 0) return;
  --num_held_;
  if (!entry.indexed) {
    free_.push_back(block);
    return;
  }
  LinkAsNewest(block);
  // The holder had an equal parent of its own, so this one may have been released before.
  for (int32_t parent = ParentOf(entry); parent != kNoBlock && blocks_[parent].cached;
       parent = ParentOf(blocks_[parent])) {
    Unlink(parent);
    LinkAsNewest(parent);
  }
}

void BlockPool::SetIndexed(int32_t block, int32_t parent) {
  Block& entry = blocks_[block];
  CHECK_GE(entry.num_references, 1);
  CHECK(!entry.indexed);
  CHECK_NE(block, parent);
  entry.indexed = true;
  entry.parent = parent;
  if (parent == kNoBlock) return;
  CHECK(blocks_[parent].indexed);
  entry.parent_generation = blocks_[parent].generation;
}

void BlockPool::EvictAll() {
  while (oldest_ != kNoBlock) Evict(oldest_);
}

void BlockPool::Evict(int32_t block) {
  Block& entry = blocks_[block];
  CHECK(entry.indexed);
  on_evict_(block);
  Unlink(block);
  entry.indexed = false;
  ++entry.generation;
  entry.parent = kNoBlock;
  free_.push_back(block);
}

void BlockPool::Unlink(int32_t block) {
  Block& entry = blocks_[block];
  CHECK(entry.cached);
  (entry.older == kNoBlock ? oldest_ : blocks_[entry.older].newer) = entry.newer;
  (entry.newer == kNoBlock ? newest_ : blocks_[entry.newer].older) = entry.older;
  entry.older = entry.newer = kNoBlock;
  entry.cached = false;
  --num_cached_;
}

void BlockPool::LinkAsNewest(int32_t block) {
  Block& entry = blocks_[block];
  CHECK(!entry.cached);
  entry.older = newest_;
  (newest_ == kNoBlock ? oldest_ : blocks_[newest_].newer) = block;
  newest_ = block;
  entry.cached = true;
  ++num_cached_;
}

int32_t BlockPool::ParentOf(const Block& block) const {
  if (block.parent == kNoBlock) return kNoBlock;
  return blocks_[block.parent].generation == block.parent_generation ? block.parent : kNoBlock;
}

void BlockPool::CheckInvariants() const {
  CHECK_EQ(num_free() + num_held_ + num_cached_, num_blocks());
  int32_t num_held = 0;
  for (const Block& block : blocks_) {
    if (block.num_references > 0) ++num_held;
    CHECK(!block.cached || (block.indexed && block.num_references == 0));
  }
  CHECK_EQ(num_held, num_held_);
  for (const int32_t block : free_) {
    CHECK(blocks_[block].num_references == 0 && !blocks_[block].indexed);
  }
  // In the order of eviction, every child comes before its parent.
  int32_t num_cached = 0;
  std::vector<bool> seen(blocks_.size());
  for (int32_t block = oldest_; block != kNoBlock; block = blocks_[block].newer) {
    const int32_t parent = ParentOf(blocks_[block]);
    CHECK(parent == kNoBlock || !seen[parent]);
    seen[block] = true;
    ++num_cached;
  }
  CHECK_EQ(num_cached, num_cached_);
}

}  // namespace cairn
