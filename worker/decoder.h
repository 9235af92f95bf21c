// The forward pass of one rank: embedding, layers, logits. Reads top to bottom as the model does.
//
// All threads of the team run it together; all memory of a step is allocated at Create.
// Thread: the executor's, which owns the team.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "kernels/activations.h"
#include "kernels/context.h"
#include "model/model_config.h"
#include "worker/collective.h"
#include "worker/kv_tables.h"
#include "worker/shard_plan.h"
#include "worker/weights.h"

namespace cairn {

struct DecoderOptions {
  int rank = 0;
  bool exact = true;  // if not, the weights have ThreadLayer::key_expand
  ActivationFormat activations = ActivationFormat::kF32;  // what quantised weights read
  DType kv_dtype = DType::kF32;
  int32_t block_tokens = 16;
  int32_t num_blocks = 0;
  int32_t max_rows = 512;
  int32_t max_sequences = 64;
  int32_t max_logit_rows = 16;  // rows whose logits exist at once
  int32_t context_length = 0;
};

// Rows of a step, sequence by sequence. Spans are valid during the call only.
struct DecoderBatch {
  std::span<const int32_t> tokens;     // [T] ids
  std::span<const int32_t> positions;  // [T]
  std::span<const TableRows> tables;   // of MakeKvTables
};

// One block of the pool on one rank, in bytes.
int64_t KvBytesPerBlock(const ModelConfig& config, const RankShard& shard, DType kv_dtype,
                        int32_t block_tokens);
// The longest message of a group's collective.
int64_t MaxMessageBytes(const ModelConfig& config, const ShardPlan& plan, int32_t max_rows,
                        int32_t max_logit_rows);

class Decoder {
 public:
  // `team` outlives the decoder. Errors: ResourceExhausted if the memory is not there.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const ModelConfig& config,
                                                         const ShardPlan& plan, RankWeights weights,
                                                         ThreadTeam& team,
                                                         const DecoderOptions& options);
  virtual ~Decoder() = default;

  // The group of the steps from now on; null for a group of one.
  virtual void SetCollective(Collective* collective) = 0;

  // Computes the hidden state of every row and appends its KV. Errors: those of the collective.
  virtual absl::Status Forward(const DecoderBatch& batch) = 0;

  // Logits of up to max_logit_rows rows of the last Forward: this rank's part of the vocabulary, or
  // with `gather` all of it on every rank. Row i is then at logits(i), vocab_size floats.
  virtual absl::Status ComputeLogits(std::span<const int32_t> rows, bool gather) = 0;
  virtual float* logits(int64_t index) = 0;
  // The part that ComputeLogits fills without gather, in ids.
  virtual Range own_vocabulary() const = 0;

  // Copies a whole block of the pool.
  virtual void CopyBlock(int32_t from, int32_t to) = 0;
};

}  // namespace cairn
