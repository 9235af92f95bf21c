// What a request must be before the scheduler takes it: one bad request must never hurt another.
//
// Thread: any: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/sampling.h"
#include "worker/request.h"

namespace cairn {

// Beside those of proto/sampling_limits.h.
inline constexpr int32_t kMaxLogprobs = 100;
inline constexpr uint32_t kMostChoices = 128;
inline constexpr size_t kMostStopIds = 1024;
inline constexpr size_t kMaxCacheSaltBytes = 256;

// Where requests are to run.
struct RequestLimits {
  int32_t vocab_size = 0;
  int32_t context_length = 0;  // tokens of prompt and output together
  int32_t pool_tokens = 0;     // that the KV pool holds of one sequence
};

// The largest prompt + output, in tokens: what the context allows, and what the pool can hold. The
// last token of an output needs no place in the pool.
int32_t MaxRequestTokens(const RequestLimits& limits);

// Errors: InvalidArgument naming the field, its value and its limit.
absl::Status CheckSamplingParams(const SamplingParams& params, int32_t vocab_size);
// Errors: as CheckSamplingParams; also if the request could never run: with the real numbers.
absl::Status CheckRequest(const GenerateRequest& request, const RequestLimits& limits);

}  // namespace cairn
