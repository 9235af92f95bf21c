#include "coordinator/request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "coordinator/served_model.h"
#include "model/json_text.h"
#include "model/stop_strings.h"
#include "proto/sampling_limits.h"

namespace cairn {
namespace {

using nlohmann::json;

constexpr JsonLimits kCallJsonLimits{.max_bytes = kMaxTextBytes, .max_depth = 64};

absl::Status OutOfRange(const std::string& field, const std::string& value,
                        const std::string& limit) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " out of range: ", value, ", allowed ", limit));
}

absl::Status CheckInt(const std::string& field, const std::optional<int32_t>& value, int32_t low,
                      int32_t high) {
  if (!value.has_value() || (*value >= low && *value <= high)) return absl::OkStatus();
  return OutOfRange(field, absl::StrCat(*value), absl::StrCat(low, "..", high));
}

// `above_low`: low itself is not allowed; the same for high. NaN is never allowed.
struct FloatRange {
  float low, high;
  bool above_low = false, below_high = false;
};

absl::Status CheckFloat(const std::string& field, const std::optional<float>& value,
                        const FloatRange& range) {
  if (!value.has_value()) return absl::OkStatus();
  const bool fits = *value >= range.low && *value <= range.high &&
                    !(range.above_low && *value == range.low) &&
                    !(range.below_high && *value == range.high);
  if (fits) return absl::OkStatus();
  return OutOfRange(field, absl::StrCat(*value),
                    absl::StrCat(range.above_low ? "more than " : "", range.low, " to ",
                                 range.below_high ? "less than " : "", range.high));
}

absl::Status CheckSize(const std::string& field, int64_t size, int64_t limit) {
  if (size <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " too long: ", size, " bytes, limit ", limit));
}

absl::Status CheckCount(const std::string& field, int64_t count, int64_t limit) {
  if (count <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has too many entries: ", count, ", limit ", limit));
}

absl::Status CheckSampling(const SamplingCall& call) {
  if (call.temperature != 0) {
    RETURN_IF_ERROR(
        CheckFloat("temperature", call.temperature, {kMinTemperature, kMaxTemperature}));
  }
  RETURN_IF_ERROR(CheckInt("top_k", call.top_k, 0, std::numeric_limits<int32_t>::max()));
  RETURN_IF_ERROR(CheckFloat("top_p", call.top_p, {.low = 0, .high = 1, .above_low = true}));
  RETURN_IF_ERROR(CheckFloat("min_p", call.min_p, {.low = 0, .high = 1, .below_high = true}));
  RETURN_IF_ERROR(CheckFloat("repetition_penalty", call.repetition_penalty,
                             {kMinRepetitionPenalty, kMaxRepetitionPenalty}));
  constexpr FloatRange kOutputPenalties = {-kMaxOutputPenalty, kMaxOutputPenalty};
  RETURN_IF_ERROR(CheckFloat("presence_penalty", call.presence_penalty, kOutputPenalties));
  RETURN_IF_ERROR(CheckFloat("frequency_penalty", call.frequency_penalty, kOutputPenalties));
  RETURN_IF_ERROR(CheckInt("max_tokens", call.max_tokens, 1, std::numeric_limits<int32_t>::max()));
  RETURN_IF_ERROR(CheckInt("min_tokens", call.min_tokens, 0,
                           call.max_tokens.value_or(std::numeric_limits<int32_t>::max())));
  RETURN_IF_ERROR(CheckInt("n", call.n, 1, kMaxChoices));
  RETURN_IF_ERROR(CheckInt("logprobs", call.logprobs, 0, kMaxTopLogprobs));
  RETURN_IF_ERROR(CheckCount("logit_bias", call.logit_bias.size(), kMaxLogitBiases));
  RETURN_IF_ERROR(CheckCount("stop_ids", call.stop_ids.size(), kMaxStopIds));
  for (const auto& [token, bias] : call.logit_bias) {
    RETURN_IF_ERROR(CheckFloat(absl::StrCat("logit_bias of token ", token), bias,
                               {-kMaxLogitBias, kMaxLogitBias}));
  }
  return StopStrings::Create(call.stop).status();
}

absl::Status CheckId(const std::string& field, int32_t id, int32_t vocab_size) {
  if (id >= 0 && id < vocab_size) return absl::OkStatus();
  return OutOfRange(field, absl::StrCat(id),
                    absl::StrCat("0..", vocab_size - 1, " (the vocabulary)"));
}

// Ids as indices: checked against the vocabulary before anything uses them.
absl::Status CheckIds(const GenerateCall& call, int32_t vocab_size) {
  std::set<int32_t> biased;
  for (const auto& [token, bias] : call.sampling.logit_bias) {
    RETURN_IF_ERROR(CheckId("logit_bias token", token, vocab_size));
    if (!biased.insert(token).second) {
      return absl::InvalidArgumentError(absl::StrCat("logit_bias token given twice: ", token));
    }
  }
  for (const int32_t id : call.sampling.stop_ids) {
    RETURN_IF_ERROR(CheckId("stop_ids", id, vocab_size));
  }
  return call.ids.has_value() ? CheckTextIds(*call.ids, vocab_size) : absl::OkStatus();
}

absl::StatusOr<json> MessageJson(const MessageInput& message, size_t index) {
  json out = {{"role", message.role}, {"content", message.content}};
  if (!message.name.empty()) out["name"] = message.name;
  if (!message.tool_call_id.empty()) out["tool_call_id"] = message.tool_call_id;
  for (const ToolCallInput& call : message.tool_calls) {
    const std::string& text = call.arguments_json.empty() ? "{}" : call.arguments_json;
    absl::StatusOr<json> arguments = ParseJson(text, kCallJsonLimits);
    if (!arguments.ok()) {
      return Annotate(arguments.status(),
                      absl::StrCat("messages[", index, "].tool_calls.arguments_json"));
    }
    if (!arguments->is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("messages[", index, "].tool_calls.arguments_json must be an object"));
    }
    out["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", *std::move(arguments)}}}});
  }
  return out;
}

