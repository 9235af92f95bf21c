#include "worker/request_check.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/sampling_limits.h"

namespace cairn {
namespace {

// Not a number is in no range.
absl::Status CheckRange(const char* field, float value, float least, float most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is out of range: value=%g least=%g most=%g", field, value, least, most));
}

absl::Status CheckSize(const char* field, size_t size, size_t most) {
  if (size <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is too long: size=%d most=%d", field, size, most));
}

absl::Status CheckId(const char* field, size_t index, int32_t id, int32_t vocab_size) {
  if (id >= 0 && id < vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has an id outside the vocabulary: index=%d id=%d vocabulary=%d", field,
                      index, id, vocab_size));
}

absl::Status CheckIds(const char* field, const std::vector<int32_t>& ids, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) RETURN_IF_ERROR(CheckId(field, i, ids[i], vocab_size));
  return absl::OkStatus();
}

absl::Status CheckLogitBias(const SamplingParams& params, int32_t vocab_size) {
  RETURN_IF_ERROR(CheckSize("logit_bias", params.logit_bias.size(), kMaxLogitBiases));
  absl::flat_hash_set<int32_t> seen;
  for (size_t i = 0; i < params.logit_bias.size(); ++i) {
    const auto& [id, bias] = params.logit_bias[i];
    RETURN_IF_ERROR(CheckId("logit_bias", i, id, vocab_size));
    RETURN_IF_ERROR(CheckRange("logit_bias", bias, -kMaxLogitBias, kMaxLogitBias));
    if (!seen.insert(id).second) {
      return absl::InvalidArgumentError(absl::StrCat("logit_bias names an id twice: id=", id));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPenalties(const SamplingParams& params) {
  RETURN_IF_ERROR(CheckRange("repetition_penalty", params.repetition_penalty, kMinRepetitionPenalty,
                             kMaxRepetitionPenalty));
  RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty, -kMaxOutputPenalty,
                             kMaxOutputPenalty));
  return CheckRange("frequency_penalty", params.frequency_penalty, -kMaxOutputPenalty,
                    kMaxOutputPenalty);
}

// Ids that must not come yet have to leave one that may.
absl::Status CheckStopIds(const GenerateRequest& request, int32_t vocab_size) {
  RETURN_IF_ERROR(CheckSize("stop_ids", request.stop_ids.size(), kMostStopIds));
  RETURN_IF_ERROR(CheckIds("stop_ids", request.stop_ids, vocab_size));
  const absl::flat_hash_set<int32_t> distinct(request.stop_ids.begin(), request.stop_ids.end());
  if (request.min_tokens > 0 && static_cast<int32_t>(distinct.size()) >= vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("min_tokens forbids the whole vocabulary: stop_ids=%d vocabulary=%d",
                        distinct.size(), vocab_size));
  }
  return absl::OkStatus();
}

absl::Status CheckLength(const GenerateRequest& request, const RequestLimits& limits) {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (prompt_tokens == 0) return absl::InvalidArgumentError("prompt is empty: tokens=0 least=1");
  if (prompt_tokens >= limits.context_length) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prompt leaves no room for an answer: prompt_tokens=%d context_tokens=%d",
                        prompt_tokens, limits.context_length));
  }
  if (prompt_tokens > limits.pool_tokens) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prompt is larger than the KV pool: prompt_tokens=%d pool_tokens=%d",
                        prompt_tokens, limits.pool_tokens));
  }
  if (request.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("max_tokens is out of range: value=%d least=1", request.max_tokens));
  }
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrFormat("min_tokens is out of range: value=%d least=0 most=%d (max_tokens)",
                        request.min_tokens, request.max_tokens));
  }
  return absl::OkStatus();
}

}  // namespace

int32_t MaxRequestTokens(const RequestLimits& limits) {
  return static_cast<int32_t>(
      std::min<int64_t>(limits.context_length, int64_t{limits.pool_tokens} + 1));
}

absl::Status CheckSamplingParams(const SamplingParams& params, int32_t vocab_size) {
  if (params.temperature != 0) {
    RETURN_IF_ERROR(
        CheckRange("temperature", params.temperature, kMinTemperature, kMaxTemperature));
  }
  if (params.top_k < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_k is out of range: value=", params.top_k, " least=0 (off)"));
  }
  if (params.top_p == 0) {
    return absl::InvalidArgumentError("top_p is out of range: value=0, must be above 0");
  }
  RETURN_IF_ERROR(CheckRange("top_p", params.top_p, 0, 1));
  if (params.min_p == 1) {
    return absl::InvalidArgumentError("min_p is out of range: value=1, must be below 1");
  }
  RETURN_IF_ERROR(CheckRange("min_p", params.min_p, 0, 1));
  RETURN_IF_ERROR(CheckPenalties(params));
  if (params.num_logprobs < -1 || params.num_logprobs > kMaxLogprobs) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_logprobs is out of range: value=%d least=-1 (none) most=%d",
                        params.num_logprobs, kMaxLogprobs));
  }
  if (params.choice >= kMostChoices) {
    return absl::InvalidArgumentError(absl::StrFormat("choice is out of range: value=%d most=%d",
                                                      params.choice, kMostChoices - 1));
  }
  return CheckLogitBias(params, vocab_size);
}

absl::Status CheckRequest(const GenerateRequest& request, const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckLength(request, limits));
  RETURN_IF_ERROR(CheckIds("prompt", request.prompt, limits.vocab_size));
  RETURN_IF_ERROR(CheckStopIds(request, limits.vocab_size));
  RETURN_IF_ERROR(CheckSize("cache_salt", request.cache_salt.size(), kMaxCacheSaltBytes));
  return CheckSamplingParams(request.sampling, limits.vocab_size);
}

}  // namespace cairn
