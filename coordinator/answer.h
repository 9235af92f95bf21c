// One request's answer on its way back: tokens of its choices come in from a worker, text goes out
// to the client.
//
// Tokens become text here, stop strings end a choice, and what comes past a stop is discarded and
// not counted. The answer ends when all choices have, or with the first error.
// Thread: one, the cluster loop's; the stream takes calls of any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/answer_text.h"
#include "coordinator/request.h"
#include "proto/control.h"

namespace cairn {

struct AnswerStarted {
  std::string request_id{}, client_id{}, model{};
  uint64_t seed = 0;
  int32_t prompt_tokens = 0;
  std::vector<int32_t> prompt_ids{};
};

struct TokenLogprobs {
  int32_t token = 0;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top{};
};

struct AnswerDelta {
  int32_t choice = 0;
  std::string text{};
  std::vector<int32_t> ids{};
  std::vector<TokenLogprobs> logprobs{};
};

enum class AnswerReason : uint8_t { kStop, kLength };

struct AnswerEnded {
  int32_t choice = 0;
  AnswerReason reason = AnswerReason::kStop;
  std::string stop{};
  int32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, num_preemptions = 0;
};

using AnswerEvent = std::variant<AnswerStarted, AnswerDelta, AnswerEnded>;

// Where an answer goes: a client's stream, a script in tests.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;
  // False if the reader is too slow (too much is waiting) or gone. Never blocks.
  virtual bool Write(AnswerEvent event) = 0;
  // Ends the stream after what was written. Once.
  virtual void Finish(const absl::Status& status) = 0;
  // The client gave up, or its deadline passed.
  virtual bool cancelled() const = 0;
};

class Answer {
 public:
  // Errors: InvalidArgument for stop strings that are not allowed.
  static absl::StatusOr<std::unique_ptr<Answer>> Create(const Tokenizer* tokenizer,
                                                        PreparedRequest request,
                                                        std::shared_ptr<AnswerStream> stream);

  // Takes an event of one choice's job. Returns whether the job is to be cancelled: it goes on, but
  // nobody needs what it makes.
  bool OnEvent(int32_t choice, const JobEvent& event);
  // The whole answer ends with an error. Once it is done, nothing happens any more.
  void Fail(const absl::Status& status);

  bool done() const { return done_; }
  const absl::Status& outcome() const { return outcome_; }  // once done
  bool ended(int32_t choice) const { return choices_[choice].ended; }
  const PreparedRequest& request() const { return request_; }
  AnswerStream& stream() { return *stream_; }
  int32_t completion_tokens() const;
  int32_t cached_tokens() const { return choices_[0].cached_tokens; }

 private:
  struct Choice {
    AnswerText text;
    bool ended = false;
    int32_t num_tokens = 0;
    int32_t cached_tokens = 0;
  };
  Answer(PreparedRequest request, std::shared_ptr<AnswerStream> stream)
      : request_(std::move(request)), stream_(std::move(stream)) {}
  bool Write(AnswerEvent event);
  void EndChoice(int32_t choice, const JobEvent& event);

  const PreparedRequest request_;
  const std::shared_ptr<AnswerStream> stream_;
  std::vector<Choice> choices_;
  bool done_ = false;
  absl::Status outcome_;
};

}  // namespace cairn
