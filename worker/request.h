// A request as the worker sees it: token ids in, token ids out. Text stays with the coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/sampling.h"

namespace cairn {

struct GenerateRequest {
  std::string id;               // for logs and errors; never a key
  std::vector<int32_t> prompt;  // at least one token, each inside the vocabulary
  SamplingParams sampling;      // sampling.choice tells the choices of one request apart
  int32_t max_tokens = 0;       // at least 1; clipped to what the context leaves
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_ids;  // ends the request; includes EOS ids unless they are ignored
  std::string cache_salt;         // keeps cached prefixes apart; part of the KV identity
  bool use_prefix_cache = true;
  // Offline only: called on the engine thread with the logits [vocab] of each computed position.
  std::function<void(int32_t position, std::span<const float> logits)> capture_logits;
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };

// Where the prompt's KV came from.
struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, found in the pool at (first) admission
  int32_t completion_tokens = 0;
  int32_t num_preemptions = 0;
};

// One thing that happened to a request. The last one has a finish reason.
struct TokenEvent {
  bool has_token = false;
  SampledToken token;
  FinishReason finish_reason = FinishReason::kNone;
  // kError: Unavailable if the group has failed, Internal if the model gave nothing to choose from.
  absl::Status error;
  Usage usage;  // complete in the last event
};

}  // namespace cairn
