// Divides attention among the threads of a team. Two ways, with the same bits:
//
// Whole: a thread takes 16 query positions of one KV head through the whole context, tile after
// tile. Later positions cost more, so threads take turns.
//
// Split: where too few such units exist to keep the threads busy (decode), the tiles of the context
// are divided as well, in contiguous ranges of equal work, and their softmax states are merged in
// order afterwards. States in flight are bounded: what does not fit waits for the next round.
#include "kernels/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "base/log.h"
#include "kernels/attention_tile.h"
#include "kernels/cpu_kernels.h"

namespace cairn {
namespace {

constexpr int kQueryPositions = 16;      // of a unit: they share each pass over the context
constexpr int kWholeUnitsPerThread = 4;  // from here on turns are even enough
constexpr int64_t kMaxSplitBytes = int64_t{4} << 20;
// Work of a tile in token-rows, beside its own: what every tile and every load cost.
constexpr int kTileCostTokens = 16;
constexpr int kLoadCostRows = 4;

// 64 bytes, so that vectors of floats made of it are aligned.
struct alignas(64) Line {
  float lanes[16];
};

int PaddedHeadDim(int head_dim) { return (head_dim + 15) / 16 * 16; }

class FloatBuffer {
 public:
  explicit FloatBuffer(int64_t floats) : lines_(static_cast<size_t>((floats + 15) / 16)) {}
  float* data() { return lines_.empty() ? nullptr : lines_[0].lanes; }

 private:
  std::vector<Line> lines_;
};

// What one thread needs for itself.
struct ThreadScratch {
  explicit ThreadScratch(int64_t unit_rows, int64_t padded_head_dim)
      : scores(int64_t{kMaxStripRows} * kAttentionTile),
        queries(unit_rows * padded_head_dim),
        parts(unit_rows * (kPartHeader + padded_head_dim)),
        totals(unit_rows * (kPartHeader + padded_head_dim)),
        valid(static_cast<size_t>(unit_rows)) {}

  FloatBuffer scores, queries, parts, totals;
  std::vector<int32_t> valid;
};

class TeamScratch : public AttentionScratch {
 public:
  explicit TeamScratch(const Limits& of)
      : limits(of),
        group(of.num_heads / of.num_kv_heads),
        padded_head_dim(PaddedHeadDim(of.head_dim)),
        split_rows(SplitRows(of)),
        split_parts(split_rows * part_floats()),
        carry{FloatBuffer(unit_rows() * part_floats()), FloatBuffer(unit_rows() * part_floats())} {
    for (int i = 0; i < of.num_threads; ++i) threads.emplace_back(unit_rows(), padded_head_dim);
  }

  int64_t unit_rows() const { return int64_t{kQueryPositions} * group; }
  int64_t part_floats() const { return kPartHeader + padded_head_dim; }

  const Limits limits;
  const int group;
  const int padded_head_dim;
  const int64_t split_rows;  // softmax states in flight
  FloatBuffer split_parts;
  FloatBuffer carry[2];  // of the unit that a round ends in; rounds take turns
  std::vector<ThreadScratch> threads;

 private:
  // As many as the largest step could use, within kMaxSplitBytes or what keeps all threads busy.
  static int64_t SplitRows(const Limits& of) {
    const int64_t group = of.num_heads / of.num_kv_heads, unit_rows = kQueryPositions * group;
    if (of.max_split_units > 0) return std::max(of.max_split_units * group, unit_rows);
    const int64_t row_bytes = (kPartHeader + PaddedHeadDim(of.head_dim)) * int64_t{sizeof(float)};
    const int64_t tiles = (of.max_context + kAttentionTile - 1) / kAttentionTile;
    const int64_t busy = kWholeUnitsPerThread * int64_t{of.num_threads} * unit_rows;
    const int64_t bound = std::max(kMaxSplitBytes / row_bytes, busy);
    const int64_t rows = std::max(of.max_rows, int64_t{1}) * of.num_heads;
    return std::max(std::min(bound, rows * std::max(tiles, int64_t{1})), unit_rows);
  }
};

// Some query positions of one sequence and one KV head.
struct Item {
  const AttentionSequence* sequence = nullptr;
  int head = 0;
  int first = 0;     // of the sequence's rows
  int num_rows = 0;  // positions * group
  int last_position = 0;

