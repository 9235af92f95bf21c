// A whole tensor-parallel group inside one process, or in one process and its children: what the
// offline verbs and the tests compute with.
//
// Thread: Start and the destructor on the owner's; Run on one thread, the engine's.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "worker/rank.h"
#include "worker/step.h"

namespace cairn {

// Where ranks 1 .. size-1 run.
enum class FollowerPlace : uint8_t {
  kThreads,
  kProcesses,  // forked: Start must then be called before this process has a second thread
};

class LocalGroup : public StepExecutor {
 public:
  // `resolved` is for any rank; its rank number is ignored. `checkpoint` outlives the group.
  // Errors: those of Rank::Load on any rank; Unavailable if a rank does not come up.
  static absl::StatusOr<std::unique_ptr<LocalGroup>> Start(
      const Checkpoint& checkpoint, const ModelConfig& config, const ResolvedRankOptions& resolved,
      FollowerPlace place, std::function<void(const Rank::LoadProgress&)> on_progress);
  // Stops the followers and waits for them.
  ~LocalGroup() override = default;

  virtual Rank& leader() = 0;
};

}  // namespace cairn
