// A model behind the real engine, inside the test: requests in, tokens and logits out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/context.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "worker/engine.h"
#include "worker/rank.h"

namespace cairn::testing {

struct RunnerOptions {
  int size = 1;
  int num_threads = 1;
  Isa isa = Isa::kAvx2;
  NumericsOptions numerics = {};
  int32_t block_tokens = 16;
  int32_t num_blocks = 256;  // for each table of the model
  int32_t max_step_tokens = 512;
  int32_t max_running = 16;
  bool prefix_cache = true;
  int32_t pool_blocks = 0;  // of all tables together, if not 0
  // Stands between the engine and the group, if not null.
  std::function<std::unique_ptr<StepExecutor>(std::unique_ptr<StepExecutor>)> wrap = nullptr;
};

// What one request gave.
struct RunResult {
  std::vector<int32_t> tokens;
  FinishReason finish_reason = FinishReason::kNone;
  absl::Status error;
  Usage usage;
  // By position: SHA-256 of the logits' bytes, or the logits where they were asked for.
  std::map<int32_t, std::string> digests;
  std::map<int32_t, std::vector<float>> logits;
};

struct RunRequest {
  std::vector<int32_t> prompt;
  SamplingParams sampling;  // temperature 0 unless the test sets it
  int32_t max_tokens = 1;
  std::string cache_salt;
  bool capture = true;       // digests of the logits
  bool keep_logits = false;  // and the values themselves
  RunRequest() { sampling.temperature = 0; }
};

class ModelRunner {
 public:
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Start(const std::string& path,
                                                            const RunnerOptions& options);
  // Submits all at once and waits for all.
  std::vector<RunResult> Run(const std::vector<RunRequest>& requests);
  RunResult Run(const RunRequest& request) { return Run(std::vector<RunRequest>{request})[0]; }
  EngineStats stats() const { return engine_->stats(); }
  const ModelConfig& config() const { return config_; }

 private:
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
  std::unique_ptr<Engine> engine_;
};

// Data of other engines: one int32 or float32 tensor of a golden file.
std::vector<int32_t> GoldenInts(const Checkpoint& golden, const std::string& name);
std::vector<float> GoldenFloats(const Checkpoint& golden, const std::string& name);

}  // namespace cairn::testing
