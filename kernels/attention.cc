// Divides attention among the threads of a team. Two ways, with the same bits:
//
// Whole: a thread takes an item of one KV head through the whole context, tile after tile. Later
// positions cost more, so threads take turns.
//
// Split: where too few items exist to keep the threads busy (decode), the tiles of the context are
// divided as well, in contiguous ranges of equal work, and their softmax states are merged in order
// afterwards. States in flight are bounded: what does not fit waits for the next round.
//
// A tile is attended by runs of pieces that find it in the same blocks.
#include "kernels/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/log.h"
#include "kernels/attention_scratch.h"
#include "kernels/attention_tile.h"
#include "kernels/cpu_kernels.h"

namespace cairn {
namespace {

// Work of a tile in token-rows, beside its own: what every tile and every load cost.
constexpr int kTileCostTokens = 16;
constexpr int kLoadCostRows = 4;

int GroupOf(const AttentionArgs& args) {
  return AttentionGroup(args.group, args.num_heads, args.kv.num_kv_heads);
}

// An item of the plan with one KV head.
struct Item {
  const AttentionPlan::Piece* pieces = nullptr;
  int num_pieces = 0;
  int head = 0;
  int first_query = 0, group = 0;  // the rank's query heads of this KV head
  int num_rows = 0;                // positions * group
  int first_tile = 0;
  int last_position = 0;

  int end_tile() const { return last_position / kAttentionTile + 1; }
};

// Consecutive pieces of an item that read one tile together.
struct Run {
  int first_piece = 0, end_piece = 0;
  int first_row = 0, num_rows = 0;  // of the item
};

// Consecutive tiles of an item in one round of split attention.
struct Segment {
  Item item;
  int first_tile = 0, end_tile = 0;
  int64_t first_part = 0;  // of TeamScratch::split_parts; a tile has item.num_rows of them
};

// Where a round of split attention starts.
struct Cursor {
  size_t item = 0;  // of the plan
  int head = 0;
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
        is_latent_(args.kv.layout == KvLayout::kLatent),
        value_dim_(AttentionValueDim(args)),
        padded_value_dim_(is_latent_ ? args.kv.value_dim : PaddedDim(value_dim_)),
        part_floats_(kPartHeader + padded_value_dim_),
        element_bytes_(Info(args.kv.dtype).block_bytes) {
    tile_.dtype = args.kv.dtype;
    tile_.value_dim = padded_value_dim_;
    tile_.value_stride = args.kv.head_dim;
    tile_.key_stride = is_latent_ ? kGroupTokens : args.kv.block_tokens;
  }

  void AttendWhole();
  void AttendSplit();

 private:
  struct Unit {
    Item item;
    Run run;
    int tile = 0;
    float* parts = nullptr;  // of the run's rows

    const AttentionPlan::Piece& first() const { return item.pieces[run.first_piece]; }
    int num_tokens() const {  // all pieces of a run of several see the whole tile
      return std::min(kAttentionTile, first().last_position() + 1 - tile * kAttentionTile);
    }
    bool has_queries_of(const Unit& other) const {
      return first().sequence == other.first().sequence && first().first == other.first().first &&
             item.head == other.item.head && run.num_rows == other.run.num_rows;
    }
  };

  Item ItemOf(const AttentionPlan::Item& of, int head) const;
  int FirstGroup(const Unit& unit) const;
  template <class Visit>
  void VisitRuns(const Item& item, int tile, Visit visit) const;
  void Pack(const Unit& unit);
  void FillTile(const Unit& unit, const Unit* next);
  void FillLatentTile(const Unit& unit, const Unit* next);
  void Attend(const Unit& unit, const Unit* next);
  void AttendItem(const Item& item);
  void ClearTotal(float* total) const;
  void Finish(const Item& item, const AttentionPlan::Piece& piece, int row,
              const float* total) const;

  template <class Visit>
  Cursor WalkRound(Cursor from, Visit visit) const;
  template <class Visit>
  void VisitUnits(const Segment& segment, Visit visit) const;
  static int64_t Cost(const Unit& unit) {
    return int64_t{unit.num_tokens() + kTileCostTokens} * (unit.run.num_rows + kLoadCostRows);
  }
  void AttendRound(const Cursor& from, int64_t cost);
  void MergeRound(const Cursor& from, int round);

