// Which query positions of a step share a pass over the context: the same in every layer of one
// window, so it is made once a step for each.
//
// Sequences that begin with the same blocks of the pool (hits of one cached prefix, choices of one
// prompt) read those blocks together. Source: Hydragen (Juravsky et al. 2024) and cascade inference
// of FlashInfer (Ye et al. 2024); here each tile of the context keeps its own softmax state, so who
// else reads it changes no bit.
//
// Threads: plain data. Errors: none, PagedAttention checks the sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cairn {

// Consecutive rows of the step that belong to one sequence.
struct AttentionSequence {
  const int32_t* block_table = nullptr;  // blocks of positions 0 .. first_position + num_rows - 1
  int64_t first_row = 0;                 // of the step
  int32_t first_position = 0;
  int32_t num_rows = 0;  // row i sees positions 0 .. first_position + i
};

inline constexpr int kQueryPositions = 16;  // of an item: they share each pass over the context
// From here on turns of whole items are even enough; with fewer the context is split.
inline constexpr int kWholeUnitsPerThread = 4;

struct AttentionPlan {
  // Some query positions of one sequence.
  struct Piece {
    const AttentionSequence* sequence = nullptr;
    int first = 0;  // of the sequence's rows
    int num_positions = 0;
    // Leading tiles that lie in the same blocks as those of the piece before it in its item. Its
    // first position sees all of their tokens.
    int shared_tiles = 0;

    int position(int i) const { return sequence->first_position + first + i; }
    int last_position() const { return position(num_positions - 1); }
  };
  // Up to kQueryPositions query positions.
  struct Item {
    int first_piece = 0, num_pieces = 0;
    int num_positions = 0;
    int first_tile = 0;     // the first that any of its positions sees
    int last_position = 0;  // the highest of its pieces
  };

  // The first token that a position sees.
  int first_token(int position) const {
    return window == 0 || position < window ? 0 : position - window + 1;
  }

  int window = 0;  // tokens that a position sees, itself included; 0: all before it

  std::span<const AttentionSequence> sequences = {};
  std::vector<Piece> pieces = {};
  std::vector<Item> whole = {};  // in threads' turns, each item through its whole context
  std::vector<Item> split = {};  // the context is divided among the threads as well
};

// `sequences` outlive the plan. block_tokens: of the pool. window: as in the plan; sequences share
// no pass where there is one. Block tables are read from the first block that a position sees.
AttentionPlan PlanAttention(std::span<const AttentionSequence> sequences, int block_tokens,
                            int num_kv_heads, int num_threads, int window = 0);

}  // namespace cairn
