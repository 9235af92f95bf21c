#include "coordinator/cluster_loop.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/secret.h"

namespace cairn {
namespace {

// Ids of requests begin at a random place, so that a worker never takes a job of one coordinator
// for one of the coordinator before.
RequestId FirstRequestId() {
  const Nonce nonce = MakeNonce();
  RequestId id = 1;
  for (int i = 0; i < 4; ++i) id = id << 8 | nonce[i];
  return id << 24;
}

JobId JobOf(RequestId request, int32_t choice) { return request * kMaxChoices + choice; }
RequestId RequestOf(JobId job) { return job / kMaxChoices; }
int32_t ChoiceOf(JobId job) { return static_cast<int32_t>(job % kMaxChoices); }

}  // namespace

ClusterLoop::ClusterLoop(const Options& options, const ServedModel* model,
                         std::function<void(bool)> on_serving, std::function<void()> on_drained)
    : options_(options),
      model_(model),
      on_serving_(std::move(on_serving)),
      on_drained_(std::move(on_drained)),
      next_request_(FirstRequestId()),
      events_(options.max_queued_events),
      cluster_(options.cluster),
      start_(clock_.Now()),
      last_tick_(start_),
      thread_([this] { Run(); }) {}

ClusterLoop::~ClusterLoop() {
  stopping_.store(true);
  events_.Close();
  thread_.join();
}

// ---- any thread

bool ClusterLoop::TryPushData(Event event) {
  if (events_.size() >= events_.capacity() / 2) return false;
  return events_.TryPush(std::move(event));
}

void ClusterLoop::PushNotice(Event event) {
  if (!events_.TryPush(std::move(event)) && !stopping_.load()) {
    LOG(ERROR) << "loop.notice_lost queued=" << events_.size();
  }
}

MemberId ClusterLoop::Attach(RegisterMessage message, std::shared_ptr<MemberStream> stream) {
  const MemberId member = next_member_.fetch_add(1);
  PushNotice(Attached{member, std::move(message), std::move(stream)});
  return member;
}

bool ClusterLoop::Receive(MemberId member, WorkerMessage message) {
  return TryPushData(Received{member, std::move(message)});
}

void ClusterLoop::Lose(MemberId member, std::string cause) {
  PushNotice(Lost{member, std::move(cause)});
}

absl::Status ClusterLoop::Submit(RequestId id, PreparedRequest request,
                                 std::shared_ptr<AnswerStream> stream) {
  if (TryPushData(Submitted{id, std::move(request), std::move(stream)})) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("coordinator overloaded: %d events wait", events_.size()));
}

void ClusterLoop::Cancel(RequestId id) { PushNotice(Cancelled{id}); }

absl::Status ClusterLoop::AskStatus(std::function<void(const CoordinatorStatus&)> use) {
  if (TryPushData(StatusAsked{std::move(use)})) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("coordinator overloaded: %d events wait", events_.size()));
}

void ClusterLoop::Drain(absl::Duration limit) { PushNotice(DrainAsked{limit}); }

// ---- the loop's thread

void ClusterLoop::Run() {
  while (!events_.drained()) {
    for (Event& event : events_.PopAll(options_.tick_interval)) {
      std::visit([&](auto& e) { Apply(std::move(e)); }, event);
    }
    AfterEvents();
  }
  for (auto& [id, request] : requests_) {
    request.answer->Fail(absl::UnavailableError("the coordinator ends"));
  }
  for (auto& [id, stream] : streams_) stream->Close(absl::UnavailableError("coordinator ends"));
}

