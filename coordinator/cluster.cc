#include "coordinator/cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/network_address.h"

namespace cairn {
namespace {

// Between two ticks: the owner thread did not run, and nothing was read.
constexpr absl::Duration kOwnPause = absl::Seconds(2);

}  // namespace

Cluster::Cluster(ClusterOptions options)
    : options_(std::move(options)), next_epoch_(options_.first_epoch) {
  CHECK_GE(options_.num_groups, 1);
  CHECK_GE(options_.group_size, 1);
  CHECK_LE(options_.group_size, kMaxGroupSize);
  CHECK_GE(next_epoch_, 1u);
  groups_.resize(options_.num_groups);
  for (Group& group : groups_) group.places.assign(options_.group_size, 0);
}

// ---- membership

Actions Cluster::Attach(MemberId id, const RegisterMessage& info, absl::Time now) {
  CHECK(id != 0 && !members_.contains(id)) << "member " << id;
  Actions actions;
  // A worker that dials again before its old stream was seen to break.
  for (const auto& [old, member] : members_) {
    if (member.info.instance != info.instance) continue;
    const MemberId replaced = old;
    actions.push_back(DropAction{replaced, absl::AbortedError("replaced by a new connection")});
    Remove(replaced, "it attached anew", now, &actions);
    break;
  }
  if (static_cast<int32_t>(members_.size()) >= options_.max_members) {
    actions.push_back(DropAction{
        id, absl::ResourceExhaustedError(absl::StrCat("members: limit ", options_.max_members))});
    return actions;
  }
  Member& member = members_[id];
  member.info = info;
  member.last_heard = member.last_ping = member.last_progress = now;
  if (info.version != kControlVersion) {
    Release(
        id,
        absl::StrFormat("version differs: worker=%d coordinator=%d", info.version, kControlVersion),
        now, &actions);
    return actions;
  }
  if (info.model_digest != options_.model_digest) {
    Release(id, absl::StrCat("model differs from the coordinator's, which serves ", options_.model),
            now, &actions);
    return actions;
  }
  TakePlace(id, ChoosePlace(info));
  if (member.place.group >= 0) Advance(member.place.group, now, &actions);
  return actions;
}

Cluster::Seat Cluster::ChoosePlace(const RegisterMessage& info) const {
  const auto is_free = [&](int32_t group, int32_t rank) {
    return groups_[group].places[rank] == 0;
  };
  if (info.size == options_.group_size && info.group < options_.num_groups &&
      is_free(info.group, info.rank)) {
    return {info.group, info.rank};
  }
  // Ranks of one host belong together: they share memory. Then the lowest free place.
  Seat best;
  bool best_shares = false;
  for (int32_t g = 0; g < options_.num_groups; ++g) {
    const Group& group = groups_[g];
    const auto place = std::find(group.places.begin(), group.places.end(), MemberId{0});
    if (place == group.places.end()) continue;
    const bool shares = std::any_of(group.places.begin(), group.places.end(), [&](MemberId other) {
      return other != 0 && members_.at(other).info.memory_domain == info.memory_domain;
    });
    if (best.group >= 0 && (best_shares || !shares)) continue;
    best = {g, static_cast<int32_t>(place - group.places.begin())};
    best_shares = shares;
  }
  return best;
}

void Cluster::TakePlace(MemberId id, Seat place) {
  members_[id].place = place;
  if (place.group < 0) return;
  CHECK_EQ(groups_[place.group].places[place.rank], 0u);
  groups_[place.group].places[place.rank] = id;
}

void Cluster::PromoteSpare(absl::Time now, Actions* actions) {
  for (auto& [id, member] : members_) {
    if (member.place.group >= 0) continue;
    const Seat place = ChoosePlace(member.info);
    if (place.group < 0) return;
    TakePlace(id, place);
    Advance(place.group, now, actions);
  }
}

Actions Cluster::Lose(MemberId id, const std::string& cause, absl::Time now) {
  Actions actions;
  if (members_.contains(id)) Remove(id, cause, now, &actions);
  return actions;
}

void Cluster::Remove(MemberId id, const std::string& cause, absl::Time now, Actions* actions) {
  const Member member = std::move(members_.at(id));
  members_.erase(id);
  if (member.place.group < 0) return;
  Group& group = groups_[member.place.group];
  CHECK_EQ(group.places[member.place.rank], id);
  group.places[member.place.rank] = 0;
  const std::string failure = absl::StrCat(RankName(member), " lost: ", cause);
  if (group.epoch != 0) {
    Disband(member.place.group, failure, now, actions);
  } else if (!member.wants_to_leave && group.phase != Phase::kLeaving) {
    group.last_failure = failure;
  }
  PromoteSpare(now, actions);
  Advance(member.place.group, now, actions);
}

// Tells the member to end, for good.
void Cluster::Release(MemberId id, const std::string& cause, absl::Time now, Actions* actions) {
  actions->push_back(SendAction{id, ReleaseMessage{.cause = cause}});
  actions->push_back(DropAction{id, absl::OkStatus()});
  Remove(id, cause.empty() ? "it was asked to end" : cause, now, actions);
}

// Members that want to leave go when their group has nothing to do.
void Cluster::ReleaseLeaving(int32_t group_index, absl::Time now, Actions* actions) {
  if (!groups_[group_index].jobs.empty()) return;
  for (const MemberId id : std::vector<MemberId>(groups_[group_index].places)) {
    const auto found = members_.find(id);
    if (found != members_.end() && found->second.wants_to_leave) Release(id, "", now, actions);
  }
}

int32_t Cluster::RanksOnHost(const RegisterMessage& info) const {
  return static_cast<int32_t>(std::count_if(members_.begin(), members_.end(), [&](const auto& m) {
    return m.second.place.group >= 0 && m.second.info.memory_domain == info.memory_domain;
  }));
}

// ---- a group's way to service

void Cluster::Advance(int32_t group_index, absl::Time now, Actions* actions) {
  Group& group = groups_[group_index];
  const auto all_are = [&](MemberState state) {
    return std::all_of(group.places.begin(), group.places.end(),
                       [&](MemberId id) { return id != 0 && members_.at(id).state == state; });
  };
  if (group.phase == Phase::kLeaving) {
    const bool leaving = std::any_of(group.places.begin(), group.places.end(), [&](MemberId id) {
      return id != 0 && members_.at(id).state == MemberState::kLeaving;
    });
    if (leaving) return;
    group.phase = Phase::kIdle;
  }
  if (group.phase == Phase::kIdle) {
    AssignGroup(group_index, actions);
    if (all_are(MemberState::kLoaded) && now >= group.form_not_before) {
      StartForming(group_index, now, actions);
    }
    return;
  }
  if (group.phase == Phase::kListening) {
    const bool all = std::all_of(group.places.begin(), group.places.end(),
                                 [&](MemberId id) { return members_.at(id).listening; });
    if (all) SendForm(group_index, now, actions);
    return;
  }
  if (group.phase == Phase::kForming && all_are(MemberState::kReady)) {
    group.phase = Phase::kServing;
    group.num_failures = 0;
    LOG(INFO) << "group.serves group=" << group_index << " epoch=" << group.epoch
              << " collective=" << group.collective;
  }
}

// A group loads when all its places are taken, so that each member knows how many ranks share the
// CPUs of its host.
void Cluster::AssignGroup(int32_t group_index, Actions* actions) {
  Group& group = groups_[group_index];
  if (std::find(group.places.begin(), group.places.end(), MemberId{0}) != group.places.end()) {
    return;
  }
  for (int32_t rank = 0; rank < options_.group_size; ++rank) {
    Member& member = members_.at(group.places[rank]);
    if (member.state != MemberState::kAttached) continue;
    member.state = MemberState::kLoading;
    actions->push_back(
        SendAction{group.places[rank], AssignMessage{.group = group_index,
                                                     .rank = rank,
                                                     .size = options_.group_size,
                                                     .ranks_on_host = RanksOnHost(member.info),
                                                     .settings = options_.settings}});
  }
}

// Errors: InvalidArgument if ranks of several hosts cannot reach one another, or if their weights
// differ.
absl::StatusOr<bool> Cluster::NeedsTcp(const Group& group, int32_t group_index) const {
  if (options_.group_size == 1) return false;
  bool one_memory = true;
  std::vector<AdvertisedAddress> addresses;
  const Member& first = members_.at(group.places[0]);
  for (const MemberId id : group.places) {
    const Member& member = members_.at(id);
    if (member.loaded.identity != first.loaded.identity) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights differ: ", RankName(first), " and ", RankName(member)));
    }
    one_memory &= member.info.memory_domain == first.info.memory_domain;
    addresses.push_back(
        {.rank = absl::StrFormat("group %d rank %d", group_index, member.place.rank),
         .address = member.info.address,
         .loopback_domain = member.info.loopback_domain});
  }
  if (options_.collective == CollectiveChoice::kShm && !one_memory) {
    return absl::InvalidArgumentError("collective shm: the ranks are on several hosts");
  }
  if (one_memory && options_.collective != CollectiveChoice::kTcp) return false;
  RETURN_IF_ERROR(CheckMutuallyReachable(addresses));
  return true;
}

