// JSON that the verbs read and write alike: arrays of token ids, and the answer of generate.
//
// Thread: any.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/api_client.h"

namespace cairn {

// An array of whole numbers in 0..`most`. Errors: InvalidArgument naming the value and the limit.
absl::StatusOr<std::vector<int32_t>> ReadIds(const nlohmann::json& array,
                                             int32_t most = std::numeric_limits<int32_t>::max());

struct AnswerChoice {
  std::vector<int32_t> ids{};
  std::string text{}, finish_reason{};
  TokenUsage usage{};
  std::vector<TokenChances> logprobs{};
};

// One object
//   {"ids": [...], "text": "...", "finish_reason": "stop|length", "seed": S,
//    "usage": {"prompt_tokens", "cached_tokens", "completion_tokens", "num_preemptions"},
//    "logprobs": [{"token", "logprob", "top": [[id, logprob], ...]}, ...]  if wanted}
// where ids include the end token or stop id that ended the text, and usage counts it;
// and, of several choices, the fields of the first plus "choices": [the same per choice].
std::string AnswerJson(const std::vector<AnswerChoice>& choices, uint64_t seed, bool with_logprobs);

}  // namespace cairn