absl::StatusOr<std::vector<int32_t>> PromptIds(const ServedModel& model, GenerateCall* call) {
  if (call->ids.has_value()) return *std::move(call->ids);
  if (call->conversation.has_value())
    return RenderConversation(model, *call->conversation, nullptr);
  return model.tokenizer().Encode(*call->text,
                                  {.parse_special = call->parse_special, .add_begin = true});
}

// The prompt must leave one token of the window; nothing is ever cut off silently.
absl::Status CheckWindow(const ServedModel& model, int64_t prompt_tokens) {
  if (prompt_tokens == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (prompt_tokens < model.context_tokens()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the prompt does not fit the context: %d tokens, at most %d of a context of "
                      "%d leave room for an answer",
                      prompt_tokens, model.context_tokens() - 1, model.context_tokens()));
}

std::vector<int32_t> StopIds(const ServedModel& model, const SamplingCall& call) {
  std::set<int32_t> ids(call.stop_ids.begin(), call.stop_ids.end());
  if (!call.ignore_eos) {
    ids.insert(model.config().eos_ids.begin(), model.config().eos_ids.end());
    if (model.tokenizer().eos_id().has_value()) ids.insert(*model.tokenizer().eos_id());
  }
  return {ids.begin(), ids.end()};
}

}  // namespace

absl::Status CheckConversation(const ConversationInput& conversation) {
  if (conversation.messages.empty()) return absl::InvalidArgumentError("messages is empty");
  RETURN_IF_ERROR(CheckCount("messages", conversation.messages.size(), kMaxMessages));
  int64_t num_calls = 0;
  for (const MessageInput& message : conversation.messages) num_calls += message.tool_calls.size();
  RETURN_IF_ERROR(CheckCount("tool_calls", num_calls, kMaxToolCalls));
  int64_t bytes = conversation.tools_json.size() + conversation.template_variables_json.size();
  for (const MessageInput& message : conversation.messages) {
    bytes += message.role.size() + message.content.size() + message.name.size() +
             message.tool_call_id.size();
    for (const ToolCallInput& call : message.tool_calls) {
      bytes += call.id.size() + call.name.size() + call.arguments_json.size();
    }
  }
  return CheckSize("conversation", bytes, kMaxTextBytes);
}