void ClusterLoop::AfterEvents() {
  const absl::Time now = clock_.Now();
  if (now - last_tick_ >= options_.tick_interval) {
    last_tick_ = now;
    Do(cluster_.Tick(now));
  }
  while (!slow_members_.empty()) {
    const MemberId member = slow_members_.back();
    slow_members_.pop_back();
    Do(DropAction{member, absl::ResourceExhaustedError("does not keep up")});
    Do(cluster_.Lose(member, "does not keep up with its messages", now));
  }
  if (cluster_.serving() != serving_) {
    serving_ = !serving_;
    LOG(INFO) << (serving_ ? "cluster.serves" : "cluster.ceases_to_serve")
              << " model=" << options_.cluster.model;
    on_serving_(serving_);
  }
  if (drained_ || !(cluster_.drained() || now >= drain_deadline_)) return;
  drained_ = true;
  for (auto& [id, request] : requests_) {
    request.answer->Fail(absl::UnavailableError("the coordinator ends: the drain took too long"));
  }
  for (auto& [id, stream] : streams_) stream->Close(absl::UnavailableError("coordinator ends"));
  streams_.clear();
  on_drained_();
}

void ClusterLoop::Apply(Attached event) {
  LOG(INFO) << "member.attached member=" << event.member << " worker=" << event.message.worker
            << " address=" << event.message.address << " pid=" << event.message.pid;
  streams_[event.member] = std::move(event.stream);
  Do(cluster_.Attach(event.member, event.message, clock_.Now()));
}

void ClusterLoop::Apply(Received event) {
  if (const auto* tokens = std::get_if<TokensMessage>(&event.message)) {
    ApplyTokens(event.member, *tokens);
    return;
  }
  Do(cluster_.Receive(event.member, event.message, clock_.Now()));
}

void ClusterLoop::Apply(Lost event) {
  if (streams_.erase(event.member) == 0) return;
  LOG(WARNING) << "member.lost member=" << event.member << " cause=" << event.cause;
  Do(cluster_.Lose(event.member, event.cause, clock_.Now()));
}

void ClusterLoop::Apply(Submitted event) {
  ++requests_total_;
  if (event.stream->cancelled()) {
    event.stream->Finish(absl::CancelledError("the client is gone"));
    return;
  }
  const std::shared_ptr<AnswerStream> stream = event.stream;
  absl::StatusOr<std::unique_ptr<Answer>> answer =
      Answer::Create(&model_->tokenizer(), std::move(event.request), stream);
  if (!answer.ok()) return stream->Finish(answer.status());
  const PreparedRequest& request = (*answer)->request();
  std::vector<JobId> jobs;
  for (int32_t i = 0; i < request.num_choices; ++i) jobs.push_back(JobOf(event.id, i));
  const absl::StatusOr<Cluster::Placement> placement =
      cluster_.Place(jobs, static_cast<int64_t>(request.prompt.size()) + request.max_tokens);
  if (!placement.ok()) return stream->Finish(placement.status());

  Request& entry = requests_[event.id];
  entry.answer = *std::move(answer);
  entry.name = absl::StrFormat("r-%x", event.id);
  entry.start = clock_.Now();
  stream->Write(AnswerStarted{
      .request_id = entry.name,
      .client_id = request.client_id,
      .model = model_->name(),
      .seed = request.seed,
      .prompt_tokens = static_cast<int32_t>(request.prompt.size()),
      .prompt_ids = request.return_prompt_ids ? request.prompt : std::vector<int32_t>()});
  for (int32_t i = 0; i < request.num_choices; ++i) {
    Send(placement->leader, MakeSubmit(jobs[i], *placement, entry, i));
  }
}

SubmitMessage ClusterLoop::MakeSubmit(JobId job, const Cluster::Placement& placement,
                                      const Request& entry, int32_t choice) const {
  const PreparedRequest& request = entry.answer->request();
  return {.job = job,
          .epoch = placement.epoch,
          .id = entry.name,
          .prompt = request.prompt,
          .temperature = request.temperature,
          .top_k = request.top_k,
          .top_p = request.top_p,
          .min_p = request.min_p,
          .repetition_penalty = request.repetition_penalty,
          .presence_penalty = request.presence_penalty,
          .frequency_penalty = request.frequency_penalty,
          .seed = request.seed,
          .choice = static_cast<uint32_t>(choice),
          .num_logprobs = request.num_logprobs,
          .logit_bias = request.logit_bias,
          .max_tokens = request.max_tokens,
          .min_tokens = request.min_tokens,
          .stop_ids = request.stop_ids,
          .cache_salt = request.cache_salt,
          .use_prefix_cache = request.use_prefix_cache};
}

