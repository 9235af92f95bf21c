// Plays the workers of a Cluster in tests: well-behaved members that do at once, or later, what the
// coordinator sends them.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster.h"

namespace cairn {

inline ClusterOptions TestClusterOptions(int groups, int size) {
  ClusterOptions options;
  options.model = "tiny";
  options.model_digest = "digest";
  options.run_id = "run";
  options.num_groups = groups;
  options.group_size = size;
  options.first_epoch = 100;
  return options;
}

class ClusterDriver {
 public:
  explicit ClusterDriver(const ClusterOptions& options) : cluster(options) {}

  struct Worker {
    RegisterMessage info;
    std::deque<CoordinatorMessage> inbox;
    bool dropped = false;
    absl::Status drop_cause;
    bool released = false;
    uint64_t epoch = 0;
  };

  static RegisterMessage Info(int number, const std::string& host = "host") {
    RegisterMessage info;
    info.worker = absl::StrCat("worker-", number);
    info.host = host;
    info.address = host == "host" ? "127.0.0.1" : absl::StrCat("10.0.0.", number);
    info.loopback_domain = host;
    info.memory_domain = host;
    info.pid = number;
    info.instance = absl::StrCat("instance-", number);
    info.model_digest = "digest";
    return info;
  }

  void Attach(MemberId id, RegisterMessage info) {
    workers[id].info = info;
    Do(cluster.Attach(id, info, now));
  }
  void Attach(MemberId id) { Attach(id, Info(static_cast<int>(id))); }
  // As after kill -9.
  void Kill(MemberId id) {
    workers.erase(id);
    Do(cluster.Lose(id, "its connection closed", now));
  }
  void Receive(MemberId id, const WorkerMessage& message) { Do(cluster.Receive(id, message, now)); }
  void Advance(absl::Duration by) {
    now += by;
    Do(cluster.Tick(now));
  }

  // Lets one worker answer its oldest message. False if it has none.
  bool Step(MemberId id) {
    const auto found = workers.find(id);
    if (found == workers.end() || found->second.inbox.empty()) return false;
    Worker& worker = found->second;
    const CoordinatorMessage message = worker.inbox.front();
    worker.inbox.pop_front();
    if (const auto* assign = std::get_if<AssignMessage>(&message)) {
      worker.info.group = assign->group;
      worker.info.rank = assign->rank;
      worker.info.size = assign->size;
      Receive(id, LoadedMessage{.weight_bytes = 1, .threads = 1, .max_request_tokens = 64});
    } else if (const auto* listen = std::get_if<ListenMessage>(&message)) {
      worker.epoch = listen->epoch;
      Receive(id, ListeningMessage{.epoch = listen->epoch,
                                   .address = absl::StrCat(worker.info.address, ":", 1000 + id)});
    } else if (const auto* form = std::get_if<FormMessage>(&message)) {
      worker.epoch = form->epoch;
      forms[form->epoch].push_back(*form);
      Receive(id, ReadyMessage{.epoch = form->epoch});
    } else if (const auto* disband = std::get_if<DisbandMessage>(&message)) {
      if (worker.epoch == disband->epoch) {
        worker.epoch = 0;
        Receive(id, LeftMessage{.epoch = disband->epoch});
      }
    } else if (std::holds_alternative<ReleaseMessage>(message)) {
      worker.released = true;
    }
    return true;
  }
  // Lets all workers answer until nobody has anything to do.
  void Settle() {
    for (bool busy = true; busy;) {
      busy = false;
      std::vector<MemberId> ids;
      for (const auto& [id, worker] : workers) ids.push_back(id);
      for (const MemberId id : ids) busy |= Step(id);
    }
  }
  // Settles, and lets the pause after a failure pass; workers are heard from meanwhile.
  void SettleLater() {
    for (int i = 0; i < 30; ++i) {
      Settle();
      for (const auto& [id, worker] : workers) {
        if (!worker.dropped) Receive(id, HeartbeatMessage{.epoch = worker.epoch});
      }
      Advance(absl::Milliseconds(200));
    }
    Settle();
  }

  Cluster cluster;
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  std::map<MemberId, Worker> workers;
  std::map<uint64_t, std::vector<FormMessage>> forms;
  std::vector<std::pair<JobId, absl::Status>> ended_jobs;

 private:
  void Do(const Actions& actions) {
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<SendAction>(&action)) {
        const auto worker = workers.find(send->member);
        if (worker != workers.end()) worker->second.inbox.push_back(send->message);
      }
      if (const auto* drop = std::get_if<DropAction>(&action)) {
        const auto worker = workers.find(drop->member);
        if (worker == workers.end()) continue;
        worker->second.dropped = true;
        worker->second.drop_cause = drop->cause;
      }
      if (const auto* end = std::get_if<EndJobAction>(&action)) {
        ended_jobs.emplace_back(end->job, end->cause);
      }
    }
  }
};

}  // namespace cairn
