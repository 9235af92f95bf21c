#include "coordinator/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/coordinator/tiny_model.h"

namespace cairn {
namespace {

using testing::ElementsAre;

class RecordingStream final : public AnswerStream {
 public:
  bool Write(AnswerEvent event) override {
    if (static_cast<int>(events.size()) >= limit) return false;
    events.push_back(std::move(event));
    return true;
  }
  void Finish(const absl::Status& status) override {
    EXPECT_FALSE(finished) << "finished twice";
    finished = true;
    outcome = status;
  }
  bool cancelled() const override { return gone; }

  std::string Text(int32_t choice) const {
    std::string text;
    for (const AnswerEvent& event : events) {
      const auto* delta = std::get_if<AnswerDelta>(&event);
      if (delta != nullptr && delta->choice == choice) text += delta->text;
    }
    return text;
  }
  const AnswerEnded* Ended(int32_t choice) const {
    for (const AnswerEvent& event : events) {
      const auto* ended = std::get_if<AnswerEnded>(&event);
      if (ended != nullptr && ended->choice == choice) return ended;
    }
    return nullptr;
  }

  std::vector<AnswerEvent> events;
  int limit = 1 << 20;
  bool finished = false, gone = false;
  absl::Status outcome;
};

class AnswerTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> stop, int32_t choices = 1) {
    PreparedRequest request;
    request.prompt = {1, 2, 3};
    request.num_choices = choices;
    request.max_tokens = 100;
    request.stop = std::move(stop);
    request.stop_ids = {kTurnEnd};
    request.num_logprobs = num_logprobs;
    auto created = Answer::Create(tokenizer.get(), std::move(request), stream);
    ASSERT_TRUE(created.ok()) << created.status();
    answer = *std::move(created);
  }
  bool Token(int32_t token, JobEnd end = JobEnd::kNone, int32_t choice = 0) {
    JobEvent event;
    event.has_token = true;
    event.token = token;
    event.end = end;
    event.cached_tokens = 2;
    return answer->OnEvent(choice, event);
  }
  bool End(JobEnd end, int32_t choice = 0) {
    JobEvent event;
    event.end = end;
    event.cached_tokens = 2;
    return answer->OnEvent(choice, event);
  }

  const std::unique_ptr<Tokenizer> tokenizer = TinyTokenizer(true);
  const std::shared_ptr<RecordingStream> stream = std::make_shared<RecordingStream>();
  std::unique_ptr<Answer> answer;
  int32_t num_logprobs = -1;
};

TEST_F(AnswerTest, EndsWithUsageAndTheReason) {
  Start({});
  Token('h');
  Token('i', JobEnd::kLength);
  EXPECT_EQ(stream->Text(0), "hi");
  ASSERT_NE(stream->Ended(0), nullptr);
  EXPECT_EQ(stream->Ended(0)->reason, AnswerReason::kLength);
  EXPECT_EQ(stream->Ended(0)->prompt_tokens, 3);
  EXPECT_EQ(stream->Ended(0)->cached_tokens, 2);
  EXPECT_EQ(stream->Ended(0)->completion_tokens, 2);
  EXPECT_TRUE(stream->finished);
  EXPECT_TRUE(stream->outcome.ok());
}

TEST_F(AnswerTest, DoesNotShowTheTokenThatEndsIt) {
  Start({});
  Token('h');
  Token(kTurnEnd, JobEnd::kStop);
  EXPECT_EQ(stream->Text(0), "h");
  EXPECT_EQ(stream->Ended(0)->reason, AnswerReason::kStop);
  EXPECT_EQ(stream->Ended(0)->completion_tokens, 2);
}

TEST_F(AnswerTest, HoldsBackAnIncompleteCharacterAndEveryDeltaIsWhole) {
  Start({});
  const std::string text = "a\xF0\x9F\x98\x80\xC3\xA9z";
  for (const int32_t id : Bytes(text)) Token(id);
  End(JobEnd::kLength);
  EXPECT_EQ(stream->Text(0), text);
  for (const AnswerEvent& event : stream->events) {
    const auto* delta = std::get_if<AnswerDelta>(&event);
    if (delta == nullptr || delta->text.empty()) continue;
    EXPECT_NE(static_cast<uint8_t>(delta->text[0]) & 0xC0, 0x80) << "begins inside a character";
  }
}

TEST_F(AnswerTest, MarksACharacterThatWasCutOffByLengthOnce) {
  Start({});
  Token(0xF0);
  Token(0x9F, JobEnd::kLength);
  EXPECT_EQ(stream->Text(0), "\xEF\xBF\xBD");
}

