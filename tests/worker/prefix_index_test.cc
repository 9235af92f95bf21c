#include "worker/prefix_index.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kBlockTokens = 4;
using Tokens = std::vector<int32_t>;

BlockKey Root(const std::string& salt = "") { return ScopeRoot(BlockKey(), {.cache_salt = salt}); }

std::vector<BlockKey> KeysOf(const BlockKey& root, const Tokens& tokens) {
  std::vector<BlockKey> keys;
  for (size_t i = 0; i + kBlockTokens <= tokens.size(); i += kBlockTokens) {
    keys.push_back(
        ChildKey(keys.empty() ? root : keys.back(), std::span(tokens).subspan(i, kBlockTokens)));
  }
  return keys;
}

class PrefixIndexTest : public testing::Test {
 protected:
  // Indexes all full blocks of `tokens` in blocks first, first + 1, ...
  void InsertAll(const Tokens& tokens, int32_t first, const std::string& salt = "") {
    const std::vector<BlockKey> keys = KeysOf(Root(salt), tokens);
    for (size_t i = 0; i < keys.size(); ++i) {
      index_.Insert(i == 0 ? Root(salt) : keys[i - 1], keys[i],
                    std::span(tokens).subspan(i * kBlockTokens, kBlockTokens),
                    first + static_cast<int32_t>(i));
    }
  }
  // The bundles of the first full blocks, then the one that starts with what follows them.
  struct Found {
    std::vector<int32_t> blocks = {};
    int32_t copy_from = kNoBundle, copy_tokens = 0;
  };
  Found Match(const Tokens& tokens, const std::string& salt = "") {
    Found found;
    BlockKey parent = Root(salt);
    std::span<const int32_t> rest = tokens;
    for (const BlockKey& key : KeysOf(parent, tokens)) {
      const int32_t bundle = index_.FindExact(parent, key, rest.first(kBlockTokens));
      if (bundle == kNoBundle) break;
      found.blocks.push_back(bundle);
      rest = rest.subspan(kBlockTokens);
      parent = key;
    }
    const PartMatch part = index_.MatchPart(parent, rest);
    found.copy_from = part.bundle;
    found.copy_tokens = part.num_tokens;
    return found;
  }

  PrefixIndex index_{100, kBlockTokens};
};

TEST_F(PrefixIndexTest, FindsNothingInAnEmptyIndex) {
  const Found match = Match({1, 2, 3, 4, 5});
  EXPECT_THAT(match.blocks, IsEmpty());
  EXPECT_EQ(match.copy_from, kNoBundle);
  EXPECT_EQ(match.copy_tokens, 0);
}