  const Context& context_;
  const CpuKernels& cpu_;
  const AttentionArgs& args_;
  TeamScratch& team_;
  ThreadScratch& mine_;
  const bool is_latent_;
  const int value_dim_, padded_value_dim_;
  const int64_t part_floats_;
  const int element_bytes_;
  AttentionTile tile_;
  std::optional<Unit> packed_;  // whose queries mine_.queries holds
};

Item Pass::ItemOf(const AttentionPlan::Item& of, int head) const {
  const int first = head * GroupOf(args_) - args_.skipped_heads;
  const int first_query = std::max(first, 0);
  const int group = std::min(first + GroupOf(args_), args_.num_heads) - first_query;
  return {.pieces = args_.plan->pieces.data() + of.first_piece,
          .num_pieces = of.num_pieces,
          .head = head,
          .first_query = first_query,
          .group = group,
          .num_rows = of.num_positions * group,
          .first_tile = of.first_tile,
          .last_position = of.last_position};
}

template <class Visit>
void Pass::VisitRuns(const Item& item, int tile, Visit visit) const {
  Run run;
  for (int p = 0; p < item.num_pieces; ++p) {
    const AttentionPlan::Piece& piece = item.pieces[p];
    const int num_rows = piece.num_positions * item.group;
    if (run.num_rows > 0 && piece.shared_tiles <= tile) {
      visit(run);
      run = {.first_row = run.first_row + run.num_rows};
    }
    if (piece.last_position() / kAttentionTile < tile) {
      run.first_row += num_rows;  // and the run is empty: whoever shares this tile has it
      continue;
    }
    if (run.num_rows == 0) run.first_piece = p;
    run.end_piece = p + 1;
    run.num_rows += num_rows;
  }
  if (run.num_rows > 0) visit(run);
}

void Pass::Pack(const Unit& unit) {
  if (packed_.has_value() && packed_->has_queries_of(unit)) return;
  const float* positions[kQueryPositions];
  int num_positions = 0;
  for (int p = unit.run.first_piece; p < unit.run.end_piece; ++p) {
    const AttentionPlan::Piece& piece = unit.item.pieces[p];
    const int64_t row = piece.sequence->first_row + piece.first;
    for (int i = 0; i < piece.num_positions; ++i)
      positions[num_positions++] = args_.queries + (row + i) * args_.query_stride +
                                   int64_t{unit.item.first_query} * args_.head_dim;
  }
  cpu_.pack_queries({.positions = positions,
                     .group = unit.item.group,
                     .num_rows = unit.run.num_rows,
                     .head_dim = args_.head_dim,
                     .out = mine_.queries.data()});
  packed_ = unit;
}

// The first group of the unit's tile that any row sees. What lies before it is not looked up: its
// blocks may be another's by now.
int Pass::FirstGroup(const Unit& unit) const {
  const int seen_from = args_.plan->first_token(unit.first().position(0));
  return std::max(0, seen_from - unit.tile * kAttentionTile) / kGroupTokens;
}

void Pass::FillTile(const Unit& unit, const Unit* next) {
  const KvLayer& kv = args_.kv;
  const auto groups_of = [](const Unit& of) {
    return (of.num_tokens() + kGroupTokens - 1) / kGroupTokens;
  };
  const auto block_of = [&](const Unit& of, int group) {
    const int token = of.tile * kAttentionTile + std::max(group, FirstGroup(of)) * kGroupTokens;
    return std::pair(of.first().sequence->block_table[token / kv.block_tokens],
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

// The pool has tokens as rows: their keys are turned once for all heads, of the groups that are
// seen.
void Pass::FillLatentTile(const Unit& unit, const Unit* next) {
  const KvLayer& kv = args_.kv;
  const int64_t row_bytes = int64_t{kv.head_dim} * element_bytes_;
  const auto rows_of = [&](const Unit& of, int group) {
    const int token = of.tile * kAttentionTile + std::max(group, FirstGroup(of)) * kGroupTokens;
    return kv.keys(of.item.head, of.first().sequence->block_table[token / kv.block_tokens]) +
           token % kv.block_tokens * row_bytes;
  };
  auto* keys = reinterpret_cast<std::byte*>(mine_.latent_keys.data());
  const int num_groups = (unit.num_tokens() + kGroupTokens - 1) / kGroupTokens;
  tile_.num_groups = num_groups;
  for (int g = 0; g < num_groups; ++g, keys += kGroupTokens * row_bytes) {
    const std::byte* rows = rows_of(unit, g);
    if (g >= FirstGroup(unit)) cpu_.transpose_tokens(kv.dtype, rows, row_bytes, kv.head_dim, keys);
    tile_.groups[g] = keys;
    tile_.groups[num_groups + g] = rows;
  }
  for (int g = 0; g < kPrefetchGroups; ++g) {
    const bool follows = next != nullptr && g * kGroupTokens < next->num_tokens();
    tile_.groups[2 * num_groups + g] =
        follows ? rows_of(*next, g) : tile_.groups[2 * num_groups - 1];
  }
}

void Pass::Attend(const Unit& unit, const Unit* next) {
  Pack(unit);
  is_latent_ ? FillLatentTile(unit, next) : FillTile(unit, next);
  const int first_token = unit.tile * kAttentionTile;
  int32_t* begin = mine_.begin.data();
  int32_t* valid = mine_.valid.data();
  for (int p = unit.run.first_piece; p < unit.run.end_piece; ++p) {
    const AttentionPlan::Piece& piece = unit.item.pieces[p];
    for (int r = 0; r < piece.num_positions * unit.item.group; ++r) {
      const int position = piece.position(r / unit.item.group);
      *begin++ = std::clamp(args_.plan->first_token(position) - first_token, 0, kAttentionTile);
      *valid++ = std::min(kAttentionTile, position + 1 - first_token);
    }
  }
  cpu_.attend_tile({.tile = &tile_,
                    .head_dim = args_.head_dim,
                    .queries = mine_.queries.data(),
                    .num_rows = unit.run.num_rows,
                    .begin = args_.plan->window > 0 ? mine_.begin.data() : nullptr,
                    .valid = mine_.valid.data(),
                    .score_cap = args_.score_cap,
                    .scores = mine_.scores.data(),
                    .parts = unit.parts});
}

void Pass::ClearTotal(float* total) const {
  std::memset(total, 0, static_cast<size_t>(part_floats_) * sizeof(float));
  total[0] = -std::numeric_limits<float>::infinity();
}

// row: of the piece.
void Pass::Finish(const Item& item, const AttentionPlan::Piece& piece, int row,
                  const float* total) const {
  const int64_t step_row = piece.sequence->first_row + piece.first + row / item.group;
  const int64_t head = item.first_query + row % item.group;
  cpu_.finish_attention(total, value_dim_, args_.out.Slot(step_row, head * BlocksFor(value_dim_)));
}

// Of one piece.
void Pass::AttendItem(const Item& item) {
  float* totals = mine_.totals.data();
  const Run run = {.end_piece = 1, .num_rows = item.num_rows};
  for (int r = 0; r < item.num_rows; ++r) ClearTotal(totals + r * part_floats_);
  for (int tile = item.first_tile; tile < item.end_tile(); ++tile) {
    const Unit unit = {.item = item, .run = run, .tile = tile, .parts = mine_.parts.data()};
    Unit next = unit;
    ++next.tile;
    Attend(unit, next.tile < item.end_tile() ? &next : nullptr);
    for (int r = 0; r < item.num_rows; ++r)
      cpu_.merge_attention(unit.parts + r * part_floats_, padded_value_dim_,
                           totals + r * part_floats_);
  }
  for (int r = 0; r < item.num_rows; ++r)
    Finish(item, item.pieces[0], r, totals + r * part_floats_);
}

void Pass::AttendWhole() {
  int turn = 0;
  for (const AttentionPlan::Item& item : args_.plan->whole)
    for (int head = 0; head < args_.kv.num_kv_heads; ++head, ++turn)
      if (turn % context_.num_threads() == context_.thread()) AttendItem(ItemOf(item, head));
}

// Calls visit(Segment) for what fits into one round from `from` on; returns where the next starts.
template <class Visit>
Cursor Pass::WalkRound(Cursor from, Visit visit) const {
  int64_t used = 0;
  Cursor cursor = from;
  for (; cursor.item < args_.plan->split.size(); ++cursor.item, cursor.head = 0) {
    for (; cursor.head < args_.kv.num_kv_heads; ++cursor.head) {
      const Item item = ItemOf(args_.plan->split[cursor.item], cursor.head);
      cursor.tile = std::max(cursor.tile, item.first_tile);
      const int64_t fit = (team_.split_rows - used) / item.num_rows;
      const int64_t end = std::min<int64_t>(item.end_tile(), cursor.tile + fit);
      if (fit > 0)
        visit(Segment{.item = item,
                      .first_tile = cursor.tile,
                      .end_tile = static_cast<int>(end),
                      .first_part = used});
      used += (end - cursor.tile) * item.num_rows;
      cursor.tile = static_cast<int>(end);
      if (end < item.end_tile()) return cursor;
      cursor.tile = 0;
    }
  }
  return cursor;
}

template <class Visit>
void Pass::VisitUnits(const Segment& segment, Visit visit) const {
  for (int tile = segment.first_tile; tile < segment.end_tile; ++tile) {
    VisitRuns(segment.item, tile, [&](const Run& run) {
      const int64_t part = segment.first_part +
                           int64_t{tile - segment.first_tile} * segment.item.num_rows +
                           run.first_row;
      visit(Unit{.item = segment.item,
                 .run = run,
                 .tile = tile,
                 .parts = team_.split_parts.data() + part * part_floats_});
    });
  }
}

// A unit belongs to the thread in whose range of the round's work its middle lies.
void Pass::AttendRound(const Cursor& from, int64_t cost) {
  const Range share = context_.Share(cost);
  int64_t start = 0;
  Unit waiting;  // until the unit behind it is known, whose keys it prefetches
  WalkRound(from, [&](const Segment& segment) {
    VisitUnits(segment, [&](const Unit& unit) {
      const int64_t middle = start + Cost(unit) / 2;
      start += Cost(unit);
      if (middle < share.begin || middle >= share.end) return;
      if (waiting.parts != nullptr) Attend(waiting, &unit);
      waiting = unit;
    });
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
    int first_row = 0;
    for (int p = 0; p < item.num_pieces; ++p) {
      const AttentionPlan::Piece& piece = item.pieces[p];
      const int num_rows = piece.num_positions * item.group;
      const int num_tiles = piece.last_position() / kAttentionTile + 1;
      const int end_tile = std::min(segment.end_tile, num_tiles);
      for (int r = 0; r < num_rows; ++r, ++turn) {
        if (segment.first_tile >= num_tiles) continue;  // finished in an earlier round
        if (turn % context_.num_threads() != context_.thread()) continue;
        const int64_t row = first_row + r;
        ClearTotal(total);
        if (segment.first_tile > item.first_tile)
          std::memcpy(total, carried_in + row * part_floats_, part_bytes);
        const float* part = team_.split_parts.data() + (segment.first_part + row) * part_floats_;
        for (int tile = segment.first_tile; tile < end_tile; ++tile) {
          cpu_.merge_attention(part, padded_value_dim_, total);
          part += item.num_rows * part_floats_;
        }
        if (end_tile < num_tiles)
          std::memcpy(carried_out + row * part_floats_, total, part_bytes);
        else
          Finish(item, piece, r, total);
      }
      first_row += num_rows;
    }
  });
}

void Pass::AttendSplit() {
  Cursor cursor;
  for (int round = 0;; ++round) {
    int64_t cost = 0;
    const Cursor end = WalkRound(cursor, [&](const Segment& segment) {
      VisitUnits(segment, [&](const Unit& unit) { cost += Cost(unit); });
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
  const int group = GroupOf(args), end_head = args.skipped_heads + args.num_heads;
  CHECK_LE(std::min(group, args.num_heads), scratch.group);
  CHECK(args.skipped_heads >= 0 && args.skipped_heads < group) << args.skipped_heads;
  CHECK_EQ((end_head + group - 1) / group, kv.num_kv_heads);
  CHECK_GT(args.head_dim, 0);
  CHECK_GE(kv.head_dim, args.head_dim);
  CHECK_EQ(kv.head_dim % 16, 0);
  CHECK_LE(kv.head_dim, scratch.padded_head_dim);
  CHECK(kv.layout == limits.layout) << "scratch for another layout";
  const bool is_latent = kv.layout == KvLayout::kLatent;
  CHECK_LE((is_latent ? kv.value_dim : PaddedDim(AttentionValueDim(args))) + kPartHeader,
           scratch.part_floats);
  CHECK_LE(args.value_dim, is_latent ? kv.value_dim : args.head_dim);
  CHECK(!is_latent || (kv.num_kv_heads == 1 && kv.value_dim <= kv.head_dim)) << kv.value_dim;
  CHECK_LE(context.num_threads(), limits.num_threads);
  CHECK_LE(args.plan->sequences.size(), static_cast<size_t>(limits.max_sequences));
  int64_t rows = 0;
  for (const AttentionSequence& sequence : args.plan->sequences) {
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
  CHECK(limits.group > 0 || limits.num_heads % limits.num_kv_heads == 0) << limits.num_heads;
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