TEST_F(AnswerTest, CancelsTheJobWhenAStopStringIsFoundAndCountsNothingPastIt) {
  Start({"STOP"});
  for (const char c : std::string("abST")) EXPECT_FALSE(Token(c));
  EXPECT_EQ(stream->Text(0), "ab");
  EXPECT_FALSE(Token('O'));
  EXPECT_TRUE(Token('P')) << "the job is to be cancelled";
  EXPECT_EQ(stream->Ended(0), nullptr) << "its usage is not known yet";
  // What the worker had already computed.
  Token('x');
  End(JobEnd::kCancelled);
  EXPECT_EQ(stream->Text(0), "ab");
  ASSERT_NE(stream->Ended(0), nullptr);
  EXPECT_EQ(stream->Ended(0)->reason, AnswerReason::kStop);
  EXPECT_EQ(stream->Ended(0)->stop, "STOP");
  EXPECT_EQ(stream->Ended(0)->completion_tokens, 6);
  EXPECT_TRUE(stream->outcome.ok());
}

TEST_F(AnswerTest, FindsAStopStringAtTheLastToken) {
  Start({"ab"});
  Token('x');
  Token('a');
  Token('b', JobEnd::kLength);
  EXPECT_EQ(stream->Text(0), "x");
  EXPECT_EQ(stream->Ended(0)->reason, AnswerReason::kStop);
}

TEST_F(AnswerTest, GivesOutWhatWasHeldBackForAStopThatNeverCame) {
  Start({"abc"});
  Token('a');
  Token('b');
  EXPECT_EQ(stream->Text(0), "");
  Token(kTurnEnd, JobEnd::kStop);
  EXPECT_EQ(stream->Text(0), "ab");
  EXPECT_EQ(stream->Ended(0)->stop, "");
}

TEST_F(AnswerTest, WaitsForAllChoices) {
  Start({}, 2);
  Token('a', JobEnd::kLength, 1);
  EXPECT_FALSE(answer->done());
  Token('b', JobEnd::kStop, 0);
  EXPECT_TRUE(answer->done());
  EXPECT_EQ(stream->Text(0), "b");
  EXPECT_EQ(stream->Text(1), "a");
}

TEST_F(AnswerTest, CharactersOfSeveralChoicesDoNotMix) {
  Start({}, 2);
  const std::string first = "\u00e9\u4e16\U0001f600", second = "\u00fc\u754c\U0001f680";
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    const JobEnd end = i + 1 == first.size() ? JobEnd::kLength : JobEnd::kNone;
    Token(static_cast<uint8_t>(first[i]), end, 0);
    Token(static_cast<uint8_t>(second[i]), end, 1);
  }
  EXPECT_EQ(stream->Text(0), first);
  EXPECT_EQ(stream->Text(1), second);
}

TEST_F(AnswerTest, FailsWithTheWorkersError) {
  Start({}, 2);
  JobEvent event;
  event.end = JobEnd::kError;
  event.error_code = absl::StatusCode::kResourceExhausted;
  event.error = "requests waiting: 1024 of at most 1024";
  answer->OnEvent(1, event);
  EXPECT_TRUE(answer->done());
  EXPECT_EQ(stream->outcome, absl::ResourceExhaustedError(event.error));
  // Late events of the other choice change nothing.
  Token('a', JobEnd::kStop, 0);
  EXPECT_EQ(stream->Ended(0), nullptr);
}

TEST_F(AnswerTest, EndsAReaderThatIsTooSlow) {
  Start({});
  stream->limit = 3;
  for (int i = 0; i < 4; ++i) Token('a');
  EXPECT_TRUE(answer->done());
  EXPECT_EQ(stream->outcome.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(AnswerTest, SaysTheClientIsGoneWhenItsStreamIs) {
  Start({});
  stream->limit = 0;
  stream->gone = true;
  Token('a');
  EXPECT_EQ(stream->outcome.code(), absl::StatusCode::kCancelled);
}

TEST_F(AnswerTest, HandsOutLogprobsOnlyIfAsked) {
  num_logprobs = 1;
  Start({});
  JobEvent event;
  event.has_token = true;
  event.token = 'a';
  event.logprob = -0.5f;
  event.top_logprobs = {{'a', -0.5f}};
  answer->OnEvent(0, event);
  const auto& delta = std::get<AnswerDelta>(stream->events[0]);
  ASSERT_EQ(delta.logprobs.size(), 1u);
  EXPECT_EQ(delta.logprobs[0].logprob, -0.5f);
  EXPECT_THAT(delta.ids, ElementsAre('a'));
}

}  // namespace
}  // namespace cairn