void Cluster::StartForming(int32_t group_index, absl::Time now, Actions* actions) {
  Group& group = groups_[group_index];
  const absl::StatusOr<bool> needs_tcp = NeedsTcp(group, group_index);
  if (!needs_tcp.ok()) {
    group.last_failure = std::string(needs_tcp.status().message());
    group.form_not_before = now + options_.max_form_backoff;
    LOG(ERROR) << "group.cannot_form group=" << group_index << " cause=" << group.last_failure;
    return;
  }
  group.epoch = next_epoch_++;
  group.collective = *needs_tcp ? "tcp" : options_.group_size == 1 ? "solo" : "shm";
  group.deadline = now + options_.form_timeout;
  for (const MemberId id : group.places) {
    Member& member = members_.at(id);
    member.state = MemberState::kForming;
    member.epoch = group.epoch;
    member.listening = false;
    if (*needs_tcp) actions->push_back(SendAction{id, ListenMessage{.epoch = group.epoch}});
  }
  group.phase = Phase::kListening;
  if (!*needs_tcp) SendForm(group_index, now, actions);
}

void Cluster::SendForm(int32_t group_index, absl::Time now, Actions* actions) {
  Group& group = groups_[group_index];
  FormMessage form{.epoch = group.epoch};
  for (const MemberId id : group.places) {
    if (group.collective == std::string_view("tcp")) {
      form.addresses.push_back(members_.at(id).listen_address);
    }
  }
  if (group.collective == std::string_view("shm")) {
    form.shm_name = absl::StrFormat("/cairn-%s-%d-%x", options_.run_id, group_index, group.epoch);
  }
  group.phase = Phase::kForming;
  group.deadline = now + options_.form_timeout;
  for (const MemberId id : group.places) actions->push_back(SendAction{id, form});
}

