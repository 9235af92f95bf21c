// Byte-pair encoding: the pair of neighbours of least rank becomes one symbol, the leftmost of
// equals first, until no pair is left that may merge. What the symbols are is the caller's matter.
//
// Thread: any. Errors: none.
// Source: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units",
// 2016.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace cairn {

inline constexpr int32_t kNoToken = -1;

struct MergeSymbol {
  int32_t id = kNoToken;
  int32_t begin = 0;  // in the text
  int32_t end = 0;
};

// What becomes of a pair; by default it does not merge.
struct PairMerge {
  int32_t rank = std::numeric_limits<int32_t>::max();
  int32_t id = kNoToken;

  bool exists() const { return rank != std::numeric_limits<int32_t>::max(); }
};

// Up to here the plain scan for the best pair beats a heap.
inline constexpr size_t kMaxFewSymbols = 48;
using MergeSymbols = absl::InlinedVector<MergeSymbol, kMaxFewSymbols>;

// `find(left, right)` says what becomes of two neighbours, a PairMerge.
template <typename Find>
void MergeFew(MergeSymbols& symbols, const Find& find) {
  absl::InlinedVector<PairMerge, kMaxFewSymbols> merges(symbols.size());  // of symbol i with i + 1
  const auto update = [&](size_t i) {
    merges[i] = i + 1 < symbols.size() ? find(symbols[i], symbols[i + 1]) : PairMerge();
  };
  for (size_t i = 0; i < symbols.size(); ++i) update(i);
  while (symbols.size() > 1) {
    const auto best =
        std::min_element(merges.begin(), merges.end(),
                         [](const PairMerge& a, const PairMerge& b) { return a.rank < b.rank; });
    if (!best->exists()) break;
    const size_t at = best - merges.begin();
    symbols[at].id = best->id;
    symbols[at].end = symbols[at + 1].end;
    symbols.erase(symbols.begin() + at + 1);
    merges.erase(best + 1);
    update(at);
    if (at > 0) update(at - 1);
  }
}

template <typename Find>
void MergeMany(MergeSymbols& symbols, const Find& find) {
  // A pair that may be merged. It is stale if either symbol has grown since.
  struct Candidate {
    PairMerge merge;
    int32_t left;         // index of the symbol
    int32_t begin_right;  // where the right one began in the text
    int32_t end;
    bool operator>(const Candidate& other) const {
      return merge.rank != other.merge.rank ? merge.rank > other.merge.rank : left > other.left;
    }
  };
  struct Link {
    int32_t previous;
    int32_t next;
  };
  constexpr int32_t kGone = -2;
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<Link> links(symbols.size());
  for (int32_t i = 0; i < count; ++i) links[i] = {i - 1, i + 1 < count ? i + 1 : -1};

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || links[left].next < 0) return;
    const MergeSymbol& right = symbols[links[left].next];
    const PairMerge merge = find(symbols[left], right);
    if (merge.exists()) queue.push({merge, left, right.begin, right.end});
  };
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Link& link = links[best.left];
    if (link.next < 0) continue;  // also a symbol that is gone
    const MergeSymbol& right = symbols[link.next];
    if (right.begin != best.begin_right || right.end != best.end) continue;
    const int32_t gone = link.next;
    symbols[best.left].id = best.merge.id;
    symbols[best.left].end = right.end;
    link.next = links[gone].next;
    links[gone].next = kGone;
    if (link.next >= 0) links[link.next].previous = best.left;
    consider(link.previous);
    consider(best.left);
  }
  size_t kept = 0;
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = links[i].next) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

template <typename Find>
void MergePairs(MergeSymbols& symbols, const Find& find) {
  if (symbols.size() <= kMaxFewSymbols) {
    MergeFew(symbols, find);
  } else {
    MergeMany(symbols, find);
  }
}

}  // namespace cairn
