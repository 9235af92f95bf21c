// A call of a client, from what it asked for to what a worker is told.
//
// The front door decodes a call into GenerateCall, where everything the client may leave out is
// optional. CheckCall refuses what no model could serve, by named limits; PrepareRequest renders
// and tokenizes with the model served and checks the rest. Behind it everything is trusted.
//
// Thread: any; plain values and pure functions.
// Errors: InvalidArgument naming field, value and limit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace cairn {

class ServedModel;

inline constexpr int64_t kMaxTextBytes = int64_t{2} << 20;  // of a prompt or a whole conversation
inline constexpr int32_t kMaxPromptIds = 1 << 20;
inline constexpr int32_t kMaxMessages = 4096;
inline constexpr int32_t kMaxToolCalls = 4096;  // of a whole conversation
inline constexpr int64_t kMaxClientIdBytes = 128;
inline constexpr int64_t kMaxSaltBytes = 128;
inline constexpr int32_t kMaxChoices = 16;
inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr int32_t kMaxStopIds = 64;

struct SamplingCall {
  std::optional<float> temperature, top_p, min_p;
  std::optional<int32_t> top_k;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint64_t> seed;
  std::optional<int32_t> max_tokens, min_tokens;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  std::optional<int32_t> n;
  std::optional<int32_t> logprobs;
};

struct ToolCallInput {
  std::string id{}, name{}, arguments_json{};
};

struct MessageInput {
  std::string role{}, content{}, name{}, tool_call_id{};
  std::vector<ToolCallInput> tool_calls{};
};

struct ConversationInput {
  std::vector<MessageInput> messages;
  std::string tools_json, template_variables_json;
  bool add_generation_prompt = true;
};

struct GenerateCall {
  std::string model;
  // Exactly one of these three.
  std::optional<std::string> text;
  std::optional<std::vector<int32_t>> ids;
  std::optional<ConversationInput> conversation;
  bool parse_special = false;  // of `text`
  SamplingCall sampling;
  std::string client_id, cache_salt;
  bool no_prefix_cache = false;
  bool return_prompt_ids = false;
};

// What the model and its workers are asked to do; every value checked and every default resolved.
struct PreparedRequest {
  std::string client_id, cache_salt;
  std::vector<int32_t> prompt;
  int32_t num_choices = 1;
  int32_t max_tokens = 0, min_tokens = 0;
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  uint64_t seed = 0;
  int32_t num_logprobs = -1;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;  // with the model's end tokens, unless they are ignored
  bool use_prefix_cache = true;
  bool return_prompt_ids = false;
};

absl::Status CheckCall(const GenerateCall& call);
absl::Status CheckConversation(const ConversationInput& conversation);
// A text to tokenize, and ids to turn into text.
absl::Status CheckText(std::string_view text);
absl::Status CheckTextIds(std::span<const int32_t> ids, int32_t vocab_size);

// `random_seed` is used where the caller gave none. Slow for long prompts: milliseconds per 100
// KiB. Errors: also NotFound for a model that is not served; FailedPrecondition if the model has no
// chat template.
absl::StatusOr<PreparedRequest> PrepareRequest(const ServedModel& model, GenerateCall call,
                                               uint64_t random_seed);

// The ids of a conversation's prompt, and its text if `text` is not null.
absl::StatusOr<std::vector<int32_t>> RenderConversation(const ServedModel& model,
                                                        const ConversationInput& conversation,
                                                        std::string* text);

}  // namespace cairn