void Cluster::Disband(int32_t group_index, const std::string& cause, absl::Time now,
                      Actions* actions) {
  Group& group = groups_[group_index];
  CHECK_NE(group.epoch, 0u);
  LOG(WARNING) << "group.disbands group=" << group_index << " epoch=" << group.epoch
               << " jobs=" << group.jobs.size() << " cause=" << cause;
  group.last_failure = cause;
  EndJobs(&group, absl::UnavailableError(cause), actions);
  for (const MemberId id : group.places) {
    if (id == 0) continue;
    Member& member = members_.at(id);
    if (member.state != MemberState::kForming && member.state != MemberState::kReady) continue;
    member.state = MemberState::kLeaving;
    member.leave_deadline = now + options_.leave_timeout;
    actions->push_back(SendAction{id, DisbandMessage{.epoch = group.epoch, .cause = cause}});
  }
  group.epoch = 0;
  group.collective = "";
  group.phase = Phase::kLeaving;
  const int doublings = std::min(group.num_failures++, 8);
  group.form_not_before =
      now + std::min(options_.max_form_backoff, options_.min_form_backoff * (1 << doublings));
}

void Cluster::EndJobs(Group* group, const absl::Status& cause, Actions* actions) {
  for (const JobId job : group->jobs) {
    jobs_.erase(job);
    actions->push_back(EndJobAction{job, cause});
  }
  group->jobs.clear();
  group->outstanding_tokens = 0;
}

// ---- messages of members

