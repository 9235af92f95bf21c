// What the cluster says about itself.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/cluster.h"

namespace cairn {

std::string Cluster::RankName(const Member& member) const {
  return absl::StrFormat("rank %d of %d of group %d (%s at %s)", member.place.rank,
                         options_.group_size, member.place.group, member.info.worker,
                         member.info.address);
}

double Cluster::Loading(const Member& member) const {
  if (member.state == MemberState::kAttached) return 0;
  if (member.state != MemberState::kLoading) return 1;
  if (member.loading.bytes_total <= 0) return 0;
  return static_cast<double>(member.loading.bytes_done) /
         static_cast<double>(member.loading.bytes_total);
}

std::string Cluster::GroupWaitsFor(int32_t group_index) const {
  const Group& group = groups_[group_index];
  std::string missing, loading;
  double sum = 0;
  for (int32_t rank = 0; rank < options_.group_size; ++rank) {
    const MemberId id = group.places[rank];
    if (id == 0) {
      absl::StrAppend(&missing, missing.empty() ? "" : ", ", rank);
      continue;
    }
    const Member& member = members_.at(id);
    sum += Loading(member);
    if (member.state != MemberState::kLoading) continue;
    absl::StrAppendFormat(&loading, "%srank %d: %.0f %%", loading.empty() ? "" : ", ", rank,
                          100 * Loading(member));
  }
  const std::string of_group =
      options_.num_groups > 1 ? absl::StrCat(" in group ", group_index) : std::string();
  if (!missing.empty()) {
    return absl::StrFormat("waiting for rank %s of %d of model %s%s", missing, options_.group_size,
                           options_.model, of_group);
  }
  if (!loading.empty()) {
    return absl::StrFormat("loading model %s%s: %.0f %% (%s)", options_.model, of_group,
                           100 * sum / options_.group_size, loading);
  }
  if (group.phase == Phase::kLeaving) {
    return absl::StrCat("waiting for ranks to leave the epoch that failed", of_group);
  }
  return absl::StrFormat("waiting for %d ranks of model %s to meet%s", options_.group_size,
                         options_.model, of_group);
}

std::string Cluster::WaitingFor() const {
  if (draining_) return "draining";
  for (int32_t g = 0; g < options_.num_groups; ++g) {
    const Group& group = groups_[g];
    if (Serves(group)) continue;
    if (group.phase == Phase::kServing) return absl::StrCat("a rank of group ", g, " is leaving");
    std::string text = GroupWaitsFor(g);
    if (!group.last_failure.empty()) {
      absl::StrAppend(&text, "; last failure: ", group.last_failure);
    }
    return text;
  }
  return "";
}

RankStatus Cluster::StatusOf(const Member& member, absl::Time now) const {
  return {.rank = member.place.rank,
          .missing = false,
          .state = member.state,
          .worker = member.info.worker,
          .host = member.info.host,
          .address = member.info.address,
          .pid = member.info.pid,
          .threads = member.loaded.threads,
          .loading = Loading(member),
          .heard_ago = now - member.last_heard,
          .weight_bytes = member.loaded.weight_bytes,
          .read_bytes = member.loaded.read_bytes,
          .kv_bytes = member.loaded.kv_bytes};
}

ClusterStatus Cluster::Status(absl::Time now) const {
  ClusterStatus status{.serving = serving(), .draining = draining_, .waiting_for = WaitingFor()};
  status.num_jobs = static_cast<int32_t>(jobs_.size());
  for (int32_t g = 0; g < options_.num_groups; ++g) {
    const Group& group = groups_[g];
    GroupStatus& to = status.groups.emplace_back();
    to.group = g;
    to.serving = Serves(group);
    to.epoch = group.epoch;
    to.collective = group.collective;
    to.last_failure = group.last_failure;
    to.num_jobs = static_cast<int32_t>(group.jobs.size());
    for (int32_t rank = 0; rank < options_.group_size; ++rank) {
      const MemberId id = group.places[rank];
      if (id == 0) {
        to.ranks.push_back({.rank = rank});
        continue;
      }
      to.ranks.push_back(StatusOf(members_.at(id), now));
      status.loading += Loading(members_.at(id));
    }
    if (const MemberId leader = group.places[0]; leader != 0) {
      to.max_request_tokens = members_.at(leader).loaded.max_request_tokens;
      if (group.epoch != 0 && members_.at(leader).heartbeat.epoch == group.epoch) {
        to.engine = members_.at(leader).heartbeat;
      }
    }
  }
  status.loading /= static_cast<double>(options_.num_groups) * options_.group_size;
  for (const auto& [id, member] : members_) {
    if (member.place.group < 0) status.spares.push_back(StatusOf(member, now));
  }
  return status;
}

}  // namespace cairn
