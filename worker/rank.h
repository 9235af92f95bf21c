// One rank of a tensor-parallel group: its share of the weights, its block pool and the forward
// pass. The leader (rank 0) runs plans on all ranks; followers run what the leader sends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "kernels/activations.h"
#include "kernels/context.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "worker/collective.h"
#include "worker/kv_group.h"
#include "worker/step.h"

namespace cairn {

// How numbers are computed; part of the KV identity.
struct NumericsOptions {
  bool exact = true;  // false: fast, sums in any order
  // f32 | int16 | int8 | auto: where weights are quantised int8, or int16 if the model needs it
  std::string activations = "auto";
  // f32 | f16 | bf16 | auto: f16 where weights are quantised, else f32
  std::string kv_dtype = "auto";
};

struct RankOptions {
  int rank = 0, size = 1;
  int num_threads = 1;
  Isa isa = Isa::kAvx2;
  NumericsOptions numerics = {};
  int32_t block_tokens = 16;
  int32_t num_blocks = 0;         // of the pool, the same on every rank
  int32_t max_step_tokens = 512;  // rows of a step
  int32_t max_running = 64;       // slots
  int32_t context_length = 0;     // longest sequence; 0: the model's
  int32_t num_token_ids = 0;      // ids the tokenizer knows; higher ones are never sampled; 0: all
};

// The settings after `auto` is resolved and every option checked against the model.
// Errors: InvalidArgument naming option, value and limit (also: more ranks than query heads).
struct ResolvedRankOptions {
  RankOptions options;
  ActivationFormat activations = ActivationFormat::kF32;
  DType kv_dtype = DType::kF32;
  int64_t kv_bytes_per_block = 0;       // of the fullest rank
  std::vector<KvGroup> kv_groups = {};  // of the model's layers
  int64_t max_message_bytes = 0;        // what the group's collective must carry
};
absl::StatusOr<ResolvedRankOptions> ResolveRankOptions(const Checkpoint& checkpoint,
                                                       const ModelConfig& config,
                                                       const RankOptions& options);

// Logits of one computed position, on rank 0 only.
using LogitsCapture =
    std::function<void(int32_t slot, int32_t position, std::span<const float> logits)>;

class Rank : public StepExecutor {
 public:
  struct LoadProgress {
    int64_t bytes_done = 0, bytes_total = 0;
  };
  // Reads and repacks this rank's weights. `collective` and the checkpoint's files outlive the rank
  // (the embedding is read from the mapped file).
  static absl::StatusOr<std::unique_ptr<Rank>> Load(
      const Checkpoint& checkpoint, const ModelConfig& config, const ResolvedRankOptions& options,
      std::function<void(const LoadProgress&)> on_progress);

  // The group this rank computes with from now on; a new epoch replaces the old one and forgets
  // all sequences and KV. `collective` is not owned. A rank of a group of one needs none.
  virtual void JoinGroup(Collective* collective) = 0;
  virtual void SetLogitsCapture(LogitsCapture capture) = 0;

  // Leader: sends the plan to the followers and runs it. Errors: Unavailable if a rank is lost.
  absl::StatusOr<StepResult> Run(const StepPlan& plan) override = 0;
  // Follower: runs the leader's plans until the leader stops the group (OK) or is lost
  // (Unavailable).
  virtual absl::Status Follow() = 0;
  // Leader: tells the followers to leave Follow(). Errors: Unavailable if one is lost.
  virtual absl::Status StopFollowers() = 0;

  virtual int64_t weight_bytes() const = 0;  // repacked, of this rank
  virtual int64_t read_bytes() const = 0;    // of the checkpoint, by this rank
};

}  // namespace cairn
