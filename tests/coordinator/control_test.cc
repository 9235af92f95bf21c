#include "proto/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "proto/control_hello.h"
#include "proto/rpc.h"

namespace cairn {
namespace {

using testing::HasSubstr;

TEST(RpcTest, CutsALongMessageBetweenCharacters) {
  for (size_t before = kMaxStatusMessageBytes - 4; before <= kMaxStatusMessageBytes; ++before) {
    const grpc::Status status = ToGrpc(
        absl::InvalidArgumentError(std::string(before, 'a') + "\xF0\x9F\x98\x80 and more text"));
    const bool fits = before + 4 <= kMaxStatusMessageBytes;
    EXPECT_EQ(status.error_message().substr(before, 4),
              fits ? std::string("\xF0\x9F\x98\x80") : std::string(" ..."));
  }
}

TEST(ControlTest, CarriesASubmitUnchanged) {
  SubmitMessage message;
  message.job = 77;
  message.epoch = 5;
  message.id = "r-1";
  message.prompt = {1, 2, 3};
  message.temperature = 0.5f;
  message.seed = ~uint64_t{0};
  message.choice = 3;
  message.logit_bias = {{4, -1.5f}};
  message.max_tokens = 9;
  message.min_tokens = 2;
  message.stop_ids = {7};
  message.cache_salt = "s";
  message.use_prefix_cache = false;
  const auto decoded = DecodeCoordinatorMessage(EncodeCoordinatorMessage(message));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& got = std::get<SubmitMessage>(*decoded);
  EXPECT_EQ(got.job, 77u);
  EXPECT_EQ(got.prompt, message.prompt);
  EXPECT_EQ(got.temperature, 0.5f);
  EXPECT_EQ(got.seed, ~uint64_t{0});
  EXPECT_EQ(got.choice, 3u);
  EXPECT_EQ(got.logit_bias, message.logit_bias);
  EXPECT_EQ(got.stop_ids, message.stop_ids);
  EXPECT_EQ(got.min_tokens, 2);
  EXPECT_FALSE(got.use_prefix_cache);
}

TEST(ControlTest, CarriesTokensUnchanged) {
  TokensMessage message;
  JobEvent event;
  event.job = 5;
  event.has_token = true;
  event.token = 11;
  event.logprob = -2;
  event.top_logprobs = {{11, -2.0f}, {12, -3.0f}};
  event.end = JobEnd::kError;
  event.error_code = absl::StatusCode::kUnavailable;
  event.error = "rank 1 is gone";
  event.cached_tokens = 4;
  message.events = {event, JobEvent{.job = 6}};
  const auto decoded = DecodeWorkerMessage(EncodeWorkerMessage(message));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& got = std::get<TokensMessage>(*decoded).events;
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].top_logprobs, event.top_logprobs);
  EXPECT_EQ(got[0].end, JobEnd::kError);
  EXPECT_EQ(got[0].error_code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(got[0].error, event.error);
  EXPECT_EQ(got[0].cached_tokens, 4);
  EXPECT_EQ(got[1].job, 6u);
}

TEST(ControlTest, CarriesEveryKindOfMessage) {
  RegisterMessage registration;
  registration.size = 2;
  registration.rank = 1;
  LoadedMessage loaded;
  loaded.threads = 1;
  loaded.max_request_tokens = 1;
  const std::vector<WorkerMessage> up = {
      registration,        LoadingMessage{1, 2}, loaded,         RefusedMessage{"why"},
      ListeningMessage{3}, ReadyMessage{4},      LeftMessage{5}, TokensMessage(),
      HeartbeatMessage(),  LeavingMessage()};
  for (const WorkerMessage& message : up) {
    const auto decoded = DecodeWorkerMessage(EncodeWorkerMessage(message));
    // An empty batch of tokens has no bytes: the one message that is never sent.
    if (std::holds_alternative<TokensMessage>(message)) continue;
    ASSERT_TRUE(decoded.ok()) << message.index() << ": " << decoded.status();
    EXPECT_EQ(decoded->index(), message.index());
  }
  FormMessage form;
  form.addresses = {"10.0.0.1:5", "[::1]:6"};
  SubmitMessage submit;
  submit.prompt = {1};
  submit.max_tokens = 1;
  const std::vector<CoordinatorMessage> down = {
      AssignMessage(), ListenMessage{1}, form,          DisbandMessage{2, "x"},
      submit,          CancelMessage{3}, PingMessage(), ReleaseMessage{"y"}};
  for (const CoordinatorMessage& message : down) {
    const auto decoded = DecodeCoordinatorMessage(EncodeCoordinatorMessage(message));
    ASSERT_TRUE(decoded.ok()) << message.index() << ": " << decoded.status();
    EXPECT_EQ(decoded->index(), message.index());
  }
}

TEST(ControlTest, RefusesValuesOutOfRangeByName) {
  RegisterMessage registration;
  registration.size = 2;
  registration.rank = 2;
  EXPECT_THAT(
      std::string(DecodeWorkerMessage(EncodeWorkerMessage(registration)).status().message()),
      HasSubstr("rank out of range: 2, allowed 0..1"));
  registration = RegisterMessage();
  registration.host = std::string(kMaxControlNameBytes + 1, 'x');
  EXPECT_THAT(
      std::string(DecodeWorkerMessage(EncodeWorkerMessage(registration)).status().message()),
      HasSubstr("host too long: 513 bytes, limit 512"));
  EXPECT_FALSE(DecodeWorkerMessage(EncodeWorkerMessage(LoadingMessage{5, 4})).ok());
  EXPECT_FALSE(DecodeWorkerMessage(EncodeWorkerMessage(LoadingMessage{-1, 4})).ok());
  HeartbeatMessage heartbeat;
  heartbeat.num_free_blocks = -1;
  EXPECT_FALSE(DecodeWorkerMessage(EncodeWorkerMessage(heartbeat)).ok());
  AssignMessage assign;
  assign.size = kMaxGroupSize + 1;
  EXPECT_FALSE(DecodeCoordinatorMessage(EncodeCoordinatorMessage(assign)).ok());
  EXPECT_FALSE(DecodeCoordinatorMessage(EncodeCoordinatorMessage(SubmitMessage())).ok());
}

TEST(ControlTest, SurvivesDamagedBytes) {
  std::mt19937 random(7);
  SubmitMessage submit;
  submit.prompt = {1, 2, 3};
  submit.max_tokens = 3;
  submit.logit_bias = {{1, 2.0f}};
  const std::string good = EncodeCoordinatorMessage(submit);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int f = 0; f < flips; ++f) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 3 == 0) bytes.resize(random() % (bytes.size() + 1));
    (void)DecodeCoordinatorMessage(bytes).ok();
    (void)DecodeWorkerMessage(bytes).ok();
  }
  EXPECT_FALSE(DecodeWorkerMessage("").ok());
  EXPECT_FALSE(DecodeWorkerMessage(std::string(kMaxControlFrameBytes + 1, '\0')).ok());
}