Actions Cluster::Receive(MemberId id, const WorkerMessage& message, absl::Time now) {
  Actions actions;
  const auto found = members_.find(id);
  if (found == members_.end()) return actions;
  Member* member = &found->second;
  member->last_heard = now;
  if (const auto* loading = std::get_if<LoadingMessage>(&message)) On(member, *loading);
  if (const auto* m = std::get_if<LoadedMessage>(&message)) On(id, member, *m, now, &actions);
  if (const auto* m = std::get_if<RefusedMessage>(&message)) On(id, member, *m, now, &actions);
  if (const auto* m = std::get_if<ListeningMessage>(&message)) On(id, member, *m, now, &actions);
  if (const auto* m = std::get_if<ReadyMessage>(&message)) On(id, member, *m, now, &actions);
  if (const auto* m = std::get_if<LeftMessage>(&message)) On(id, member, *m, now, &actions);
  if (const auto* heartbeat = std::get_if<HeartbeatMessage>(&message)) On(member, *heartbeat, now);
  if (std::holds_alternative<LeavingMessage>(message)) {
    member->wants_to_leave = true;
    const int32_t group = member->place.group;
    if (group < 0) Release(id, "", now, &actions);
    if (group >= 0) ReleaseLeaving(group, now, &actions);
  }
  return actions;
}

void Cluster::On(Member* member, const LoadingMessage& message) {
  if (member->state == MemberState::kLoading) member->loading = message;
}

void Cluster::On(MemberId, Member* member, const LoadedMessage& message, absl::Time now,
                 Actions* actions) {
  if (member->state != MemberState::kLoading) return;
  member->loaded = message;
  member->state = MemberState::kLoaded;
  Advance(member->place.group, now, actions);
}

void Cluster::On(MemberId id, Member* member, const RefusedMessage& message, absl::Time now,
                 Actions* actions) {
  const std::string cause = absl::StrCat("cannot serve its rank: ", message.cause);
  LOG(ERROR) << "member.refuses member=" << member->info.worker << " cause=" << message.cause;
  actions->push_back(DropAction{id, absl::OkStatus()});
  Remove(id, cause, now, actions);
}

void Cluster::On(MemberId, Member* member, const ListeningMessage& message, absl::Time now,
                 Actions* actions) {
  if (member->state != MemberState::kForming || message.epoch != member->epoch) return;
  member->listening = true;
  member->listen_address = message.address;
  if (groups_[member->place.group].phase == Phase::kListening) {
    Advance(member->place.group, now, actions);
  }
}

void Cluster::On(MemberId, Member* member, const ReadyMessage& message, absl::Time now,
                 Actions* actions) {
  if (member->state != MemberState::kForming || message.epoch != member->epoch) return;
  member->state = MemberState::kReady;
  member->last_progress = now;
  Advance(member->place.group, now, actions);
}

void Cluster::On(MemberId, Member* member, const LeftMessage& message, absl::Time now,
                 Actions* actions) {
  if (message.epoch != member->epoch || member->epoch == 0) return;
  const bool expected = member->state == MemberState::kLeaving;
  if (!expected && member->state != MemberState::kForming && member->state != MemberState::kReady) {
    return;
  }
  member->state = MemberState::kLoaded;
  member->epoch = 0;
  const int32_t group = member->place.group;
  if (!expected) {
    Disband(group, absl::StrCat(RankName(*member), " left: ", message.cause), now, actions);
  }
  Advance(group, now, actions);
}

void Cluster::On(Member* member, const HeartbeatMessage& message, absl::Time now) {
  const bool progress = message.num_steps != member->heartbeat.num_steps ||
                        message.num_running == 0 || message.epoch != member->heartbeat.epoch;
  if (progress) member->last_progress = now;
  member->heartbeat = message;
}

// ---- time

void Cluster::ForgiveOwnPause(absl::Time now) {
  const absl::Duration pause = now - last_tick_;
  last_tick_ = now;
  if (pause < kOwnPause) return;
  for (auto& [id, member] : members_) {
    member.last_heard += pause;
    member.last_progress += pause;
    member.leave_deadline += pause;
  }
  for (Group& group : groups_) group.deadline += pause;
}

Actions Cluster::Tick(absl::Time now) {
  ForgiveOwnPause(now);
  Actions actions;
  std::vector<MemberId> silent, stuck;
  for (auto& [id, member] : members_) {
    if (now - member.last_heard > options_.heartbeat_timeout) silent.push_back(id);
    if (member.state == MemberState::kLeaving && now > member.leave_deadline) stuck.push_back(id);
    if (now - member.last_ping < options_.ping_interval) continue;
    member.last_ping = now;
    actions.push_back(SendAction{id, PingMessage{}});
  }
  const auto drop = [&](const std::vector<MemberId>& members, const std::string& cause) {
    for (const MemberId id : members) {
      if (!members_.contains(id)) continue;
      actions.push_back(DropAction{id, absl::DeadlineExceededError(cause)});
      Remove(id, cause, now, &actions);
    }
  };
  drop(silent, absl::StrFormat("not heard from for %.0f s",
                               absl::ToDoubleSeconds(options_.heartbeat_timeout)));
  drop(stuck, absl::StrFormat("did not leave its group within %.0f s",
                              absl::ToDoubleSeconds(options_.leave_timeout)));
  for (int32_t g = 0; g < options_.num_groups; ++g) {
    CheckDeadlines(g, now, &actions);
    ReleaseLeaving(g, now, &actions);
    Advance(g, now, &actions);
  }
  return actions;
}

