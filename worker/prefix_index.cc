#include "worker/prefix_index.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/log.h"

namespace cairn {
namespace {

int32_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t limit = std::min(a.size(), b.size());
  return static_cast<int32_t>(std::mismatch(a.begin(), a.begin() + limit, b.begin()).first -
                              a.begin());
}

}  // namespace

bool PrefixIndex::ByPlace::Less(const Place& a, const Place& b) {
  const auto order = a.parent <=> b.parent;
  if (order != 0) return order < 0;
  return std::lexicographical_compare(a.tokens.begin(), a.tokens.end(), b.tokens.begin(),
                                      b.tokens.end());
}

PrefixIndex::PrefixIndex(int32_t num_blocks, int32_t block_tokens)
    : block_tokens_(block_tokens), entries_(num_blocks), by_place_(ByPlace{&entries_}) {
  CHECK_GE(block_tokens, 1);
}

PrefixIndex::ShortKey PrefixIndex::Shorten(const BlockKey& key) {
  ShortKey result;
  std::memcpy(result.words, key.bytes.data(), sizeof result.words);
  return result;
}

bool PrefixIndex::Insert(const BlockKey& parent, const BlockKey& key,
                         std::span<const int32_t> tokens, int32_t block) {
  CHECK_EQ(static_cast<int32_t>(tokens.size()), block_tokens_);
  if (!by_key_.try_emplace(Shorten(key), block).second) return false;
  Entry& entry = entries_[block];
  CHECK(entry.tokens.empty()) << "block " << block << " is indexed already";
  entry = {parent, key, {tokens.begin(), tokens.end()}};
  CHECK(by_place_.insert(block).second);
  return true;
}

void PrefixIndex::Erase(int32_t block) {
  Entry& entry = entries_[block];
  CHECK(!entry.tokens.empty()) << "block " << block << " is not indexed";
  CHECK_EQ(by_place_.erase(block), 1u);
  CHECK_EQ(by_key_.erase(Shorten(entry.key)), 1u);
  entry = {};
}

int32_t PrefixIndex::Find(const BlockKey& key) const {
  const auto found = by_key_.find(Shorten(key));
  if (found == by_key_.end() || entries_[found->second].key != key) return kNoBlock;
  return found->second;
}

PrefixMatch PrefixIndex::Match(const BlockKey& root, std::span<const BlockKey> keys,
                               std::span<const int32_t> tokens) const {
  PrefixMatch match;
  const BlockKey* parent = &root;
  for (const BlockKey& key : keys) {
    if (static_cast<int32_t>(tokens.size()) < block_tokens_) break;
    const int32_t block = Find(key);
    if (block == kNoBlock) break;
    const Entry& entry = entries_[block];
    if (entry.parent != *parent) break;
    if (!std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin())) break;
    match.blocks.push_back(block);
    tokens = tokens.subspan(block_tokens_);
    parent = &key;
  }
  MatchPart(*parent, tokens, &match);
  return match;
}

// In lexicographic order the longest common start is that of a neighbour.
void PrefixIndex::MatchPart(const BlockKey& parent, std::span<const int32_t> tokens,
                            PrefixMatch* match) const {
  const auto consider = [&](int32_t block) {
    const Entry& entry = entries_[block];
    if (entry.parent != parent) return;
    const int32_t common = CommonPrefix(entry.tokens, tokens);
    if (common <= match->copy_tokens) return;
    match->copy_from = block;
    match->copy_tokens = common;
  };
  const auto next = by_place_.lower_bound(Place{parent, tokens});
  if (next != by_place_.end()) consider(*next);
  if (next != by_place_.begin()) consider(*std::prev(next));
}

}  // namespace cairn
