#include "coordinator/answer_text.h"

#include <algorithm>
#include <utility>

namespace cairn {

absl::StatusOr<AnswerText> AnswerText::Create(const Tokenizer* tokenizer,
                                              const std::vector<std::string>& stop,
                                              std::vector<int32_t> stop_ids) {
  ASSIGN_OR_RETURN(StopStrings stops, StopStrings::Create(stop));
  return AnswerText(tokenizer, std::move(stops), std::move(stop_ids));
}

std::string AnswerText::Add(int32_t token, bool ends) {
  if (stopped()) return "";
  if (ends && std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end()) return "";
  return Take(stops_.Add(detokenizer_.Add(token)));
}

std::string AnswerText::Finish() {
  if (stopped()) return "";
  std::string text = Take(stops_.Add(detokenizer_.Finish()));
  if (!stopped()) text += Take(stops_.Finish());
  return text;
}

std::string AnswerText::Take(StopStrings::Output output) {
  if (output.stopped) stop_ = std::move(output.stop);
  return std::move(output.text);
}

}  // namespace cairn
