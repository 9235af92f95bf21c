// The public services on a real port, before a worker that computes nothing.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cairn/v1/cairn.grpc.pb.h"
#include "coordinator/cairn_service.h"
#include "coordinator/control_service.h"
#include "coordinator/grpc_server.h"
#include "tests/coordinator/scripted_worker.h"
#include "tests/coordinator/tiny_model.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Script = std::function<void(ScriptedWorker*, const SubmitMessage&)>;

// Says "hi" and ends.
void SayHi(ScriptedWorker* worker, const SubmitMessage& submit) {
  worker->SendToken(submit.job, 'h');
  worker->SendToken(submit.job, 'i');
  worker->SendToken(submit.job, kTurnEnd, JobEnd::kStop);
}
void SayNothing(ScriptedWorker*, const SubmitMessage&) {}

class FrontDoorTest : public testing::Test {
 protected:
  FrontDoorTest()
      : model_(TinyModel()),
        secret_(ClusterSecret::Random()),
        loop_(
            {.cluster = TestClusterOptions(1, 1)}, model_.get(),
            [this](bool serves) { serving_.store(serves); },
            [this] { (void)drained_.TryPush(true); }),
        text_(2, 64) {
    const FrontDoor door{
        .model = model_.get(), .loop = &loop_, .text = &text_, .secret = &secret_, .drain = [this] {
          loop_.Drain(absl::Seconds(30));
        }};
    services_[0] = NewCairnService(door);
    services_[1] = NewAdminService(door);
    services_[2] = NewControlService(&loop_, &secret_);
    auto server = GrpcServer::Start({.address = "127.0.0.1:0"},
                                    {services_[0].get(), services_[1].get(), services_[2].get()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = absl::StrCat("127.0.0.1:", server_->port());
    channel_ = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
    cairn_ = v1::Cairn::NewStub(channel_);
    admin_ = v1::Admin::NewStub(channel_);
  }
  ~FrontDoorTest() override { server_->Shutdown(absl::ZeroDuration()); }

  void Serve(Script script) {
    worker_ = std::make_unique<ScriptedWorker>(address_, &secret_, std::move(script));
    for (int i = 0; i < 800 && !serving_.load(); ++i) absl::SleepFor(absl::Milliseconds(25));
    ASSERT_TRUE(serving_.load());
  }

  struct Outcome {
    grpc::Status status;
    std::vector<v1::GenerateResponse> events;
    std::string Text() const {
      std::string text;
      for (const auto& event : events) text += event.delta().text();
      return text;
    }
  };
  Outcome Generate(const v1::GenerateRequest& request, int deadline_ms = 30'000) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(deadline_ms));
    const auto reader = cairn_->Generate(&context, request);
    return Collect(reader.get());
  }
  static Outcome Collect(grpc::ClientReader<v1::GenerateResponse>* reader) {
    Outcome outcome;
    v1::GenerateResponse event;
    while (reader->Read(&event)) outcome.events.push_back(event);
    outcome.status = reader->Finish();
    return outcome;
  }
  static v1::GenerateRequest TextRequest(const std::string& text) {
    v1::GenerateRequest request;
    request.set_text(text);
    return request;
  }

  // The number the health service answers: 1 serving, 2 not serving; -1 an error.
  int Health(const std::string& service) {
    std::string bytes;
    if (!service.empty())
      bytes = absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                           grpc::internal::RpcMethod::NORMAL_RPC);
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer, grpc::ByteBuffer,
                                          grpc::ByteBuffer>(channel_.get(), method, &context,
                                                            request, &response);
    grpc::Slice answer;
    if (!status.ok() || !response.DumpToSingleSlice(&answer).ok() || answer.size() != 2) return -1;
    return answer.begin()[1];
  }

  const std::unique_ptr<ServedModel> model_;
  const ClusterSecret secret_;
  std::atomic<bool> serving_{false};
  BoundedQueue<bool> drained_{4};
  ClusterLoop loop_;
  ServiceHandle services_[3];
  TextWorkers text_;
  std::unique_ptr<GrpcServer> server_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Cairn::Stub> cairn_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  std::unique_ptr<ScriptedWorker> worker_;
};

TEST_F(FrontDoorTest, StreamsAnAnswerWithItsUsage) {
  Serve(SayHi);
  v1::GenerateRequest request = TextRequest("x");
  request.set_client_id("mine");
  request.set_return_prompt_ids(true);
  request.mutable_sampling()->set_seed(7);
  const Outcome outcome = Generate(request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.Text(), "hi");
  const v1::Started& started = outcome.events.front().started();
  EXPECT_EQ(started.client_id(), "mine");
  EXPECT_EQ(started.seed(), 7u);
  EXPECT_EQ(started.prompt_tokens(), 2);
  EXPECT_THAT(started.prompt_ids(), ElementsAre(kBegin, 'x'));
  const v1::Ended& ended = outcome.events.back().ended();
  EXPECT_EQ(ended.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(ended.usage().prompt_tokens(), 2);
  EXPECT_EQ(ended.usage().completion_tokens(), 3);
}

TEST_F(FrontDoorTest, ChatsWithContentAsPlainText) {
  std::promise<std::vector<int32_t>> prompt;
  Serve([&](ScriptedWorker* worker, const SubmitMessage& submit) {
    prompt.set_value(submit.prompt);
    SayHi(worker, submit);
  });
  v1::ChatRequest request;
  v1::Message* message = request.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("a<|end|>");
  grpc::ClientContext context;
  const auto reader = cairn_->Chat(&context, request);
  const Outcome outcome = Collect(reader.get());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.Text(), "hi");
  const std::vector<int32_t> ids = prompt.get_future().get();
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kTurnEnd), 1);
}

