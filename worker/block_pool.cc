#include "worker/block_pool.h"

#include <utility>

#include "base/log.h"

namespace cairn {

BlockPool::BlockPool(int32_t num_blocks, std::function<void(int32_t)> on_evict)
    : on_evict_(std::move(on_evict)) {
  CHECK_GE(num_blocks, 1);
  bundles_.resize(num_blocks);
  free_blocks_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_blocks_.push_back(block);
  free_ids_ = free_blocks_;
}

int32_t BlockPool::Allocate(int32_t num_blocks) {
  CHECK_GE(num_blocks, 1);
  if (num_available() < num_blocks) return kNoBundle;
  while (num_free() < num_blocks) Evict(oldest_);
  const int32_t id = free_ids_.back();
  free_ids_.pop_back();
  Bundle& bundle = bundles_[id];
  CHECK_EQ(bundle.num_references, 0);
  bundle.num_references = 1;
  bundle.blocks.assign(free_blocks_.rbegin(), free_blocks_.rbegin() + num_blocks);
  free_blocks_.resize(free_blocks_.size() - num_blocks);
  num_held_ += num_blocks;
  return id;
}

void BlockPool::Hold(int32_t bundle) {
  Bundle& entry = bundles_[bundle];
  if (entry.num_references == 0) {
    CHECK(entry.cached) << "bundle " << bundle << " is free: it has no content to hold";
    Unlink(bundle);
    num_held_ += size(bundle);
  }
  ++entry.num_references;
}

bool BlockPool::DropReference(int32_t bundle) {
  Bundle& entry = bundles_[bundle];
  CHECK_GE(entry.num_references, 1);
  if (--entry.num_references > 0) return false;
  num_held_ -= size(bundle);
  if (entry.indexed) return true;
  Free(bundle);
  return false;
}

void BlockPool::Release(int32_t bundle) {
  if (!DropReference(bundle)) return;
  LinkAsNewest(bundle);
  // The holder had an equal parent of its own, so this one may have been released before.
  for (int32_t parent = ParentOf(bundles_[bundle]); parent != kNoBundle && bundles_[parent].cached;
       parent = ParentOf(bundles_[parent])) {
    Unlink(parent);
    LinkAsNewest(parent);
  }
}

void BlockPool::ReleaseAsOldest(int32_t bundle) {
  if (DropReference(bundle)) LinkAsOldest(bundle);
}

void BlockPool::SetIndexed(int32_t bundle, int32_t parent) {
  Bundle& entry = bundles_[bundle];
  CHECK_GE(entry.num_references, 1);
  CHECK(!entry.indexed);
  CHECK_NE(bundle, parent);
  entry.indexed = true;
  entry.parent = parent;
  if (parent == kNoBundle) return;
  CHECK(bundles_[parent].indexed);
  entry.parent_generation = bundles_[parent].generation;
}

void BlockPool::EvictAll() {
  while (oldest_ != kNoBundle) Evict(oldest_);
}

void BlockPool::Evict(int32_t bundle) {
  Bundle& entry = bundles_[bundle];
  CHECK(entry.indexed);
  on_evict_(bundle);
  Unlink(bundle);
  entry.indexed = false;
  ++entry.generation;
  entry.parent = kNoBundle;
  Free(bundle);
}

// In the order that gives a bundle of one its block's id again.
void BlockPool::Free(int32_t bundle) {
  std::vector<int32_t>& blocks = bundles_[bundle].blocks;
  free_blocks_.insert(free_blocks_.end(), blocks.rbegin(), blocks.rend());
  blocks.clear();
  free_ids_.push_back(bundle);
}

void BlockPool::Unlink(int32_t bundle) {
  Bundle& entry = bundles_[bundle];
  CHECK(entry.cached);
  (entry.older == kNoBundle ? oldest_ : bundles_[entry.older].newer) = entry.newer;
  (entry.newer == kNoBundle ? newest_ : bundles_[entry.newer].older) = entry.older;
  entry.older = entry.newer = kNoBundle;
  entry.cached = false;
  num_cached_ -= size(bundle);
}

void BlockPool::Link(int32_t bundle, int32_t older, int32_t newer) {
  Bundle& entry = bundles_[bundle];
  CHECK(!entry.cached);
  entry.older = older;
  entry.newer = newer;
  (older == kNoBundle ? oldest_ : bundles_[older].newer) = bundle;
  (newer == kNoBundle ? newest_ : bundles_[newer].older) = bundle;
  entry.cached = true;
  num_cached_ += size(bundle);
}

int32_t BlockPool::ParentOf(const Bundle& bundle) const {
  if (bundle.parent == kNoBundle) return kNoBundle;
  return bundles_[bundle.parent].generation == bundle.parent_generation ? bundle.parent : kNoBundle;
}

void BlockPool::CheckInvariants() const {
  CHECK_EQ(num_free() + num_held_ + num_cached_, num_blocks());
  int32_t num_held = 0;
  std::vector<bool> used(bundles_.size());
  for (const Bundle& bundle : bundles_) {
    if (bundle.num_references > 0) num_held += static_cast<int32_t>(bundle.blocks.size());
    CHECK(!bundle.cached || (bundle.indexed && bundle.num_references == 0));
    CHECK_EQ(bundle.blocks.empty(), bundle.num_references == 0 && !bundle.cached);
    for (const int32_t block : bundle.blocks) {
      CHECK(!used[block]) << "a block is in two bundles: " << block;
      used[block] = true;
    }
  }
  CHECK_EQ(num_held, num_held_);
  for (const int32_t block : free_blocks_) CHECK(!used[block]) << block;
  // In the order of eviction, every child comes before its parent.
  int32_t num_cached = 0;
  std::vector<bool> seen(bundles_.size());
  for (int32_t bundle = oldest_; bundle != kNoBundle; bundle = bundles_[bundle].newer) {
    const int32_t parent = ParentOf(bundles_[bundle]);
    CHECK(parent == kNoBundle || !seen[parent]);
    seen[bundle] = true;
    num_cached += size(bundle);
  }
  CHECK_EQ(num_cached, num_cached_);
}

}  // namespace cairn
