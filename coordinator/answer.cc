#include "coordinator/answer.h"

#include <algorithm>

#include "base/log.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<Answer>> Answer::Create(const Tokenizer* tokenizer,
                                                       PreparedRequest request,
                                                       std::shared_ptr<AnswerStream> stream) {
  std::unique_ptr<Answer> answer(new Answer(std::move(request), std::move(stream)));
  for (int32_t i = 0; i < answer->request_.num_choices; ++i) {
    ASSIGN_OR_RETURN(AnswerText text, AnswerText::Create(tokenizer, answer->request_.stop,
                                                         answer->request_.stop_ids));
    answer->choices_.push_back({.text = std::move(text)});
  }
  return answer;
}

bool Answer::OnEvent(int32_t choice_index, const JobEvent& event) {
  Choice& choice = choices_[choice_index];
  const bool goes_on = event.end == JobEnd::kNone;
  if (done_ || choice.ended) return goes_on;
  if (event.end == JobEnd::kError) {
    const absl::StatusCode code =
        event.error_code == absl::StatusCode::kOk ? absl::StatusCode::kInternal : event.error_code;
    Fail(absl::Status(code, event.error));
    return false;
  }
  if (event.end == JobEnd::kCancelled && !choice.text.stopped()) {
    Fail(absl::CancelledError("the worker cancelled the request"));
    return false;
  }
  AnswerDelta delta{.choice = choice_index};
  if (event.has_token && !choice.text.stopped()) {
    ++choice.num_tokens;
    delta.ids.push_back(event.token);
    delta.text = choice.text.Add(event.token, !goes_on);
    if (request_.num_logprobs >= 0) {
      delta.logprobs.push_back(
          {.token = event.token, .logprob = event.logprob, .top = event.top_logprobs});
    }
  }
  if (!goes_on) delta.text += choice.text.Finish();
  if (!(delta.ids.empty() && delta.text.empty()) && !Write(std::move(delta))) return goes_on;
  if (!goes_on) EndChoice(choice_index, event);
  return goes_on && choice.text.stopped();
}

void Answer::EndChoice(int32_t choice_index, const JobEvent& event) {
  Choice& choice = choices_[choice_index];
  choice.ended = true;
  choice.cached_tokens = event.cached_tokens;
  const bool by_length = event.end == JobEnd::kLength && !choice.text.stopped();
  if (!Write(AnswerEnded{.choice = choice_index,
                         .reason = by_length ? AnswerReason::kLength : AnswerReason::kStop,
                         .stop = choice.text.stop(),
                         .prompt_tokens = static_cast<int32_t>(request_.prompt.size()),
                         .cached_tokens = event.cached_tokens,
                         .completion_tokens = choice.num_tokens,
                         .num_preemptions = event.num_preemptions})) {
    return;
  }
  if (!std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.ended; })) {
    return;
  }
  done_ = true;
  stream_->Finish(absl::OkStatus());
}

bool Answer::Write(AnswerEvent event) {
  if (stream_->Write(std::move(event))) return true;
  Fail(stream_->cancelled()
           ? absl::CancelledError("the client is gone")
           : absl::ResourceExhaustedError("the client reads too slowly: too many deltas wait"));
  return false;
}

void Answer::Fail(const absl::Status& status) {
  CHECK(!status.ok());
  if (done_) return;
  done_ = true;
  outcome_ = status;
  stream_->Finish(status);
}

int32_t Answer::completion_tokens() const {
  int32_t sum = 0;
  for (const Choice& choice : choices_) sum += choice.num_tokens;
  return sum;
}

}  // namespace cairn
