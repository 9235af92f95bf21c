#include "cli/answer_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model/json_text.h"

namespace cairn {
namespace {

using nlohmann::json;

json ChoiceJson(const AnswerChoice& choice, uint64_t seed, bool with_logprobs) {
  json out = {{"ids", choice.ids},
              {"text", choice.text},
              {"finish_reason", choice.finish_reason},
              {"seed", seed},
              {"usage",
               {{"prompt_tokens", choice.usage.prompt_tokens},
                {"cached_tokens", choice.usage.cached_tokens},
                {"completion_tokens", choice.usage.completion_tokens},
                {"num_preemptions", choice.usage.num_preemptions}}}};
  if (!with_logprobs) return out;
  json& logprobs = out["logprobs"] = json::array();
  for (const TokenChances& entry : choice.logprobs) {
    logprobs.push_back({{"token", entry.token}, {"logprob", entry.logprob}, {"top", entry.top}});
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ReadIds(const json& array, int32_t most) {
  if (!array.is_array()) return absl::InvalidArgumentError("not a JSON array of ids");
  std::vector<int32_t> ids;
  for (const json& entry : array) {
    const int64_t id = entry.is_number_integer() ? entry.get<int64_t>() : -1;
    if (id < 0 || id > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("id out of range: ", ShortJson(entry), ", allowed 0..", most));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::string AnswerJson(const std::vector<AnswerChoice>& choices, uint64_t seed,
                       bool with_logprobs) {
  json out = ChoiceJson(choices[0], seed, with_logprobs);
  if (choices.size() > 1) {
    json all = json::array();
    for (const AnswerChoice& choice : choices) {
      all.push_back(ChoiceJson(choice, seed, with_logprobs));
    }
    out["choices"] = std::move(all);
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace cairn
