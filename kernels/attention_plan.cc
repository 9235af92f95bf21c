#include "kernels/attention_plan.h"

#include <algorithm>

#include "kernels/kv_layout.h"

namespace cairn {
namespace {

// Blocks that lie in tiles whose tokens the first row sees to the last.
std::span<const int32_t> SharableBlocks(const AttentionSequence& sequence, int block_tokens) {
  const int num_tiles = (sequence.first_position + 1) / kAttentionTile;
  return {sequence.block_table, static_cast<size_t>(num_tiles) * (kAttentionTile / block_tokens)};
}

int SharedTiles(const AttentionSequence& a, const AttentionSequence& b, int block_tokens) {
  const auto of_a = SharableBlocks(a, block_tokens), of_b = SharableBlocks(b, block_tokens);
  const auto end = std::mismatch(of_a.begin(), of_a.end(), of_b.begin(), of_b.end()).first;
  return static_cast<int>(end - of_a.begin()) / (kAttentionTile / block_tokens);
}

void AddPiece(const AttentionPlan::Piece& piece, bool joins, int first_token,
              std::vector<AttentionPlan::Item>* items, std::vector<AttentionPlan::Piece>* pieces) {
  if (!joins) {
    items->push_back({.first_piece = static_cast<int>(pieces->size()),
                      .first_tile = first_token / kAttentionTile});
  }
  AttentionPlan::Item& item = items->back();
  ++item.num_pieces;
  item.num_positions += piece.num_positions;
  item.last_position = std::max(item.last_position, piece.last_position());
  pieces->push_back(piece);
}

}  // namespace

AttentionPlan PlanAttention(std::span<const AttentionSequence> sequences, int block_tokens,
                            int num_kv_heads, int num_threads, int window) {
  AttentionPlan plan = {.window = window, .sequences = sequences};
  std::vector<const AttentionSequence*> short_ones;
  for (const AttentionSequence& sequence : sequences) {
    if (sequence.num_rows == 0) continue;
    if (sequence.num_rows <= kQueryPositions) {
      short_ones.push_back(&sequence);
      continue;
    }
    const int num_items = (sequence.num_rows + kQueryPositions - 1) / kQueryPositions;
    const bool whole = num_items * num_kv_heads >= kWholeUnitsPerThread * num_threads;
    for (int first = 0; first < sequence.num_rows; first += kQueryPositions)
      AddPiece({.sequence = &sequence,
                .first = first,
                .num_positions = std::min(kQueryPositions, sequence.num_rows - first)},
               false, plan.first_token(sequence.first_position + first),
               whole ? &plan.whole : &plan.split, &plan.pieces);
  }
  if (window > 0) {
    for (const AttentionSequence* sequence : short_ones) {
      AddPiece({.sequence = sequence, .num_positions = sequence->num_rows}, false,
               plan.first_token(sequence->first_position), &plan.split, &plan.pieces);
    }
    return plan;
  }

  // Neighbours in the order of their blocks share most.
  std::stable_sort(short_ones.begin(), short_ones.end(),
                   [block_tokens](const AttentionSequence* a, const AttentionSequence* b) {
                     const auto of_a = SharableBlocks(*a, block_tokens);
                     const auto of_b = SharableBlocks(*b, block_tokens);
                     return std::lexicographical_compare(of_a.begin(), of_a.end(), of_b.begin(),
                                                         of_b.end());
                   });
  const AttentionSequence* previous = nullptr;
  for (const AttentionSequence* sequence : short_ones) {
    AttentionPlan::Piece piece = {.sequence = sequence, .num_positions = sequence->num_rows};
    if (previous != nullptr) piece.shared_tiles = SharedTiles(*previous, *sequence, block_tokens);
    const bool joins = piece.shared_tiles > 0 &&
                       plan.split.back().num_positions + piece.num_positions <= kQueryPositions;
    if (!joins) piece.shared_tiles = 0;
    AddPiece(piece, joins, 0, &plan.split, &plan.pieces);
    previous = sequence;
  }
  return plan;
}

}  // namespace cairn