void ClusterLoop::ApplyTokens(MemberId member, const TokensMessage& message) {
  const absl::Time now = clock_.Now();
  for (const JobEvent& event : message.events) {
    if (!cluster_.AcceptEvent(member, event.job, event.end != JobEnd::kNone, now)) continue;
    const auto request = requests_.find(RequestOf(event.job));
    if (request == requests_.end()) continue;
    if (request->second.answer->OnEvent(ChoiceOf(event.job), event)) CancelJob(event.job);
    if (request->second.answer->done()) Settle(request);
  }
}

void ClusterLoop::CancelJob(JobId job) {
  const std::optional<Cluster::Placement> placement = cluster_.FindJob(job);
  if (placement.has_value()) Send(placement->leader, CancelMessage{.job = job});
}

void ClusterLoop::Settle(std::unordered_map<RequestId, Request>::iterator request) {
  const Answer& answer = *request->second.answer;
  for (int32_t i = 0; i < answer.request().num_choices; ++i) {
    if (!answer.ended(i)) CancelJob(JobOf(request->first, i));
  }
  const absl::Status& outcome = answer.outcome();
  LOG(INFO) << "request.done id=" << request->second.name
            << " prompt_tokens=" << answer.request().prompt.size()
            << " cached_tokens=" << answer.cached_tokens()
            << " completion_tokens=" << answer.completion_tokens() << " seconds="
            << absl::StrFormat("%.3f", absl::ToDoubleSeconds(clock_.Now() - request->second.start))
            << " outcome=" << (outcome.ok() ? std::string("ok") : outcome.ToString());
  requests_.erase(request);
}

void ClusterLoop::Apply(Cancelled event) {
  const auto request = requests_.find(event.id);
  if (request == requests_.end()) return;
  request->second.answer->Fail(absl::CancelledError("the client is gone"));
  Settle(request);
}

void ClusterLoop::Apply(StatusAsked event) {
  const absl::Time now = clock_.Now();
  event.use({.cluster = cluster_.Status(now),
             .run_id = options_.cluster.run_id,
             .requests_in_flight = static_cast<int32_t>(requests_.size()),
             .requests_total = requests_total_,
             .uptime = now - start_});
}

void ClusterLoop::Apply(DrainAsked event) {
  LOG(INFO) << "cluster.drains requests=" << requests_.size();
  cluster_.Drain();
  drain_deadline_ = std::min(drain_deadline_, clock_.Now() + event.limit);
}

void ClusterLoop::Do(Actions actions) {
  for (Action& action : actions) {
    std::visit([&](auto& a) { Do(std::move(a)); }, action);
  }
}

void ClusterLoop::Do(SendAction action) { Send(action.member, action.message); }

void ClusterLoop::Do(DropAction action) {
  const auto stream = streams_.find(action.member);
  if (stream == streams_.end()) return;
  if (!action.cause.ok()) {
    LOG(WARNING) << "member.dropped member=" << action.member << " cause=" << action.cause;
  }
  stream->second->Close(action.cause);
  streams_.erase(stream);
}

void ClusterLoop::Do(EndJobAction action) {
  const auto request = requests_.find(RequestOf(action.job));
  if (request == requests_.end()) return;
  request->second.answer->Fail(action.cause);
  Settle(request);
}

void ClusterLoop::Send(MemberId member, const CoordinatorMessage& message) {
  const auto stream = streams_.find(member);
  if (stream != streams_.end() && !stream->second->Send(message)) slow_members_.push_back(member);
}

}  // namespace cairn