  int num_tiles() const { return last_position / kAttentionTile + 1; }
  int64_t tokens(int tile) const {
    return std::min(kAttentionTile, last_position + 1 - tile * kAttentionTile);
  }
};

// Consecutive tiles of an item in one round of split attention.
struct Segment {
  Item item;
  int first_tile = 0, end_tile = 0;
  int64_t first_part = 0;  // of TeamScratch::split_parts; a tile has item.num_rows of them
};

// Where a round of split attention starts.
struct Cursor {
  size_t sequence = 0;
  int item = 0;
  int tile = 0;
};

// One thread's part of one call.
class Pass {
 public:
  Pass(const Context& context, const AttentionArgs& args, TeamScratch& team)
      : context_(context),
        cpu_(context.cpu()),
        args_(args),
        team_(team),
        mine_(team.threads[static_cast<size_t>(context.thread())]),
        group_(args.num_heads / args.kv.num_kv_heads),
        part_floats_(kPartHeader + args.kv.head_dim),
        element_bytes_(Info(args.kv.dtype).block_bytes) {
    tile_.dtype = args.kv.dtype;
    tile_.head_dim = args.kv.head_dim;
    tile_.key_stride = args.kv.block_tokens;
  }

  void AttendWhole();
  void AttendSplit();

 private:
  struct Unit {
    Item item;
    int tile = 0;
    float* parts = nullptr;
  };

  int NumItems(const AttentionSequence& sequence) const {
    return (sequence.num_rows + kQueryPositions - 1) / kQueryPositions * args_.kv.num_kv_heads;
  }
  // The same for every thread. A pure choice: it changes no bit of the output.
  bool IsSplit(const AttentionSequence& sequence) const {
    return sequence.num_rows <= kQueryPositions ||
           NumItems(sequence) < kWholeUnitsPerThread * context_.num_threads();
  }
  Item ItemOf(const AttentionSequence& sequence, int index) const;
  void Pack(const Item& item);
  void FillTile(const Unit& unit, const Unit* next);
  void Attend(const Unit& unit, const Unit* next);
  void AttendItem(const Item& item);
  void ClearTotal(float* total) const;
  void Finish(const Item& item, int row, const float* total) const;

  template <class Visit>
  Cursor WalkRound(Cursor from, Visit visit) const;
  static int64_t TileCost(const Item& item, int tile) {
    return (item.tokens(tile) + kTileCostTokens) * (item.num_rows + kLoadCostRows);
  }
  void AttendRound(const Cursor& from, int64_t cost);
  void MergeRound(const Cursor& from, int round);

