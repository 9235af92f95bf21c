// What the scheduler knows of a request: its tokens, how much of their KV is computed, and where.
//
// Thread: one, the scheduler's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kvstore/key.h"
#include "worker/request.h"
#include "worker/sequence_blocks.h"
#include "worker/step.h"

namespace cairn {

// Makes keys[0 .. num_blocks) known, the first full blocks of `tokens` under `root`.
void ExtendKeys(const BlockKey& root, std::span<const int32_t> tokens, int32_t num_blocks,
                int32_t block_tokens, std::vector<BlockKey>* keys);

struct RequestState {
  uint64_t handle = 0;
  int64_t arrival = 0;  // order of Add; lower is older
  GenerateRequest request;
  int32_t end_tokens = 0;        // the request ends when it has this many tokens
  bool use_prefix_cache = true;  // its own wish and the scheduler's
  BlockKey root;                 // of its chain of block keys

  std::vector<int32_t> tokens;  // prompt and output
  std::vector<BlockKey> keys;   // of the first full blocks of `tokens`; grows on demand
  Usage usage;

  // While it runs.
  int32_t slot = -1;
  int32_t num_computed = 0;  // KV of this many tokens is in `blocks`
  int32_t num_indexed = 0;   // blocks that have been offered to the prefix index
  SequenceBlocks blocks;
  bool cancelled = false;  // since the plan whose result is awaited

  // While it waits.
  bool was_admitted = false;              // before it was preempted
  int32_t num_overtakes = 0;              // by younger requests, for lack of blocks
  std::optional<BlockKey> awaited_block;  // another sequence computes it

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_prompt_tokens() const { return static_cast<int32_t>(request.prompt.size()); }
  int32_t num_pending() const { return num_tokens() - num_computed; }
  bool is_decoding() const { return num_pending() == 1; }
  std::span<const int32_t> BlockTokens(int32_t index, int32_t block_tokens) const;
  // The key of the block before block `index`, or the root.
  const BlockKey& ParentKey(int32_t index) const { return index == 0 ? root : keys[index - 1]; }

  void ExtendKeys(int32_t num_blocks, int32_t block_tokens) {
    cairn::ExtendKeys(root, tokens, num_blocks, block_tokens, &keys);
  }
  // What the ranks need to know of it as it enters a slot, but its tables.
  SequenceStart Start() const;
  // Appends a sampled token and says what happened; kNoToken ends the request with an error.
  TokenEvent Append(const SampledToken& sampled);
};

}  // namespace cairn