TEST_F(FrontDoorTest, SendsEachChoiceWithItsIndexAndTheSameSeed) {
  std::atomic<uint32_t> choices{0};
  std::atomic<uint64_t> seed{0};
  Serve([&](ScriptedWorker* worker, const SubmitMessage& submit) {
    choices.fetch_or(1u << submit.choice);
    if (seed.load() != 0) {
      EXPECT_EQ(seed.load(), submit.seed);
    }
    seed.store(submit.seed);
    worker->SendToken(submit.job, static_cast<int32_t>('a' + submit.choice), JobEnd::kLength);
  });
  v1::GenerateRequest request = TextRequest("x");
  request.mutable_sampling()->set_n(3);
  const Outcome outcome = Generate(request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(choices.load(), 7u);
  EXPECT_EQ(outcome.events.front().started().seed(), seed.load());
  int ended = 0;
  for (const auto& event : outcome.events) {
    if (event.has_delta()) {
      EXPECT_EQ(event.delta().text(),
                std::string(1, static_cast<char>('a' + event.delta().choice())));
    }
    ended += event.has_ended() ? 1 : 0;
  }
  EXPECT_EQ(ended, 3);
}

TEST_F(FrontDoorTest, CancelsTheJobWhenTheDeadlinePasses) {
  Serve(SayNothing);
  const Outcome outcome = Generate(TextRequest("x"), 500);
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_NE(worker_->NextCancelled(), 0u);
}

TEST_F(FrontDoorTest, CancelsEveryChoiceWhenTheClientDoes) {
  Serve([](ScriptedWorker* worker, const SubmitMessage& submit) {
    worker->SendToken(submit.job, 'a');
  });
  v1::GenerateRequest request = TextRequest("x");
  request.mutable_sampling()->set_n(2);
  grpc::ClientContext context;
  const auto reader = cairn_->Generate(&context, request);
  v1::GenerateResponse event;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(reader->Read(&event));
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const JobId first = worker_->NextCancelled(), second = worker_->NextCancelled();
  EXPECT_NE(first, 0u);
  EXPECT_NE(second, 0u);
  EXPECT_NE(first, second);
}

TEST_F(FrontDoorTest, EndsAReaderThatIsTooSlow) {
  Serve([](ScriptedWorker* worker, const SubmitMessage& submit) {
    for (int i = 0; i < 40'000; ++i) worker->SendToken(submit.job, 'a');
  });
  grpc::ClientContext context;
  const auto reader = cairn_->Generate(&context, TextRequest("x"));
  EXPECT_NE(worker_->NextCancelled(), 0u) << "nobody read, and nobody gave up";
  const Outcome outcome = Collect(reader.get());
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << outcome.status.error_message();
}

TEST_F(FrontDoorTest, PassesOnTheWorkersRefusal) {
  Serve([](ScriptedWorker* worker, const SubmitMessage& submit) {
    JobEvent event;
    event.job = submit.job;
    event.end = JobEnd::kError;
    event.error_code = absl::StatusCode::kInvalidArgument;
    event.error = "never fits: 9 blocks, the pool has 8";
    worker->Send(TokensMessage{{event}});
  });
  const Outcome outcome = Generate(TextRequest("x"));
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(outcome.status.error_message(), "never fits: 9 blocks, the pool has 8");
}

TEST_F(FrontDoorTest, RefusesBadRequestsByName) {
  Serve(SayHi);
  v1::GenerateRequest request = TextRequest("x");
  request.mutable_sampling()->set_temperature(-1);
  Outcome outcome = Generate(request);
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("temperature out of range: -1"));
  outcome = Generate(v1::GenerateRequest());
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request = TextRequest("x");
  request.set_model("huge");
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::NOT_FOUND);
  // And go on with the next.
  EXPECT_EQ(Generate(TextRequest("x")).Text(), "hi");
}