  const Context& context_;
  const CpuKernels& cpu_;
  const AttentionArgs& args_;
  TeamScratch& team_;
  ThreadScratch& mine_;
  const int group_;
  const int64_t part_floats_;
  const int element_bytes_;
  AttentionTile tile_;
  Item packed_;  // whose queries mine_.queries holds
};

Item Pass::ItemOf(const AttentionSequence& sequence, int index) const {
  const int head = index % args_.kv.num_kv_heads;
  const int first = index / args_.kv.num_kv_heads * kQueryPositions;
  const int positions = std::min(kQueryPositions, sequence.num_rows - first);
  return {.sequence = &sequence,
          .head = head,
          .first = first,
          .num_rows = positions * group_,
          .last_position = sequence.first_position + first + positions - 1};
}

void Pass::Pack(const Item& item) {
  if (packed_.sequence == item.sequence && packed_.head == item.head && packed_.first == item.first)
    return;
  const int64_t row = item.sequence->first_row + item.first;
  cpu_.pack_queries({.queries = args_.queries + row * args_.query_stride +
                                int64_t{item.head} * group_ * args_.head_dim,
                     .position_stride = args_.query_stride,
                     .group = group_,
                     .num_rows = item.num_rows,
                     .head_dim = args_.head_dim,
                     .out = mine_.queries.data()});
  packed_ = item;
}

void Pass::FillTile(const Unit& unit, const Unit* next) {
  const KvLayer& kv = args_.kv;
  const auto groups_of = [](const Unit& of) {
    return static_cast<int>((of.item.tokens(of.tile) + kGroupTokens - 1) / kGroupTokens);
  };
  const auto block_of = [&](const Unit& of, int group) {
    const int token = of.tile * kAttentionTile + group * kGroupTokens;
    return std::pair(of.item.sequence->block_table[token / kv.block_tokens],
                     int64_t{token % kv.block_tokens} * element_bytes_);
  };
  const int num_groups = groups_of(unit);
  tile_.num_groups = num_groups;
  for (int g = 0; g < num_groups; ++g) {
    const auto [block, offset] = block_of(unit, g);
    tile_.groups[g] = kv.keys(unit.item.head, block) + offset;
    tile_.groups[num_groups + g] = kv.values(unit.item.head, block) + offset * kv.head_dim;
  }
  const int num_next = next == nullptr ? 0 : std::min(groups_of(*next), kPrefetchGroups);
  for (int g = 0; g < kPrefetchGroups; ++g) {
    const std::byte*& ahead = tile_.groups[2 * num_groups + g];
    ahead = tile_.groups[2 * num_groups - 1];
    if (g >= num_next) continue;
    const auto [block, offset] = block_of(*next, g);
    ahead = kv.keys(next->item.head, block) + offset;
  }
}

void Pass::Attend(const Unit& unit, const Unit* next) {
  const Item& item = unit.item;
  Pack(item);
  FillTile(unit, next);
  const int first = item.sequence->first_position + item.first - unit.tile * kAttentionTile;
  for (int r = 0; r < item.num_rows; ++r)
    mine_.valid[static_cast<size_t>(r)] = std::min(kAttentionTile, first + r / group_ + 1);
  cpu_.attend_tile({.tile = &tile_,
                    .head_dim = args_.head_dim,
                    .queries = mine_.queries.data(),
                    .num_rows = item.num_rows,
                    .valid = mine_.valid.data(),
                    .scores = mine_.scores.data(),
                    .parts = unit.parts});
}

void Pass::ClearTotal(float* total) const {
  std::memset(total, 0, static_cast<size_t>(part_floats_) * sizeof(float));
  total[0] = -std::numeric_limits<float>::infinity();
}

void Pass::Finish(const Item& item, int row, const float* total) const {
  const int64_t step_row = item.sequence->first_row + item.first + row / group_;
  const int64_t head = int64_t{item.head} * group_ + row % group_;
  std::byte* out = args_.out.row(step_row) +
                   head * BlocksFor(args_.head_dim) * Activations::BlockBytes(args_.out.format);
  cpu_.finish_attention(total, args_.head_dim, args_.out.format, out);
}

void Pass::AttendItem(const Item& item) {
  float* totals = mine_.totals.data();
  float* parts = mine_.parts.data();
  for (int r = 0; r < item.num_rows; ++r) ClearTotal(totals + r * part_floats_);
  for (int tile = 0; tile < item.num_tiles(); ++tile) {
    const Unit next = {.item = item, .tile = tile + 1, .parts = parts};
    Attend({.item = item, .tile = tile, .parts = parts},
           tile + 1 < item.num_tiles() ? &next : nullptr);
    for (int r = 0; r < item.num_rows; ++r)
      cpu_.merge_attention(parts + r * part_floats_, args_.kv.head_dim, totals + r * part_floats_);
  }
  for (int r = 0; r < item.num_rows; ++r) Finish(item, r, totals + r * part_floats_);
}

void Pass::AttendWhole() {
  int turn = 0;
  for (const AttentionSequence& sequence : args_.sequences) {
    if (IsSplit(sequence)) continue;
    const int num_items = NumItems(sequence);
    for (int i = 0; i < num_items; ++i, ++turn)
      if (turn % context_.num_threads() == context_.thread()) AttendItem(ItemOf(sequence, i));
  }
}

// Calls visit(Segment) for what fits into one round from `from` on; returns where the next starts.
template <class Visit>
Cursor Pass::WalkRound(Cursor from, Visit visit) const {
  int64_t used = 0;
  Cursor cursor = from;
  for (; cursor.sequence < args_.sequences.size(); ++cursor.sequence, cursor.item = 0) {
    const AttentionSequence& sequence = args_.sequences[cursor.sequence];
    if (!IsSplit(sequence)) continue;
    for (const int num_items = NumItems(sequence); cursor.item < num_items; ++cursor.item) {
      const Item item = ItemOf(sequence, cursor.item);
      const int64_t fit = (team_.split_rows - used) / item.num_rows;
      const int64_t end = std::min<int64_t>(item.num_tiles(), cursor.tile + fit);
      if (fit > 0)
        visit(Segment{.item = item,
                      .first_tile = cursor.tile,
                      .end_tile = static_cast<int>(end),
                      .first_part = used});
      used += (end - cursor.tile) * item.num_rows;
      cursor.tile = static_cast<int>(end);
      if (end < item.num_tiles()) return cursor;
      cursor.tile = 0;
    }
  }
  return cursor;
}

// A tile belongs to the thread in whose range of the round's work it starts.
void Pass::AttendRound(const Cursor& from, int64_t cost) {
  const Range share = context_.Share(cost);
  int64_t start = 0;
  Unit waiting;  // until the unit behind it is known, whose keys it prefetches
  WalkRound(from, [&](const Segment& segment) {
    for (int tile = segment.first_tile; tile < segment.end_tile; ++tile) {
      const int64_t begin = start;
      start += TileCost(segment.item, tile);
      if (begin < share.begin || begin >= share.end) continue;
      const int64_t part =
          segment.first_part + int64_t{tile - segment.first_tile} * segment.item.num_rows;
      const Unit unit = {.item = segment.item,
                         .tile = tile,
                         .parts = team_.split_parts.data() + part * part_floats_};
      if (waiting.parts != nullptr) Attend(waiting, &unit);
      waiting = unit;
    }
  });
  if (waiting.parts != nullptr) Attend(waiting, nullptr);
}

void Pass::MergeRound(const Cursor& from, int round) {
  float* carried_in = team_.carry[(round + 1) % 2].data();
  float* carried_out = team_.carry[round % 2].data();
  float* total = mine_.totals.data();
  const size_t part_bytes = static_cast<size_t>(part_floats_) * sizeof(float);
  int turn = 0;
  WalkRound(from, [&](const Segment& segment) {
    const Item& item = segment.item;
    for (int r = 0; r < item.num_rows; ++r, ++turn) {
      if (turn % context_.num_threads() != context_.thread()) continue;
      ClearTotal(total);
      if (segment.first_tile > 0) std::memcpy(total, carried_in + r * part_floats_, part_bytes);
      const float* part = team_.split_parts.data() + (segment.first_part + r) * part_floats_;
      for (int tile = segment.first_tile; tile < segment.end_tile; ++tile) {
        cpu_.merge_attention(part, args_.kv.head_dim, total);
        part += item.num_rows * part_floats_;
      }
      if (segment.end_tile < item.num_tiles())
        std::memcpy(carried_out + r * part_floats_, total, part_bytes);
      else
        Finish(item, r, total);
    }
  });
}

void Pass::AttendSplit() {
  Cursor cursor;
  for (int round = 0;; ++round) {
    int64_t cost = 0;
    const Cursor end = WalkRound(cursor, [&](const Segment& segment) {
      for (int tile = segment.first_tile; tile < segment.end_tile; ++tile)
        cost += TileCost(segment.item, tile);
    });
    if (cost == 0) return;
    if (round > 0) context_.Sync();  // all have merged the round before: its parts are free
    AttendRound(cursor, cost);
    context_.Sync();
    MergeRound(cursor, round);
    cursor = end;
  }
}

void Check(const Context& context, const AttentionArgs& args, const TeamScratch& scratch) {
  const KvLayer& kv = args.kv;
  const AttentionScratch::Limits& limits = scratch.limits;
  CHECK(kv.dtype == DType::kF32 || kv.dtype == DType::kF16 || kv.dtype == DType::kBF16);
  CHECK(kv.block_tokens >= 16 && kv.block_tokens <= kAttentionTile &&
        (kv.block_tokens & (kv.block_tokens - 1)) == 0)
      << kv.block_tokens;
  CHECK_GT(kv.num_kv_heads, 0);
  CHECK_EQ(args.num_heads % kv.num_kv_heads, 0);
  CHECK_LE(args.num_heads / kv.num_kv_heads, scratch.group);
  CHECK_GT(args.head_dim, 0);
  CHECK_GE(kv.head_dim, args.head_dim);
  CHECK_EQ(kv.head_dim % 16, 0);
  CHECK_LE(kv.head_dim, scratch.padded_head_dim);
  CHECK_LE(context.num_threads(), limits.num_threads);
  CHECK_LE(args.sequences.size(), static_cast<size_t>(limits.max_sequences));
  int64_t rows = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    CHECK_GE(sequence.num_rows, 0);
    CHECK_GE(sequence.first_position, 0);
    CHECK_LE(int64_t{sequence.first_position} + sequence.num_rows, limits.max_context);
    rows += sequence.num_rows;
  }
  CHECK_LE(rows, limits.max_rows);
}

}  // namespace

std::unique_ptr<AttentionScratch> AttentionScratch::Create(const Limits& limits) {
  CHECK_GT(limits.num_threads, 0);
  CHECK_GT(limits.num_kv_heads, 0);
  CHECK_GT(limits.head_dim, 0);
  CHECK_EQ(limits.num_heads % limits.num_kv_heads, 0);
  return std::make_unique<TeamScratch>(limits);
}

void PagedAttention(const Context& context, const AttentionArgs& args, AttentionScratch& scratch) {
  auto& team = static_cast<TeamScratch&>(scratch);
  Check(context, args, team);
  Pass pass(context, args, team);
  pass.AttendWhole();
  pass.AttendSplit();
}

}  // namespace cairn