absl::Status CheckText(std::string_view text) {
  return CheckSize("text", static_cast<int64_t>(text.size()), kMaxTextBytes);
}

absl::Status CheckTextIds(std::span<const int32_t> ids, int32_t vocab_size) {
  RETURN_IF_ERROR(CheckCount("ids", static_cast<int64_t>(ids.size()), kMaxPromptIds));
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab_size; });
  if (bad == ids.end()) return absl::OkStatus();
  return CheckId(absl::StrCat("ids[", bad - ids.begin(), "]"), *bad, vocab_size);
}

absl::Status CheckCall(const GenerateCall& call) {
  const int inputs = call.text.has_value() + call.ids.has_value() + call.conversation.has_value();
  if (inputs != 1) return absl::InvalidArgumentError("the input is missing: give text or ids");
  if (call.text.has_value()) RETURN_IF_ERROR(CheckText(*call.text));
  if (call.conversation.has_value()) RETURN_IF_ERROR(CheckConversation(*call.conversation));
  RETURN_IF_ERROR(CheckSize("client_id", call.client_id.size(), kMaxClientIdBytes));
  RETURN_IF_ERROR(CheckSize("cache_salt", call.cache_salt.size(), kMaxSaltBytes));
  return CheckSampling(call.sampling);
}

absl::StatusOr<std::vector<int32_t>> RenderConversation(const ServedModel& model,
                                                        const ConversationInput& conversation,
                                                        std::string* text) {
  ASSIGN_OR_RETURN(const ChatTemplate* chat, model.chat());
  json messages = json::array();
  for (const MessageInput& message : conversation.messages) {
    ASSIGN_OR_RETURN(json entry, MessageJson(message, messages.size()));
    messages.push_back(std::move(entry));
  }
  const std::string messages_json = messages.dump(-1, ' ', false, json::error_handler_t::replace);
  ASSIGN_OR_RETURN(const std::vector<TextSegment> segments,
                   chat->Render({.messages_json = messages_json,
                                 .tools_json = conversation.tools_json,
                                 .extra_json = conversation.template_variables_json,
                                 .add_generation_prompt = conversation.add_generation_prompt,
                                 .now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone())}));
  if (text != nullptr) *text = JoinSegments(segments);
  return model.tokenizer().EncodeSegments(segments);
}

absl::StatusOr<PreparedRequest> PrepareRequest(const ServedModel& model, GenerateCall call,
                                               uint64_t random_seed) {
  RETURN_IF_ERROR(CheckCall(call));
  RETURN_IF_ERROR(model.CheckName(call.model));
  RETURN_IF_ERROR(CheckIds(call, model.vocab_size()));
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt, PromptIds(model, &call));
  RETURN_IF_ERROR(CheckWindow(model, static_cast<int64_t>(prompt.size())));
  const int32_t room = model.context_tokens() - static_cast<int32_t>(prompt.size());
  SamplingCall& sampling = call.sampling;
  const int32_t max_tokens = std::min(sampling.max_tokens.value_or(room), room);
  return PreparedRequest{.client_id = std::move(call.client_id),
                         .cache_salt = std::move(call.cache_salt),
                         .prompt = std::move(prompt),
                         .num_choices = sampling.n.value_or(1),
                         .max_tokens = max_tokens,
                         .min_tokens = std::min(sampling.min_tokens.value_or(0), max_tokens),
                         .temperature = sampling.temperature.value_or(1),
                         .top_p = sampling.top_p.value_or(1),
                         .min_p = sampling.min_p.value_or(0),
                         .top_k = sampling.top_k.value_or(0),
                         .repetition_penalty = sampling.repetition_penalty.value_or(1),
                         .presence_penalty = sampling.presence_penalty.value_or(0),
                         .frequency_penalty = sampling.frequency_penalty.value_or(0),
                         .seed = sampling.seed.value_or(random_seed),
                         .num_logprobs = sampling.logprobs.value_or(-1),
                         .logit_bias = std::move(sampling.logit_bias),
                         .stop = std::move(sampling.stop),
                         .stop_ids = StopIds(model, sampling),
                         .use_prefix_cache = !call.no_prefix_cache,
                         .return_prompt_ids = call.return_prompt_ids};
}

}  // namespace cairn
