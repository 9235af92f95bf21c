#include "cli/api_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/secret.h"
#include "cairn/v1/cairn.grpc.pb.h"
#include "proto/rpc.h"

namespace cairn {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kRefusalPatience = absl::Milliseconds(100);

const char* StateName(v1::RankState state) {
  switch (state) {
    case v1::RANK_STATE_MISSING:
      return "missing";
    case v1::RANK_STATE_ATTACHED:
      return "attached";
    case v1::RANK_STATE_LOADING:
      return "loading";
    case v1::RANK_STATE_LOADED:
      return "loaded";
    case v1::RANK_STATE_FORMING:
      return "forming";
    case v1::RANK_STATE_READY:
      return "ready";
    case v1::RANK_STATE_LEAVING:
      return "leaving";
    default:
      return "unknown";
  }
}

void FillSampling(const SamplingFlags& flags, v1::Sampling* wire) {
  wire->set_temperature(flags.greedy ? 0 : flags.temperature);
  wire->set_top_k(flags.top_k);
  wire->set_top_p(flags.top_p);
  wire->set_min_p(flags.min_p);
  wire->set_repetition_penalty(flags.repetition_penalty);
  wire->set_presence_penalty(flags.presence_penalty);
  wire->set_frequency_penalty(flags.frequency_penalty);
  if (flags.seed.has_value()) wire->set_seed(*flags.seed);
  if (flags.logprobs >= 0) wire->set_logprobs(flags.logprobs);
  for (const auto& [token, bias] : flags.logit_bias) {
    v1::LogitBias* entry = wire->add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
}

v1::GenerateRequest MakeRequest(const GenerateFlags& flags) {
  v1::GenerateRequest request;
  if (flags.prompt.has_value()) request.set_text(*flags.prompt);
  if (flags.ids.has_value()) {
    request.mutable_ids()->mutable_ids()->Add(flags.ids->begin(), flags.ids->end());
  }
  v1::Sampling* sampling = request.mutable_sampling();
  FillSampling(flags.sampling, sampling);
  sampling->set_max_tokens(flags.max_tokens);
  sampling->set_min_tokens(flags.min_tokens);
  sampling->set_n(flags.n);
  sampling->set_ignore_eos(flags.ignore_eos);
  for (const std::string& stop : flags.stop) sampling->add_stop(stop);
  request.set_no_prefix_cache(flags.no_prefix_cache);
  return request;
}

RankView MakeRank(const v1::StatusResponse::Rank& wire) {
  return {.rank = wire.rank(),
          .state = StateName(wire.state()),
          .worker = wire.worker(),
          .host = wire.host(),
          .address = wire.address(),
          .pid = wire.pid(),
          .weight_bytes = wire.weight_bytes(),
          .read_bytes = wire.read_bytes(),
          .kv_bytes = wire.kv_bytes(),
          .threads = wire.threads(),
          .loading = wire.loading(),
          .heard_seconds_ago = wire.heard_seconds_ago()};
}

EngineView MakeEngine(const v1::EngineStats& wire) {
  return {.waiting = wire.waiting(),
          .running = wire.running(),
          .blocks = wire.blocks(),
          .free_blocks = wire.free_blocks(),
          .cached_blocks = wire.cached_blocks(),
          .steps = wire.steps(),
          .preemptions = wire.preemptions(),
          .prompt_tokens = wire.prompt_tokens(),
          .cached_tokens = wire.cached_tokens(),
          .computed_tokens = wire.computed_tokens(),
          .generated_tokens = wire.generated_tokens(),
          .last_step_seconds = wire.last_step_seconds(),
          .longest_step_seconds = wire.longest_step_seconds(),
          .max_request_tokens = wire.max_request_tokens()};
}

StatusView MakeStatus(const v1::StatusResponse& wire) {
  StatusView view{.version = wire.version(),
                  .run_id = wire.run_id(),
                  .model = wire.model(),
                  .serving = wire.serving(),
                  .draining = wire.draining(),
                  .waiting_for = wire.waiting_for(),
                  .loading = wire.loading(),
                  .requests_in_flight = wire.requests_in_flight(),
                  .requests_total = wire.requests_total(),
                  .uptime_seconds = wire.uptime_seconds()};
  for (const v1::StatusResponse::Group& group : wire.groups()) {
    GroupView& to = view.groups.emplace_back();
    to.group = group.group();
    to.serving = group.serving();
    to.epoch = group.epoch();
    to.collective = group.collective();
    for (const auto& rank : group.ranks()) to.ranks.push_back(MakeRank(rank));
    to.last_failure = group.last_failure();
    to.jobs = group.jobs();
    to.engine = MakeEngine(group.engine());
  }
  for (const auto& rank : wire.spares()) view.spares.push_back(MakeRank(rank));
  return view;
}

void Deliver(const v1::GenerateResponse& response, const AnswerCallbacks& callbacks) {
  if (response.has_started() && callbacks.on_started) {
    callbacks.on_started(response.started().seed());
  }
  if (response.has_delta() && callbacks.on_delta) {
    const v1::Delta& delta = response.delta();
    std::vector<TokenChances> chances;
    for (const v1::TokenLogprobs& entry : delta.logprobs()) {
      TokenChances& to = chances.emplace_back();
      to.token = entry.token();
      to.logprob = entry.logprob();
      for (const v1::TopLogprob& top : entry.top()) to.top.emplace_back(top.token(), top.logprob());
    }
    callbacks.on_delta(delta.choice(), delta.text(), {delta.ids().begin(), delta.ids().end()},
                       chances);
  }
  if (response.has_ended() && callbacks.on_ended) {
    const v1::Ended& ended = response.ended();
    const v1::Usage& usage = ended.usage();
    callbacks.on_ended(ended.choice(),
                       ended.finish_reason() == v1::FINISH_REASON_LENGTH ? "length" : "stop",
                       {.prompt_tokens = usage.prompt_tokens(),
                        .cached_tokens = usage.cached_tokens(),
                        .completion_tokens = usage.completion_tokens(),
                        .num_preemptions = usage.num_preemptions()});
  }
}

class ApiClientImpl final : public ApiClient {
 public:
  explicit ApiClientImpl(const std::string& endpoint) : endpoint_(endpoint) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    channel_ = grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
    cairn_ = v1::Cairn::NewStub(channel_);
    admin_ = v1::Admin::NewStub(channel_);
  }

  absl::Status Connect(absl::Duration limit) override {
    if (channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + limit))) {
      return absl::OkStatus();
    }
    return NobodyAnswers();
  }

  absl::StatusOr<StatusView> Status(absl::Duration limit) override {
    RETURN_IF_ERROR(ConnectAtOnce(limit));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + limit));
    v1::StatusResponse response;
    RETURN_IF_ERROR(FromGrpc(admin_->Status(&context, v1::StatusRequest(), &response)));
    return MakeStatus(response);
  }

  absl::StatusOr<int32_t> Drain(const ClusterSecret& secret, const std::string& run_id,
                                absl::Duration limit) override {
    RETURN_IF_ERROR(Connect(limit));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + limit));
    v1::DrainRequest request;
    const Hello hello{.purpose = absl::StrCat("drain ", run_id)};
    request.set_proof(std::string(AsBytes(secret.Prove(HelloRole::kClient, hello))));
    v1::DrainResponse response;
    RETURN_IF_ERROR(FromGrpc(admin_->Drain(&context, request, &response)));
    return response.requests_in_flight();
  }

  absl::Status Generate(const GenerateFlags& flags, const AnswerCallbacks& callbacks) override {
    const v1::GenerateRequest request = MakeRequest(flags);
    return Stream(callbacks,
                  [&](grpc::ClientContext* context) { return cairn_->Generate(context, request); });
  }

  absl::Status Chat(const std::vector<ChatTurn>& turns, const SamplingFlags& sampling,
                    int32_t max_tokens, const AnswerCallbacks& callbacks) override {
    v1::ChatRequest request;
    for (const ChatTurn& turn : turns) {
      v1::Message* message = request.mutable_conversation()->add_messages();
      message->set_role(turn.role);
      message->set_content(turn.content);
    }
    FillSampling(sampling, request.mutable_sampling());
    if (max_tokens > 0) request.mutable_sampling()->set_max_tokens(max_tokens);
    return Stream(callbacks,
                  [&](grpc::ClientContext* context) { return cairn_->Chat(context, request); });
  }

  void Cancel() override {
    if (const std::shared_ptr<grpc::ClientContext> context = running_.load()) {
      context->TryCancel();
    }
  }

 private:
  // Does not wait long for a port that refuses.
  absl::Status ConnectAtOnce(absl::Duration limit) {
    const absl::Time deadline = absl::Now() + limit;
    while (true) {
      const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
      if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
      // The port may have opened since the last call: gRPC looks only while somebody waits.
      const absl::Time until = state == GRPC_CHANNEL_TRANSIENT_FAILURE
                                   ? std::min(deadline, absl::Now() + kRefusalPatience)
                                   : deadline;
      if (!channel_->WaitForStateChange(state, absl::ToChronoTime(until))) return NobodyAnswers();
    }
  }

  absl::Status NobodyAnswers() const {
    return absl::UnavailableError(
        absl::StrCat("no coordinator answers at ", endpoint_, ": is `cairn serve` running?"));
  }

  template <typename Call>
  absl::Status Stream(const AnswerCallbacks& callbacks, const Call& call) {
    RETURN_IF_ERROR(Connect(kConnectTimeout));
    // Shared with Cancel, which may run on another thread at any moment.
    const auto context = std::make_shared<grpc::ClientContext>();
    running_.store(context);
    const std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader = call(context.get());
    v1::GenerateResponse response;
    while (reader->Read(&response)) Deliver(response, callbacks);
    const absl::Status status = FromGrpc(reader->Finish());
    running_.store(nullptr);
    return status;
  }

  const std::string endpoint_;
  std::shared_ptr<grpc::Channel> channel_;  // shared because gRPC's stubs take it so
  std::unique_ptr<v1::Cairn::Stub> cairn_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  std::atomic<std::shared_ptr<grpc::ClientContext>> running_;
};

}  // namespace

std::unique_ptr<ApiClient> ApiClient::Create(const std::string& endpoint) {
  return std::make_unique<ApiClientImpl>(endpoint);
}

}  // namespace cairn
