#include "worker/block_pool.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BlockPoolTest : public testing::Test {
 protected:
  explicit BlockPoolTest(int32_t num_blocks = 4)
      : pool_(num_blocks, [this](int32_t block) { evicted_.push_back(block); }) {}
  ~BlockPoolTest() override { pool_.CheckInvariants(); }

  // A chain of indexed blocks, each after the one before, held.
  std::vector<int32_t> Chain(int length, int32_t parent = kNoBundle) {
    std::vector<int32_t> chain;
    for (int i = 0; i < length; ++i) {
      chain.push_back(pool_.Allocate(1));
      pool_.SetIndexed(chain.back(), parent);
      parent = chain.back();
    }
    return chain;
  }
  void ReleaseFromTheEnd(const std::vector<int32_t>& chain) {
    for (auto block = chain.rbegin(); block != chain.rend(); ++block) pool_.Release(*block);
  }

  std::vector<int32_t> evicted_;
  BlockPool pool_;
};

TEST_F(BlockPoolTest, GivesEachBlockOnceAndThenNone) {
  std::vector<int32_t> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool_.Allocate(1));
  std::sort(blocks.begin(), blocks.end());
  EXPECT_THAT(blocks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(pool_.Allocate(1), kNoBundle);
  EXPECT_EQ(pool_.num_held(), 4);
  EXPECT_EQ(pool_.num_available(), 0);
}

TEST_F(BlockPoolTest, AnUnindexedBlockIsFreeWithItsLastReference) {
  const int32_t block = pool_.Allocate(1);
  pool_.Hold(block);
  pool_.Release(block);
  EXPECT_EQ(pool_.num_held(), 1);
  pool_.Release(block);
  EXPECT_EQ(pool_.num_free(), 4);
  EXPECT_THAT(evicted_, IsEmpty());
}

TEST_F(BlockPoolTest, AnIndexedBlockStaysUntilItIsNeeded) {
  const int32_t block = Chain(1)[0];
  pool_.Release(block);
  EXPECT_EQ(pool_.num_cached(), 1);
  for (int i = 0; i < 3; ++i) EXPECT_NE(pool_.Allocate(1), block);
  EXPECT_THAT(evicted_, IsEmpty());
  EXPECT_EQ(pool_.Allocate(1), block);
  EXPECT_THAT(evicted_, ElementsAre(block));
  EXPECT_FALSE(pool_.indexed(block));
}

TEST_F(BlockPoolTest, ACachedBlockThatIsHeldAgainIsNotEvicted) {
  const int32_t block = Chain(1)[0];
  pool_.Release(block);
  pool_.Hold(block);
  EXPECT_EQ(pool_.num_cached(), 0);
  for (int i = 0; i < 3; ++i) pool_.Allocate(1);
  EXPECT_EQ(pool_.Allocate(1), kNoBundle);
  EXPECT_THAT(evicted_, IsEmpty());
}

TEST_F(BlockPoolTest, EvictsTheLeastRecentlyUsedFirst) {
  const int32_t a = Chain(1)[0], b = Chain(1)[0], c = Chain(1)[0];
  for (const int32_t block : {a, b, c}) pool_.Release(block);
  pool_.Hold(a);
  pool_.Release(a);
  for (int i = 0; i < 4; ++i) pool_.Allocate(1);
  EXPECT_THAT(evicted_, ElementsAre(b, c, a));
}

TEST_F(BlockPoolTest, EvictsAChainFromItsEnd) {
  const std::vector<int32_t> chain = Chain(4);
  ReleaseFromTheEnd(chain);
  for (int i = 0; i < 4; ++i) pool_.Allocate(1);
  EXPECT_THAT(evicted_, ElementsAre(chain[3], chain[2], chain[1], chain[0]));
}

// Someone with an equal parent of its own holds a child longer than the indexed parent is held.
TEST_F(BlockPoolTest, AParentReleasedBeforeItsChildIsEvictedAfterIt) {
  const std::vector<int32_t> chain = Chain(3);
  pool_.Release(chain[0]);
  pool_.Release(chain[1]);
  pool_.Release(chain[2]);
  pool_.CheckInvariants();
  for (int i = 0; i < 4; ++i) pool_.Allocate(1);
  EXPECT_THAT(evicted_, ElementsAre(chain[2], chain[1], chain[0]));
}

TEST_F(BlockPoolTest, ABlockUsedAnewIsNoLongerTheParentItWas) {
  const std::vector<int32_t> chain = Chain(2);
  pool_.Release(chain[0]);
  pool_.Allocate(1);
  pool_.Allocate(1);
  EXPECT_EQ(pool_.Allocate(1), chain[0]);  // evicted while its child is held
  pool_.SetIndexed(chain[0], kNoBundle);
  pool_.Release(chain[0]);
  pool_.Release(chain[1]);  // moves no parent
  EXPECT_EQ(pool_.Allocate(1), chain[0]);
}

TEST_F(BlockPoolTest, EvictAllLeavesWhatIsHeld) {
  const int32_t held = Chain(1)[0];
  pool_.Release(Chain(1)[0]);
  pool_.EvictAll();
  EXPECT_EQ(pool_.num_cached(), 0);
  EXPECT_EQ(pool_.num_free(), 3);
  EXPECT_TRUE(pool_.indexed(held));
}

using BlockPoolDeathTest = BlockPoolTest;

TEST_F(BlockPoolDeathTest, AFreeBlockHasNothingToHold) {
  const int32_t block = pool_.Allocate(1);
  pool_.Release(block);
  EXPECT_DEATH(pool_.Hold(block), "no content to hold");
  EXPECT_DEATH(pool_.Release(block), "num_references");
}

// Against a model that keeps plain counts.
TEST(BlockPoolWalkTest, KeepsItsBooksOverRandomWalks) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  int64_t num_evictions = 0;
  for (int walk = 0; walk < 30; ++walk) {
    const auto num_blocks = static_cast<int32_t>(1 + random() % 20);
    std::vector<bool> indexed(num_blocks);
    std::map<int32_t, int> references;
    BlockPool pool(num_blocks, [&](int32_t block) {
      EXPECT_TRUE(indexed[block] && !references.contains(block));
      indexed[block] = false;
      ++num_evictions;
    });
    for (int step = 0; step < 500; ++step) {
      const auto block = static_cast<int32_t>(random() % num_blocks);
      const bool is_held = references.contains(block);
      switch (random() % 4) {
        case 0: {
          const int32_t given = pool.Allocate(1);
          if (given == kNoBundle) {
            EXPECT_EQ(static_cast<int32_t>(references.size()), num_blocks);
            break;
          }
          EXPECT_FALSE(references.contains(given) || indexed[given]);
          references[given] = 1;
          break;
        }
        case 1:
          if (!is_held && !indexed[block]) break;
          pool.Hold(block);
          ++references[block];
          break;
        case 2:
          if (!is_held) break;
          pool.Release(block);
          if (--references[block] == 0) references.erase(block);
          break;
        case 3: {
          if (!is_held || indexed[block]) break;
          const auto parent = static_cast<int32_t>(random() % num_blocks);
          pool.SetIndexed(block, parent != block && indexed[parent] ? parent : kNoBundle);
          indexed[block] = true;
          break;
        }
      }
      EXPECT_EQ(pool.num_held(), static_cast<int32_t>(references.size()));
      pool.CheckInvariants();
    }
  }
  EXPECT_GT(num_evictions, 100);
}

}  // namespace
}  // namespace cairn
