#include "worker/request_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn {

void ExtendKeys(const BlockKey& root, std::span<const int32_t> tokens, int32_t num_blocks,
                int32_t block_tokens, std::vector<BlockKey>* keys) {
  for (auto i = static_cast<int32_t>(keys->size()); i < num_blocks; ++i) {
    keys->push_back(ChildKey(i == 0 ? root : keys->back(),
                             tokens.subspan(int64_t{i} * block_tokens, block_tokens)));
  }
}

std::span<const int32_t> RequestState::BlockTokens(int32_t index, int32_t block_tokens) const {
  return std::span(tokens).subspan(int64_t{index} * block_tokens, block_tokens);
}

SequenceStart RequestState::Start() const {
  SequenceStart start;
  start.slot = slot;
  start.tokens = tokens;
  start.num_prompt_tokens = num_prompt_tokens();
  start.num_cached_tokens = num_computed;
  start.sampling = request.sampling;
  if (request.min_tokens > 0) {
    start.banned_ids = request.stop_ids;
    // The request ends at end_tokens, so there is nothing to ban after it.
    start.banned_before = static_cast<int32_t>(
        std::min<int64_t>(int64_t{num_prompt_tokens()} + request.min_tokens, end_tokens));
  }
  return start;
}

TokenEvent RequestState::Append(const SampledToken& sampled) {
  if (sampled.token == kNoToken) {
    TokenEvent event;
    event.finish_reason = FinishReason::kError;
    event.error = absl::InternalError(absl::StrCat(
        "the model gives no finite logit to choose a token from: position=", num_tokens()));
    event.usage = usage;
    return event;
  }
  tokens.push_back(sampled.token);
  ++usage.completion_tokens;
  TokenEvent event;
  event.has_token = true;
  event.token = sampled;
  const std::vector<int32_t>& stop_ids = request.stop_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), sampled.token) != stop_ids.end()) {
    event.finish_reason = FinishReason::kStop;
  } else if (num_tokens() >= end_tokens) {
    event.finish_reason = FinishReason::kLength;
  }
  event.usage = usage;
  return event;
}

}  // namespace cairn