TEST_F(PrefixIndexTest, FindsTheLongestChainOfFullBlocks) {
  InsertAll({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 10);
  EXPECT_THAT(Match({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}).blocks, ElementsAre(10, 11, 12));
  EXPECT_THAT(Match({1, 2, 3, 4, 5, 6, 7, 8, 0}).blocks, ElementsAre(10, 11));
  EXPECT_THAT(Match({1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 11, 12}).blocks, ElementsAre(10));
}

TEST_F(PrefixIndexTest, ABlockIsFoundAfterItsOwnPrefixOnly) {
  InsertAll({1, 2, 3, 4, 5, 6, 7, 8}, 10);
  EXPECT_THAT(Match({5, 6, 7, 8}).blocks, IsEmpty());
  EXPECT_THAT(Match({1, 2, 3, 5, 5, 6, 7, 8}).blocks, IsEmpty());
}

TEST_F(PrefixIndexTest, AnotherSaltFindsNothing) {
  InsertAll({1, 2, 3, 4, 5, 6, 7, 8}, 10, "a");
  const Found other = Match({1, 2, 3, 4, 5, 6, 7, 8}, "b");
  EXPECT_THAT(other.blocks, IsEmpty());
  EXPECT_EQ(other.copy_from, kNoBundle);
  EXPECT_THAT(Match({1, 2, 3, 4, 5, 6, 7, 8}, "a").blocks, ElementsAre(10, 11));
}

TEST_F(PrefixIndexTest, OffersTheBlockWithTheLongestEqualStartForCopy) {
  InsertAll({1, 2, 3, 4, 5, 6, 7, 8}, 10);
  const auto insert_child = [&](const Tokens& child, int32_t block) {
    Tokens tokens = {1, 2, 3, 4};
    tokens.insert(tokens.end(), child.begin(), child.end());
    const std::vector<BlockKey> keys = KeysOf(Root(), tokens);
    EXPECT_TRUE(index_.Insert(keys[0], keys[1], child, block));
  };
  insert_child({5, 6, 9, 9}, 20);
  insert_child({5, 0, 0, 0}, 21);
  insert_child({0, 6, 7, 8}, 22);
  struct Case {
    Tokens tail;
    int32_t block, tokens;
  };
  const std::vector<Case> cases = {
      {{5, 6, 7, 9}, 11, 3},        {{5, 6, 7}, 11, 3}, {{5, 6, 9, 8}, 20, 3},
      {{5, 0, 0, 1}, 21, 3},        {{5, 0}, 21, 2},    {{0}, 22, 1},
      {{6, 6, 7, 8}, kNoBundle, 0}, {{}, kNoBundle, 0}};
  for (const Case& c : cases) {
    Tokens tokens = {1, 2, 3, 4};
    tokens.insert(tokens.end(), c.tail.begin(), c.tail.end());
    const Found match = Match(tokens);
    EXPECT_THAT(match.blocks, ElementsAre(10));
    EXPECT_EQ(match.copy_from, c.block) << testing::PrintToString(c.tail);
    EXPECT_EQ(match.copy_tokens, c.tokens) << testing::PrintToString(c.tail);
  }
}

TEST_F(PrefixIndexTest, KeepsTheFirstOfTwoEqualBlocks) {
  const Tokens tokens = {1, 2, 3, 4};
  const BlockKey key = ChildKey(Root(), tokens);
  EXPECT_TRUE(index_.Insert(Root(), key, tokens, 10));
  EXPECT_FALSE(index_.Insert(Root(), key, tokens, 11));
  EXPECT_EQ(index_.Find(key), 10);
  EXPECT_EQ(index_.size(), 1);
}

TEST_F(PrefixIndexTest, ForgetsAnErasedBlockAndStopsThere) {
  InsertAll({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 10);
  index_.Erase(11);
  EXPECT_THAT(Match({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).blocks, ElementsAre(10));
  // Computed again in another block, it leads to its old child again.
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<BlockKey> keys = KeysOf(Root(), tokens);
  EXPECT_TRUE(index_.Insert(keys[0], keys[1], std::span(tokens).subspan(4), 50));
  EXPECT_THAT(Match({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).blocks, ElementsAre(10, 50, 12));
}

// The key says yes, the tokens say no: whoever can make keys collide gains nothing.
TEST_F(PrefixIndexTest, DoesNotBelieveAKeyWhoseTokensDiffer) {
  const Tokens stored = {1, 2, 3, 4}, asked = {9, 9, 9, 9};
  const BlockKey key = ChildKey(Root(), asked);
  EXPECT_TRUE(index_.Insert(Root(), key, stored, 10));
  EXPECT_EQ(index_.FindExact(Root(), key, asked), kNoBundle);
}

TEST_F(PrefixIndexTest, DoesNotBelieveAKeyWhoseParentDiffers) {
  const Tokens tokens = {1, 2, 3, 4};
  const BlockKey key = ChildKey(Root(), tokens);
  EXPECT_TRUE(index_.Insert(Root("other"), key, tokens, 10));
  EXPECT_EQ(index_.FindExact(Root(), key, tokens), kNoBundle);
}

TEST_F(PrefixIndexTest, KeysThatShareTheirFirstHalfAreToldApart) {
  BlockKey one = ChildKey(Root(), Tokens{1, 2, 3, 4});
  BlockKey two = one;
  two.bytes[31] ^= 1;
  EXPECT_TRUE(index_.Insert(Root(), one, Tokens{1, 2, 3, 4}, 10));
  EXPECT_EQ(index_.Find(two), kNoBundle);
  EXPECT_FALSE(index_.Insert(Root(), two, Tokens{5, 6, 7, 8}, 11));
  EXPECT_EQ(index_.Find(one), 10);
}

// Against a model that compares with every block.
TEST_F(PrefixIndexTest, MatchesLikeASearchThroughEverything) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::map<int32_t, Tokens> model;  // block -> all tokens up to its end
  const auto random_tokens = [&](size_t length) {
    Tokens tokens(length);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2);
    return tokens;
  };
  int64_t num_matched = 0;
  for (int step = 0; step < 2000; ++step) {
    const Tokens tokens = random_tokens(random() % 14);
    const std::vector<BlockKey> keys = KeysOf(Root(), tokens);
    const auto block = static_cast<int32_t>(random() % 100);
    if (model.erase(block) != 0) index_.Erase(block);
    if (!keys.empty() && random() % 2 == 0) {
      const Tokens whole(tokens.begin(), tokens.begin() + keys.size() * kBlockTokens);
      const bool is_new = std::none_of(model.begin(), model.end(),
                                       [&](const auto& entry) { return entry.second == whole; });
      const BlockKey& parent = keys.size() == 1 ? Root() : keys[keys.size() - 2];
      EXPECT_EQ(index_.Insert(parent, keys.back(), std::span(whole).last(kBlockTokens), block),
                is_new);
      if (is_new) model[block] = whole;
    }
    const Found match = Match(tokens);
    size_t length = 0;  // tokens in full blocks
    for (const int32_t found : match.blocks) {
      length += kBlockTokens;
      EXPECT_EQ(model.at(found), Tokens(tokens.begin(), tokens.begin() + length));
    }
    size_t best = 0;
    for (const auto& [other, whole] : model) {
      if (whole.size() != length + kBlockTokens) continue;
      const size_t common =
          std::mismatch(tokens.begin(), tokens.end(), whole.begin(), whole.end()).first -
          tokens.begin();
      if (common >= length) best = std::max(best, common - length);
    }
    EXPECT_EQ(match.copy_tokens, static_cast<int32_t>(best));
    num_matched += static_cast<int64_t>(length) + match.copy_tokens;
  }
  EXPECT_GT(num_matched, 300);
}

}  // namespace
}  // namespace cairn
