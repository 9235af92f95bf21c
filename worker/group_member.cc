#include "worker/group_member.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/network_address.h"
#include "worker/collective.h"

namespace cairn {
namespace {

JobEvent ToJobEvent(JobId job, const TokenEvent& event) {
  JobEvent out;
  out.job = job;
  out.has_token = event.has_token;
  if (event.has_token) {
    out.token = event.token.token;
    out.logprob = event.token.logprob;
    out.top_logprobs = event.token.top_logprobs;
  }
  switch (event.finish_reason) {
    case FinishReason::kNone:
      break;
    case FinishReason::kStop:
      out.end = JobEnd::kStop;
      break;
    case FinishReason::kLength:
      out.end = JobEnd::kLength;
      break;
    case FinishReason::kCancelled:
      out.end = JobEnd::kCancelled;
      break;
    case FinishReason::kError:
      out.end = JobEnd::kError;
      out.error_code = event.error.code();
      out.error = std::string(event.error.message());
      break;
  }
  out.prompt_tokens = event.usage.prompt_tokens;
  out.cached_tokens = event.usage.cached_tokens;
  out.completion_tokens = event.usage.completion_tokens;
  out.num_preemptions = event.usage.num_preemptions;
  return out;
}

GenerateRequest ToRequest(const SubmitMessage& message) {
  GenerateRequest request;
  request.id = message.id;
  request.prompt = message.prompt;
  SamplingParams& sampling = request.sampling;
  sampling.temperature = message.temperature;
  sampling.top_k = message.top_k;
  sampling.top_p = message.top_p;
  sampling.min_p = message.min_p;
  sampling.repetition_penalty = message.repetition_penalty;
  sampling.presence_penalty = message.presence_penalty;
  sampling.frequency_penalty = message.frequency_penalty;
  sampling.seed = message.seed;
  sampling.choice = message.choice;
  sampling.num_logprobs = message.num_logprobs;
  sampling.logit_bias = message.logit_bias;
  request.max_tokens = message.max_tokens;
  request.min_tokens = message.min_tokens;
  request.stop_ids = message.stop_ids;
  request.cache_salt = message.cache_salt;
  request.use_prefix_cache = message.use_prefix_cache;
  return request;
}

}  // namespace

GroupMember::GroupMember(const Options& options, const ClusterSecret* secret, RankLoader loader)
    : options_(options),
      events_(options.max_queued_events),
      last_heard_(clock_.Now()),
      last_beat_(last_heard_),
      host_(std::make_unique<RankHost>(options.host, secret, std::move(loader), HostCallbacks())) {}

GroupMember::~GroupMember() = default;

void GroupMember::Post(Event event) {
  if (events_.TryPush(std::move(event))) return;
  // The owner hangs: without events no state of ours is right any more.
  LOG(FATAL) << "member: " << events_.size() << " events wait";
}

ControlClient::Callbacks GroupMember::callbacks() {
  return {.on_attached =
              [this](std::shared_ptr<ControlConnection> connection) {
                Post(Attached{std::move(connection)});
              },
          .on_message = [this](CoordinatorMessage message) { Post(std::move(message)); },
          .on_detached = [this](absl::Status cause) { Post(Detached{std::move(cause)}); },
          .on_cannot_attach =
              [](const absl::Status& status) {
                LOG(WARNING) << "member.cannot_attach cause=" << status.message();
              }};
}

RankHost::Callbacks GroupMember::HostCallbacks() {
  return {.on_loading =
              [this](uint64_t load, const Rank::LoadProgress& progress) {
                Post(HostLoading{load, progress});
              },
          .on_loaded =
              [this](uint64_t load, const absl::StatusOr<LoadedMessage>& loaded) {
                Post(HostLoaded{load, loaded});
              },
          .on_ready =
              [this](uint64_t epoch, Engine* engine) {
                Post(HostReady{epoch, engine});
              },
          .on_failed =
              [this](uint64_t epoch, const absl::Status& cause) {
                Post(HostFailed{epoch, cause});
              },
          .on_delivered = [this] { SendTokens(); },
          .on_left =
              [this](uint64_t epoch, const absl::Status& cause) {
                Post(HostLeft{epoch, cause});
              }};
}

void GroupMember::RequestEnd() { Post(EndRequested{}); }

MemberEnd GroupMember::Run(std::string* why) {
  while (!end_.has_value()) {
    for (Event& event : events_.PopAll(absl::Milliseconds(100))) {
      std::visit([&](auto& e) { Apply(std::move(e)); }, event);
      if (end_.has_value()) break;
    }
    if (!end_.has_value()) Tick();
  }
  engine_ = nullptr;
  host_.reset();
  *why = why_;
  return *end_;
}

void GroupMember::Finish(MemberEnd end, std::string why) {
  end_ = end;
  why_ = std::move(why);
}

void GroupMember::Send(WorkerMessage message) {
  if (connection_ != nullptr) connection_->Send(std::move(message));
}

void GroupMember::Tick() {
  const absl::Time now = clock_.Now();
  if (ending_ && (connection_ == nullptr || now >= end_deadline_)) {
    return Finish(MemberEnd::kDone, "");
  }
  if (connection_ == nullptr) return;
  if (now - last_heard_ > options_.coordinator_timeout) {
    LOG(WARNING) << "member.coordinator_silent seconds="
                 << absl::ToDoubleSeconds(now - last_heard_);
    last_heard_ = now;
    connection_->Close();
  }
  if (now - last_beat_ >= options_.heartbeat_interval) {
    last_beat_ = now;
    Beat();
  }
}

void GroupMember::Beat() {
  HeartbeatMessage beat;
  beat.epoch = engine_ != nullptr || forming_ ? epoch_ : 0;
  if (engine_ != nullptr) {
    const EngineStats stats = engine_->stats();
    beat.num_waiting = stats.num_waiting;
    beat.num_running = stats.num_running;
    beat.num_blocks = stats.num_blocks;
    beat.num_free_blocks = stats.num_free_blocks;
    beat.num_cached_blocks = stats.num_cached_blocks;
    beat.num_steps = stats.num_steps;
    beat.num_preemptions = stats.num_preemptions;
    beat.prompt_tokens = stats.prompt_tokens;
    beat.cached_tokens = stats.cached_tokens;
    beat.computed_tokens = stats.computed_tokens;
    beat.generated_tokens = stats.generated_tokens;
    beat.last_step_seconds = stats.last_step_seconds;
    beat.longest_step_seconds = stats.longest_step_seconds;
  }
  Send(std::move(beat));
}

void GroupMember::LeaveGroup(const absl::Status& cause) {
  engine_ = nullptr;
  jobs_.clear();
  if (epoch_ != 0 && forming_) host_->Leave(epoch_, cause);
  // Not on its way in yet: there is nothing to leave.
  if (epoch_ != 0 && !forming_) Send(LeftMessage{.epoch = epoch_});
  if (!forming_) epoch_ = 0;
  listener_.Reset();
}

// ---- the stream

void GroupMember::Apply(Attached event) {
  const absl::StatusOr<std::string> address = options_.choose_address();
  if (!address.ok()) {
    LOG(ERROR) << "member.no_address cause=" << address.status().message();
    event.connection->Close();
    if (absl::IsInvalidArgument(address.status())) {
      Finish(MemberEnd::kRefused, std::string(address.status().message()));
    }
    return;
  }
  connection_ = std::move(event.connection);
  last_heard_ = last_beat_ = clock_.Now();
  address_ = *address;
  RegisterMessage registration = options_.registration;
  registration.address = address_;
  if (loaded_.has_value()) {
    registration.group = loaded_->group;
    registration.rank = loaded_->rank;
    registration.size = loaded_->size;
  }
  LOG(INFO) << "member.attached address=" << address_ << " worker=" << registration.worker;
  Send(std::move(registration));
  if (ending_) Send(LeavingMessage{});
}

void GroupMember::Apply(Detached event) {
  if (connection_ == nullptr) return;
  LOG(WARNING) << "member.detached cause=" << event.cause.message();
  connection_.reset();
  assignment_.reset();
  ++load_;  // what is being loaded is for nobody now; it stays loaded
  LeaveGroup(absl::UnavailableError("the coordinator is gone"));
}

void GroupMember::Apply(CoordinatorMessage event) {
  if (connection_ == nullptr) return;
  last_heard_ = clock_.Now();
  std::visit([&](const auto& message) { On(message); }, event);
}

void GroupMember::On(const AssignMessage& message) {
  LOG(INFO) << "member.assigned group=" << message.group << " rank=" << message.rank
            << " size=" << message.size;
  assignment_ = message;
  if (loaded_.has_value() && (loaded_->rank != message.rank || loaded_->size != message.size)) {
    loaded_.reset();
  }
  host_->Load(message, ++load_);
}

void GroupMember::On(const ListenMessage& message) {
  if (!assignment_.has_value() || epoch_ != 0) return;
  const absl::StatusOr<Listener> listener = ListenTcp(address_, 0);
  if (!listener.ok()) {
    Send(LeftMessage{.epoch = message.epoch, .cause = std::string(listener.status().message())});
    return;
  }
  epoch_ = message.epoch;
  forming_ = false;
  listener_.Reset(listener->fd);
  Send(ListeningMessage{.epoch = epoch_, .address = HostPort{address_, listener->port}.ToString()});
}

void GroupMember::On(const FormMessage& message) {
  if (!assignment_.has_value() || (epoch_ != 0 && (forming_ || epoch_ != message.epoch))) return;
  epoch_ = message.epoch;
  forming_ = true;
  host_->Form(message, listener_.Release());
}

void GroupMember::On(const DisbandMessage& message) {
  if (message.epoch != epoch_) return;
  LOG(WARNING) << "member.disbands epoch=" << message.epoch << " cause=" << message.cause;
  LeaveGroup(absl::UnavailableError(message.cause));
}

void GroupMember::On(const ReleaseMessage& message) {
  LOG(INFO) << "member.released cause=" << message.cause;
  Finish(message.cause.empty() ? MemberEnd::kDone : MemberEnd::kRefused, message.cause);
}

// ---- requests, on the leader

void GroupMember::RefuseJob(JobId job, const absl::Status& status) {
  Send(TokensMessage{.events = {JobEvent{.job = job,
                                         .end = JobEnd::kError,
                                         .error_code = status.code(),
                                         .error = std::string(status.message())}}});
}

void GroupMember::On(const SubmitMessage& message) {
  if (engine_ == nullptr || message.epoch != epoch_) {
    return RefuseJob(message.job, absl::UnavailableError("the group is being formed anew"));
  }
  const absl::StatusOr<Engine::Handle> handle =
      engine_->Submit(ToRequest(message),
                      [this, connection = connection_, job = message.job](const TokenEvent& event) {
                        if (tokens_for_ != connection) SendTokens();
                        tokens_for_ = connection;
                        tokens_.events.push_back(ToJobEvent(job, event));
                        if (event.finish_reason != FinishReason::kNone) Post(JobEnded{job});
                      });
  if (!handle.ok()) return RefuseJob(message.job, handle.status());
  jobs_[message.job] = *handle;
}

// On the engine's thread.
void GroupMember::SendTokens() {
  if (tokens_for_ == nullptr) return;
  tokens_for_->Send(std::exchange(tokens_, {}));
  tokens_for_.reset();
}

void GroupMember::On(const CancelMessage& message) {
  const auto job = jobs_.find(message.job);
  if (job != jobs_.end() && engine_ != nullptr) engine_->Cancel(job->second);
}

void GroupMember::Apply(JobEnded event) { jobs_.erase(event.job); }

// ---- the rank

void GroupMember::Apply(HostLoading event) {
  if (event.load != load_) return;
  Send(LoadingMessage{.bytes_done = event.progress.bytes_done,
                      .bytes_total = event.progress.bytes_total});
}

void GroupMember::Apply(HostLoaded event) {
  if (event.load != load_ || !assignment_.has_value()) return;
  if (!event.loaded.ok()) {
    LOG(ERROR) << "member.cannot_load cause=" << event.loaded.status().message();
    Send(RefusedMessage{.cause = std::string(event.loaded.status().message())});
    return Finish(MemberEnd::kRefused, std::string(event.loaded.status().message()));
  }
  loaded_ = assignment_;
  Send(*std::move(event.loaded));
}

void GroupMember::Apply(HostReady event) {
  if (event.epoch != epoch_ || connection_ == nullptr) return;
  engine_ = event.engine;
  LOG(INFO) << "member.ready epoch=" << epoch_ << " leader=" << (engine_ != nullptr);
  Send(ReadyMessage{.epoch = epoch_});
}

void GroupMember::Apply(HostFailed event) {
  if (event.epoch != epoch_) return;
  LOG(ERROR) << "member.engine_failed epoch=" << event.epoch << " cause=" << event.cause.message();
  LeaveGroup(event.cause);
}

void GroupMember::Apply(HostLeft event) {
  if (event.epoch != epoch_) return;
  LOG(INFO) << "member.left epoch=" << event.epoch << " cause=" << event.cause.message();
  engine_ = nullptr;
  epoch_ = 0;
  forming_ = false;
  Send(LeftMessage{.epoch = event.epoch, .cause = std::string(event.cause.message())});
}

void GroupMember::Apply(EndRequested) {
  if (ending_) return Finish(MemberEnd::kDone, "");
  ending_ = true;
  end_deadline_ = clock_.Now() + options_.drain_timeout;
  LOG(INFO) << "member.leaves";
  Send(LeavingMessage{});
}

}  // namespace cairn
