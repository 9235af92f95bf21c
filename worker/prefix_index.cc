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

PrefixIndex::PrefixIndex(int32_t num_bundles, int32_t block_tokens)
    : block_tokens_(block_tokens), entries_(num_bundles), by_place_(ByPlace{&entries_}) {
  CHECK_GE(block_tokens, 1);
}

PrefixIndex::ShortKey PrefixIndex::Shorten(const BlockKey& key) {
  ShortKey result;
  std::memcpy(result.words, key.bytes.data(), sizeof result.words);
  return result;
}

bool PrefixIndex::Insert(const BlockKey& parent, const BlockKey& key,
                         std::span<const int32_t> tokens, int32_t bundle) {
  CHECK_EQ(static_cast<int32_t>(tokens.size()), block_tokens_);
  if (!by_key_.try_emplace(Shorten(key), bundle).second) return false;
  Entry& entry = entries_[bundle];
  CHECK(entry.tokens.empty()) << "bundle " << bundle << " is indexed already";
  entry = {parent, key, {tokens.begin(), tokens.end()}};
  CHECK(by_place_.insert(bundle).second);
  return true;
}

void PrefixIndex::Erase(int32_t bundle) {
  Entry& entry = entries_[bundle];
  CHECK(!entry.tokens.empty()) << "bundle " << bundle << " is not indexed";
  CHECK_EQ(by_place_.erase(bundle), 1u);
  CHECK_EQ(by_key_.erase(Shorten(entry.key)), 1u);
  entry = {};
}

int32_t PrefixIndex::Find(const BlockKey& key) const {
  const auto found = by_key_.find(Shorten(key));
  if (found == by_key_.end() || entries_[found->second].key != key) return kNoBundle;
  return found->second;
}

int32_t PrefixIndex::FindExact(const BlockKey& parent, const BlockKey& key,
                               std::span<const int32_t> tokens) const {
  const int32_t bundle = Find(key);
  if (bundle == kNoBundle) return kNoBundle;
  const Entry& entry = entries_[bundle];
  const bool is_equal =
      entry.parent == parent &&
      std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin(), tokens.end());
  return is_equal ? bundle : kNoBundle;
}

// In lexicographic order the longest common start is that of a neighbour.
PartMatch PrefixIndex::MatchPart(const BlockKey& parent, std::span<const int32_t> tokens) const {
  PartMatch match;
  const auto consider = [&](int32_t bundle) {
    const Entry& entry = entries_[bundle];
    if (entry.parent != parent) return;
    const int32_t common = CommonPrefix(entry.tokens, tokens);
    if (common > match.num_tokens) match = {bundle, common};
  };
  const auto next = by_place_.lower_bound(Place{parent, tokens});
  if (next != by_place_.end()) consider(*next);
  if (next != by_place_.begin()) consider(*std::prev(next));
  return match;
}

}  // namespace cairn
