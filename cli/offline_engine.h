// A model and its engine inside this process, for the offline verbs.
// Thread: the main thread; StartEngine before any other thread is made.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/offline.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "worker/engine.h"
#include "worker/local_group.h"

namespace cairn {

// What one call needs of the engine.
struct OfflineNeeds {
  int32_t max_running = 1;          // sequences at once
  int32_t tokens_per_sequence = 0;  // prompt and output; 0: the whole context
  int32_t num_token_ids = 0;        // ids the tokenizer knows; 0: all rows of the output
  bool prefix_cache = true;
};

class OfflineEngine {
 public:
  // Opens the files only: a verb looks at the model before it knows what it needs.
  // Errors: those of Checkpoint::Open and LoadModelConfig.
  static absl::StatusOr<std::unique_ptr<OfflineEngine>> Open(const std::string& model);
  // Errors: those of loading; InvalidArgument naming a flag that is out of range.
  absl::Status StartEngine(const EngineFlags& flags, const OfflineNeeds& needs);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const ModelConfig& config() const { return config_; }
  Engine& engine() { return *engine_; }
  int64_t weight_bytes() const { return weight_bytes_; }  // of all ranks
  int num_threads() const { return num_threads_; }        // of all ranks
  int64_t kv_bytes_per_token() const { return kv_bytes_per_token_; }

  // Runs requests together to their ends; events of request i in results[i], in order. A request
  // whose `on_event` returns false is cancelled. Errors: the first refusal or failure.
  absl::StatusOr<std::vector<std::vector<TokenEvent>>> RunAll(
      std::vector<GenerateRequest> requests,
      const std::function<bool(size_t index, const TokenEvent&)>& on_event = nullptr);

 private:
  OfflineEngine() = default;

  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
  std::unique_ptr<Engine> engine_;
  int64_t weight_bytes_ = 0, kv_bytes_per_token_ = 0;
  int num_threads_ = 0;
};

}  // namespace cairn
