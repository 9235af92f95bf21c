// `cairn generate` without an endpoint: the whole path from text to text inside this process.

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "cli/answer_json.h"
#include "cli/offline.h"
#include "cli/offline_engine.h"
#include "cli/verbs.h"
#include "coordinator/answer_text.h"
#include "model/tokenizer.h"

namespace cairn {
namespace {

struct Choice {
  std::unique_ptr<AnswerText> text;  // null where the model has no vocabulary
  AnswerChoice answer;
};

SamplingParams ParamsOf(const SamplingFlags& flags, uint64_t seed) {
  SamplingParams params;
  params.temperature = flags.greedy ? 0 : flags.temperature;
  params.top_k = flags.top_k;
  params.top_p = flags.top_p;
  params.min_p = flags.min_p;
  params.repetition_penalty = flags.repetition_penalty;
  params.presence_penalty = flags.presence_penalty;
  params.frequency_penalty = flags.frequency_penalty;
  params.seed = seed;
  params.num_logprobs = flags.logprobs;
  params.logit_bias = flags.logit_bias;
  return params;
}

class OfflineGenerate {
 public:
  explicit OfflineGenerate(const GenerateFlags& flags) : flags_(flags) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(offline_, OfflineEngine::Open(flags_.engine.model));
    RETURN_IF_ERROR(ReadPrompt());
    seed_ = flags_.sampling.seed.value_or(0);
    if (!flags_.sampling.seed) {
      std::random_device device;
      seed_ = (uint64_t{device()} << 32) | device();
    }
    const int64_t tokens = static_cast<int64_t>(prompt_.size()) + flags_.max_tokens;
    RETURN_IF_ERROR(offline_->StartEngine(
        flags_.engine, {.max_running = flags_.n,
                        .tokens_per_sequence = static_cast<int32_t>(
                            std::min<int64_t>(tokens, offline_->config().context_length)),
                        .num_token_ids = tokenizer_ != nullptr ? tokenizer_->vocab_size() : 0,
                        .prefix_cache = !flags_.no_prefix_cache}));
    std::vector<GenerateRequest> requests;
    for (int32_t i = 0; i < flags_.n; ++i) {
      ASSIGN_OR_RETURN(Choice choice, NewChoice());
      choices_.push_back(std::move(choice));
      requests.push_back(Request(i));
    }
    const bool stream = !flags_.json && flags_.n == 1;
    const auto on_event = [&](size_t i, const TokenEvent& event) {
      return OnEvent(&choices_[i], event, stream);
    };
    RETURN_IF_ERROR(offline_->RunAll(std::move(requests), on_event).status());
    if (flags_.json)
      PrintJson();
    else
      PrintText(stream);
    return absl::OkStatus();
  }

 private:
  absl::Status ReadPrompt() {
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
        Tokenizer::FromCheckpoint(offline_->checkpoint());
    if (tokenizer.ok()) tokenizer_ = *std::move(tokenizer);
    if (flags_.ids) {
      prompt_ = *flags_.ids;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(tokenizer.status());
    ASSIGN_OR_RETURN(prompt_, tokenizer_->Encode(*flags_.prompt, {.add_begin = true}));
    return absl::OkStatus();
  }

  std::vector<int32_t> StopIds() const {
    return flags_.ignore_eos ? std::vector<int32_t>{} : offline_->config().eos_ids;
  }

  absl::StatusOr<Choice> NewChoice() const {
    Choice choice;
    if (tokenizer_ == nullptr) {
      if (!flags_.stop.empty())
        return absl::InvalidArgumentError("stop strings need a vocabulary, and the model has none");
      return choice;
    }
    ASSIGN_OR_RETURN(AnswerText text, AnswerText::Create(tokenizer_.get(), flags_.stop, StopIds()));
    choice.text = std::make_unique<AnswerText>(std::move(text));
    return choice;
  }

  GenerateRequest Request(int32_t index) const {
    GenerateRequest request;
    request.id = absl::StrFormat("choice-%d", index);
    request.prompt = prompt_;
    request.sampling = ParamsOf(flags_.sampling, seed_);
    request.sampling.choice = static_cast<uint32_t>(index);
    request.max_tokens = flags_.max_tokens;
    request.min_tokens = flags_.min_tokens;
    request.stop_ids = StopIds();
    request.use_prefix_cache = !flags_.no_prefix_cache;
    return request;
  }

  // Whether the choice goes on.
  bool OnEvent(Choice* choice, const TokenEvent& event, bool stream) {
    const bool ends = event.finish_reason != FinishReason::kNone;
    const bool was_stopped = choice->text != nullptr && choice->text->stopped();
    std::string delta;
    if (event.has_token && !was_stopped) {
      choice->answer.ids.push_back(event.token.token);
      if (flags_.sampling.logprobs >= 0)
        choice->answer.logprobs.push_back({.token = event.token.token,
                                           .logprob = event.token.logprob,
                                           .top = event.token.top_logprobs});
      if (choice->text != nullptr) delta = choice->text->Add(event.token.token, ends);
    }
    const bool stopped = choice->text != nullptr && choice->text->stopped();
    if (ends) {
      if (choice->text != nullptr && !stopped) delta += choice->text->Finish();
      const bool by_text = choice->text != nullptr && choice->text->stopped();
      choice->answer.finish_reason =
          !by_text && event.finish_reason == FinishReason::kLength ? "length" : "stop";
      choice->answer.usage = {.prompt_tokens = event.usage.prompt_tokens,
                              .cached_tokens = event.usage.cached_tokens,
                              .completion_tokens = static_cast<int32_t>(choice->answer.ids.size()),
                              .num_preemptions = event.usage.num_preemptions};
    }
    choice->answer.text += delta;
    if (stream && !delta.empty()) {
      std::fwrite(delta.data(), 1, delta.size(), stdout);
      std::fflush(stdout);
    }
    return !stopped;
  }

  void PrintJson() const {
    std::vector<AnswerChoice> answers;
    for (const Choice& choice : choices_) answers.push_back(choice.answer);
    std::printf("%s\n", AnswerJson(answers, seed_, flags_.sampling.logprobs >= 0).c_str());
  }

  void PrintText(bool streamed) const {
    for (size_t i = 0; i < choices_.size() && !streamed; ++i)
      std::printf("--- choice %zu\n%s\n", i, choices_[i].answer.text.c_str());
    if (streamed) std::printf("\n");
    if (tokenizer_ != nullptr) return;
    // Without a vocabulary the ids are all there is to show.
    std::printf("%s\n", nlohmann::json(choices_[0].answer.ids).dump().c_str());
  }

  const GenerateFlags& flags_;
  std::unique_ptr<OfflineEngine> offline_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> prompt_;
  uint64_t seed_ = 0;
  std::vector<Choice> choices_;
};

}  // namespace

int RunOfflineGenerate(const GenerateFlags& flags) {
  const absl::Status status = OfflineGenerate(flags).Run();
  return status.ok() ? 0 : ReportRefusal(status);
}

}  // namespace cairn