void Cluster::CheckDeadlines(int32_t group_index, absl::Time now, Actions* actions) {
  const Group& group = groups_[group_index];
  if ((group.phase == Phase::kListening || group.phase == Phase::kForming) &&
      now > group.deadline) {
    std::string late;
    for (const MemberId id : group.places) {
      const Member& member = members_.at(id);
      const bool done =
          group.phase == Phase::kListening ? member.listening : member.state == MemberState::kReady;
      if (!done) absl::StrAppend(&late, late.empty() ? "" : ", ", RankName(member));
    }
    Disband(group_index,
            absl::StrFormat("did not meet within %.0f s: %s",
                            absl::ToDoubleSeconds(options_.form_timeout), late),
            now, actions);
    return;
  }
  if (group.phase != Phase::kServing) return;
  const Member& leader = members_.at(group.places[0]);
  if (leader.heartbeat.num_running == 0 ||
      now - leader.last_progress <= options_.progress_timeout) {
    return;
  }
  Disband(group_index,
          absl::StrFormat("no step finished for %.0f s with %d requests running",
                          absl::ToDoubleSeconds(now - leader.last_progress),
                          leader.heartbeat.num_running),
          now, actions);
}

// ---- jobs

bool Cluster::Serves(const Group& group) const {
  if (group.phase != Phase::kServing) return false;
  return std::none_of(group.places.begin(), group.places.end(),
                      [&](MemberId id) { return members_.at(id).wants_to_leave; });
}

bool Cluster::serving() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Group& group) { return Serves(group); });
}

int32_t Cluster::max_request_tokens() const {
  int32_t most = 0;
  for (const Group& group : groups_) {
    if (Serves(group)) {
      most = std::max(most, members_.at(group.places[0]).loaded.max_request_tokens);
    }
  }
  return most;
}

absl::StatusOr<Cluster::Placement> Cluster::Place(std::span<const JobId> jobs,
                                                  int64_t tokens_per_job) {
  if (draining_) return absl::UnavailableError("the coordinator is draining: try another one");
  if (jobs_.size() + jobs.size() > static_cast<size_t>(options_.max_jobs)) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("choices in flight: %d of at most %d", jobs_.size(), options_.max_jobs));
  }
  int32_t best = -1;
  for (int32_t g = 0; g < options_.num_groups; ++g) {
    if (!Serves(groups_[g])) continue;
    if (best < 0 || groups_[g].outstanding_tokens < groups_[best].outstanding_tokens) best = g;
  }
  if (best < 0) return absl::UnavailableError(WaitingFor());
  Group& group = groups_[best];
  for (const JobId job : jobs) {
    const bool is_new = jobs_.emplace(job, Job{.group = best, .tokens = tokens_per_job}).second;
    CHECK(is_new) << "job " << job;
    group.jobs.insert(job);
    group.outstanding_tokens += tokens_per_job;
  }
  return Placement{.group = best, .leader = group.places[0], .epoch = group.epoch};
}

std::optional<Cluster::Placement> Cluster::FindJob(JobId job) const {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return std::nullopt;
  const Group& group = groups_[found->second.group];
  return Placement{.group = found->second.group, .leader = group.places[0], .epoch = group.epoch};
}

bool Cluster::AcceptEvent(MemberId member, JobId job, bool ended, absl::Time now) {
  if (const auto from = members_.find(member); from != members_.end()) {
    from->second.last_heard = now;
  }
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return false;
  Group& group = groups_[found->second.group];
  if (group.places[0] != member) return false;
  if (ended) {
    group.outstanding_tokens -= found->second.tokens;
    group.jobs.erase(job);
    jobs_.erase(found);
  }
  return true;
}

}  // namespace cairn
