#include "worker/sequence_blocks.h"

#include <algorithm>
#include <limits>

#include "base/log.h"

namespace cairn {

KvBooks::KvBooks(const Options& options)
    : options_(options),
      group_of_bundle_(options.num_blocks),
      pool_(options.num_blocks,
            [this](int32_t bundle) { indexes_[group_of_bundle_[bundle]].Erase(bundle); }) {
  CHECK(!options.groups.empty());
  for (int32_t group = 0; group < num_groups(); ++group)
    indexes_.emplace_back(options.num_blocks, options.block_tokens);
}

// ----------------------------------------------------------------------------------------- match

// The bundle that holds block `index` of the tokens.
int32_t KvBooks::Exact(int32_t group, const BlockKey& root, std::span<const BlockKey> keys,
                       std::span<const int32_t> tokens, int32_t index) const {
  return indexes_[group].FindExact(
      index == 0 ? root : keys[index - 1], keys[index],
      tokens.subspan(int64_t{index} * options_.block_tokens, options_.block_tokens));
}

// The bundles from the first block on that the group has, up to `most`.
std::vector<int32_t> KvBooks::MatchFull(int32_t group, const BlockKey& root,
                                        std::span<const BlockKey> keys,
                                        std::span<const int32_t> tokens, int32_t most) const {
  std::vector<int32_t> bundles;
  for (int32_t index = 0; index < most; ++index) {
    const int32_t bundle = Exact(group, root, keys, tokens, index);
    if (bundle == kNoBundle) break;
    bundles.push_back(bundle);
  }
  return bundles;
}

// The most blocks, up to `most`, after which the next token finds all it sees in every group that
// has a window. A block that lacks rules out all that need it, so each is looked for about once.
int32_t KvBooks::MatchWindows(const BlockKey& root, std::span<const BlockKey> keys,
                              std::span<const int32_t> tokens, int32_t most) const {
  const auto last_lacking = [&](int32_t group, int32_t num_blocks) {
    const int32_t first = FirstSeen(group, num_blocks * options_.block_tokens);
    int32_t index = num_blocks - 1;
    while (index >= first && Exact(group, root, keys, tokens, index) != kNoBundle) --index;
    return index < first ? -1 : index;
  };
  for (int32_t group = 0; group < num_groups();) {
    const int32_t lacking = options_.groups[group].window == 0 ? -1 : last_lacking(group, most);
    if (lacking < 0) {
      ++group;
      continue;
    }
    most = lacking;
    group = 0;
  }
  return most;
}

PrefixMatch KvBooks::Match(const BlockKey& root, std::span<const BlockKey> keys,
                           std::span<const int32_t> tokens) const {
  auto most = static_cast<int32_t>(
      std::min(keys.size(), tokens.size() / static_cast<size_t>(options_.block_tokens)));
  PrefixMatch match = {.groups = SequenceBlocks(options_.groups.size())};
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (options_.groups[group].window > 0) continue;
    match.groups[group].bundles = MatchFull(group, root, keys, tokens, most);
    most = match.groups[group].end();
  }
  match.num_blocks = MatchWindows(root, keys, tokens, most);
  for (int32_t group = 0; group < num_groups(); ++group) {
    GroupBlocks& blocks = match.groups[group];
    blocks.bundles.resize(match.num_blocks, kNoBundle);
    if (options_.groups[group].window == 0) continue;
    blocks.first = FirstSeen(group, match.num_blocks * options_.block_tokens);
    for (int32_t i = blocks.first; i < match.num_blocks; ++i)
      blocks.bundles[i] = indexes_[group].Find(keys[i]);
  }
  MatchCopy(match.num_blocks == 0 ? root : keys[match.num_blocks - 1],
            tokens.subspan(int64_t{match.num_blocks} * options_.block_tokens), &match);
  return match;
}

void KvBooks::MatchCopy(const BlockKey& parent, std::span<const int32_t> tokens,
                        PrefixMatch* match) const {
  match->copy_tokens = options_.block_tokens;
  for (const PrefixIndex& index : indexes_) {
    const PartMatch part = index.MatchPart(parent, tokens);
    match->copy_from.push_back(part.bundle);
    match->copy_tokens = std::min(match->copy_tokens, part.num_tokens);
  }
  if (match->copy_tokens == 0) match->copy_from.clear();
}

// ----------------------------------------------------------------------------------- take, release

int32_t KvBooks::EndOf(int32_t group, int32_t num_computed, int32_t num_tokens) const {
  const KvGroup& of = options_.groups[group];
  const int32_t all = BlocksFor(num_tokens);
  if (of.window == 0) return all;
  const int64_t end = int64_t{FirstSeen(group, num_computed)} +
                      MostBlocksHeld(of, all, options_.block_tokens, options_.max_step_tokens);
  return static_cast<int32_t>(std::min<int64_t>(all, end));
}

int32_t KvBooks::Allocate(int32_t group) {
  const int32_t bundle = pool_.Allocate(options_.groups[group].num_tables);
  if (bundle != kNoBundle) group_of_bundle_[bundle] = group;
  return bundle;
}

// Blocks that a sequence of num_tokens tokens takes beside those of the match.
int32_t KvBooks::NewBlocks(const PrefixMatch& match, int32_t num_tokens) const {
  const int32_t num_computed = match.num_blocks * options_.block_tokens + match.copy_tokens;
  int64_t sum = 0;
  for (int32_t group = 0; group < num_groups(); ++group)
    sum += int64_t{options_.groups[group].num_tables} *
           (EndOf(group, num_computed, num_tokens) - match.num_blocks);
  return static_cast<int32_t>(std::min<int64_t>(sum, std::numeric_limits<int32_t>::max()));
}