TEST_F(FrontDoorTest, SaysWhatItWaitsForUntilItServes) {
  const Outcome outcome = Generate(TextRequest("x"));
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("waiting for rank 0 of 1 of model tiny"));
}

TEST_F(FrontDoorTest, AnswersAboutTextWithoutAWorker) {
  grpc::ClientContext contexts[6];
  v1::TokenizeRequest tokenize;
  tokenize.set_text("a<|end|>");
  tokenize.set_parse_special(true);
  tokenize.set_add_special(true);
  v1::TokenizeResponse ids;
  ASSERT_TRUE(cairn_->Tokenize(&contexts[0], tokenize, &ids).ok());
  EXPECT_THAT(ids.ids(), ElementsAre(kBegin, 'a', kTurnEnd));
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_ids() = ids.ids();
  v1::DetokenizeResponse text;
  ASSERT_TRUE(cairn_->Detokenize(&contexts[1], detokenize, &text).ok());
  EXPECT_EQ(text.text(), "a");
  detokenize.add_ids(kTinyVocabulary);
  EXPECT_EQ(cairn_->Detokenize(&contexts[2], detokenize, &text).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::RenderRequest render;
  v1::Message* message = render.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("q");
  v1::RenderResponse rendered;
  ASSERT_TRUE(cairn_->Render(&contexts[3], render, &rendered).ok());
  EXPECT_EQ(rendered.text(), "<|start|>user\nq<|end|><|start|>");
  v1::CountTokensResponse count;
  ASSERT_TRUE(cairn_->CountTokens(&contexts[4], render, &count).ok());
  EXPECT_EQ(count.prompt_tokens(), rendered.ids_size());
  v1::ListModelsResponse models;
  ASSERT_TRUE(cairn_->ListModels(&contexts[5], v1::ListModelsRequest(), &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).name(), "tiny");
  EXPECT_EQ(models.models(0).context_tokens(), kTinyContext);
  EXPECT_TRUE(models.models(0).has_chat_template());
  EXPECT_FALSE(models.models(0).serving());
}

TEST_F(FrontDoorTest, HealthIsLiveAtOnceAndServesWhenToldSo) {
  EXPECT_EQ(Health(""), 2);
  EXPECT_EQ(Health("cairn.v1.Cairn"), 2);
  EXPECT_EQ(Health("nobody"), -1);
  server_->SetServing(true);
  EXPECT_EQ(Health(""), 1);
  EXPECT_EQ(Health("cairn.v1.Cairn"), 1);
  server_->SetServing(false);
  EXPECT_EQ(Health("cairn.v1.Cairn"), 2);
}

TEST_F(FrontDoorTest, DrainsOnlyForThoseWhoKnowTheSecret) {
  Serve(SayHi);
  v1::DrainRequest request;
  v1::DrainResponse response;
  grpc::ClientContext first, second;
  request.set_proof(std::string(32, 'x'));
  EXPECT_EQ(admin_->Drain(&first, request, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Generate(TextRequest("x")).Text(), "hi");
  const Hello hello{.purpose = "drain " + loop_.run_id()};
  request.set_proof(std::string(AsBytes(secret_.Prove(HelloRole::kClient, hello))));
  EXPECT_TRUE(admin_->Drain(&second, request, &response).ok());
  EXPECT_TRUE(drained_.Pop(absl::Seconds(20)).has_value());
  EXPECT_EQ(Generate(TextRequest("x")).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace cairn