TEST(ControlHelloTest, ProvesTheSecretBothWays) {
  const ClusterSecret secret = ClusterSecret::Random();
  ControlDialer dialer(&secret);
  ControlListener listener(&secret);
  const auto challenge = listener.Challenge(dialer.Open());
  ASSERT_TRUE(challenge.ok());
  const auto proof = dialer.Answer(*challenge);
  ASSERT_TRUE(proof.ok());
  EXPECT_TRUE(listener.Check(*proof).ok());
  EXPECT_LE(static_cast<int64_t>(dialer.Open().size()), kMaxHelloBytes);
  EXPECT_LE(static_cast<int64_t>(challenge->size()), kMaxHelloBytes);
}

TEST(ControlHelloTest, RefusesAPeerWithAnotherSecret) {
  const ClusterSecret secret = ClusterSecret::Random(), other = ClusterSecret::Random();
  {
    ControlDialer stranger(&other);
    ControlListener listener(&secret);
    const auto challenge = listener.Challenge(stranger.Open());
    ASSERT_TRUE(challenge.ok());
    EXPECT_EQ(stranger.Answer(*challenge).status().code(), absl::StatusCode::kPermissionDenied);
    const Sha256Digest guess = other.Prove(HelloRole::kClient, Hello());
    EXPECT_EQ(listener.Check(AsBytes(guess)).code(), absl::StatusCode::kPermissionDenied);
  }
  ControlListener fake(&other);
  ControlDialer dialer(&secret);
  const auto challenge = fake.Challenge(dialer.Open());
  ASSERT_TRUE(challenge.ok());
  EXPECT_EQ(dialer.Answer(*challenge).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(ControlHelloTest, RefusesReflectionReplayAndWrongSizes) {
  const ClusterSecret secret = ClusterSecret::Random();
  ControlDialer dialer(&secret);
  ControlListener first(&secret), second(&secret);
  const auto challenge = first.Challenge(dialer.Open());
  const auto proof = dialer.Answer(*challenge);
  ASSERT_TRUE(proof.ok());
  ASSERT_TRUE(second.Challenge(dialer.Open()).ok());
  EXPECT_FALSE(second.Check(*proof).ok()) << "a proof for one listener served another";
  EXPECT_FALSE(first.Check(challenge->substr(32)).ok()) << "the listener's own proof came back";
  EXPECT_FALSE(first.Check("").ok());
  EXPECT_FALSE(first.Check(*proof + "x").ok());
  ControlListener listener(&secret);
  EXPECT_FALSE(listener.Challenge("").ok());
  EXPECT_FALSE(listener.Challenge(std::string(40, 'x')).ok());
  EXPECT_FALSE(listener.Challenge(dialer.Open() + "x").ok());
  EXPECT_FALSE(ControlDialer(&secret).Answer(std::string(63, 'x')).ok());
}

}  // namespace
}  // namespace cairn