bool KvBooks::Take(PrefixMatch* match, int32_t num_tokens, int32_t spare_rows,
                   SequenceBlocks* blocks) {
  int32_t num_spare = 0;
  for (const KvGroup& group : options_.groups) num_spare += spare_rows * group.num_tables;
  for (const GroupBlocks& group : match->groups)
    for (int32_t i = group.first; i < group.end(); ++i) pool_.Hold(group.bundles[i]);
  for (const int32_t bundle : match->copy_from) pool_.Hold(bundle);
  const auto fits = [&] {
    return pool_.num_available() >= int64_t{NewBlocks(*match, num_tokens)} + num_spare;
  };
  if (!fits()) {
    Release(&match->copy_from);
    match->copy_tokens = 0;
  }
  if (!fits()) {
    Release(&match->groups);
    return false;
  }
  *blocks = match->groups;
  const int32_t num_computed = match->num_blocks * options_.block_tokens + match->copy_tokens;
  for (int32_t group = 0; group < num_groups(); ++group) {
    std::vector<int32_t>& bundles = (*blocks)[group].bundles;
    while ((*blocks)[group].end() < EndOf(group, num_computed, num_tokens)) {
      bundles.push_back(Allocate(group));
      CHECK_NE(bundles.back(), kNoBundle);
    }
  }
  return true;
}

// From the end to the start, so that a bundle is evicted before the one it follows.
void KvBooks::Release(SequenceBlocks* blocks) {
  for (GroupBlocks& group : *blocks)
    for (int32_t i = group.end() - 1; i >= group.first; --i) pool_.Release(group.bundles[i]);
  blocks->clear();
}

void KvBooks::Release(std::vector<int32_t>* bundles) {
  for (; !bundles->empty(); bundles->pop_back()) pool_.Release(bundles->back());
}

void KvBooks::Slide(int32_t num_computed, SequenceBlocks* blocks) {
  for (int32_t group = 0; group < num_groups(); ++group) {
    GroupBlocks& held = (*blocks)[group];
    const int32_t first = std::min(FirstSeen(group, num_computed), held.end());
    for (; held.first < first; ++held.first) {
      pool_.ReleaseAsOldest(held.bundles[held.first]);
      held.bundles[held.first] = kNoBundle;
    }
  }
}

int32_t KvBooks::Extend(int32_t num_computed, int32_t num_tokens, int32_t slot,
                        SequenceBlocks* blocks, std::vector<BlockAppend>* appends) {
  int32_t end = num_tokens, first_table = 0;
  for (int32_t group = 0; group < num_groups(); ++group) {
    GroupBlocks& held = (*blocks)[group];
    while (held.end() < EndOf(group, num_computed, num_tokens)) {
      const int32_t bundle = Allocate(group);
      if (bundle == kNoBundle) break;
      held.bundles.push_back(bundle);
      for (int32_t table = 0; const int32_t block : pool_.blocks(bundle))
        appends->push_back({.slot = slot, .table = first_table + table++, .block = block});
    }
    end = static_cast<int32_t>(std::min<int64_t>(end, int64_t{held.end()} * options_.block_tokens));
    first_table += options_.groups[group].num_tables;
  }
  return end;
}

void KvBooks::Index(const BlockKey& parent, const BlockKey& key, std::span<const int32_t> tokens,
                    int32_t index, const SequenceBlocks& blocks) {
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (index < blocks[group].first) continue;
    const int32_t bundle = blocks[group].bundles[index];
    if (indexes_[group].Insert(parent, key, tokens, bundle))
      pool_.SetIndexed(bundle, index == 0 ? kNoBundle : indexes_[group].Find(parent));
  }
}

// --------------------------------------------------------------------------------------- the ranks

std::vector<TableStart> KvBooks::Tables(const SequenceBlocks& blocks) const {
  std::vector<TableStart> tables;
  for (int32_t group = 0; group < num_groups(); ++group) {
    const GroupBlocks& held = blocks[group];
    const size_t first_table = tables.size();
    tables.resize(first_table + options_.groups[group].num_tables, {.first_block = held.first});
    for (int32_t i = held.first; i < held.end(); ++i)
      for (size_t table = first_table; const int32_t block : pool_.blocks(held.bundles[i]))
        tables[table++].blocks.push_back(block);
  }
  return tables;
}

void KvBooks::AppendCopies(const PrefixMatch& match, const SequenceBlocks& blocks,
                           std::vector<BlockCopy>* copies) const {
  for (size_t group = 0; group < match.copy_from.size(); ++group) {
    const std::span<const int32_t> from = pool_.blocks(match.copy_from[group]);
    const std::span<const int32_t> to = pool_.blocks(blocks[group].bundles[match.num_blocks]);
    for (size_t i = 0; i < from.size(); ++i)
      copies->push_back({.from = from[i], .to = to[i], .num_tokens = match.copy_tokens});
  }
}

int64_t MostBlocksOfSequence(const KvBooks::Options& options, int64_t num_tokens) {
  const auto blocks =
      static_cast<int32_t>((num_tokens + options.block_tokens - 1) / options.block_tokens);
  int64_t sum = 0;
  for (const KvGroup& group : options.groups)
    sum += int64_t{group.num_tables} *
           MostBlocksHeld(group, blocks, options.block_tokens, options.max_step_tokens);
  return sum;
}

int32_t MaxTokensInPool(const KvBooks::Options& options) {
  int64_t low = 0, high = std::numeric_limits<int32_t>::max() / options.block_tokens;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (MostBlocksOfSequence(options, middle * options.block_tokens) <= options.num_blocks)
      low = middle;
    else
      high = middle - 1;
  }
  return static_cast<int32_t>(low * options.block_tokens);
}

}  // namespace cairn
