// A group of ranks for tests of collectives: what they meet by is made before they fork or start.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/unique_handle.h"
#include "worker/collective.h"

namespace cairn {

enum class Backend { kShm, kTcp, kTcp6 };

inline std::string BackendName(Backend backend) {
  switch (backend) {
    case Backend::kShm:
      return "Shm";
    case Backend::kTcp:
      return "Tcp";
    case Backend::kTcp6:
      return "Tcp6";
  }
  return "";
}

class RankGroup {
 public:
  struct Options {
    Backend backend = Backend::kShm;
    int size = 2;
    uint64_t epoch = 1;
    int64_t max_message_bytes = 4096;
    absl::Duration timeout = absl::Seconds(30);
  };

  explicit RankGroup(const Options& options) : options_(options) {
    static int num_groups = 0;
    name_ = absl::StrCat("/cairn-test-", getpid(), "-", ++num_groups);
    if (options.backend == Backend::kShm) return;
    for (int rank = 0; rank < options.size; ++rank) {
      const bool is_v6 = options.backend == Backend::kTcp6;
      absl::StatusOr<Listener> listener = ListenTcp(is_v6 ? "::1" : "127.0.0.1", 0);
      CHECK(listener.ok()) << listener.status();
      addresses_.push_back(absl::StrCat(is_v6 ? "[::1]:" : "127.0.0.1:", listener->port));
      listeners_.emplace_back(listener->fd);
    }
  }

  int size() const { return options_.size; }
  const std::string& name() const { return name_; }
  const std::vector<std::string>& addresses() const { return addresses_; }
  ShmCollectiveOptions shm_options(int rank) const {
    return {.name = name_,
            .rank = rank,
            .size = options_.size,
            .epoch = options_.epoch,
            .max_message_bytes = options_.max_message_bytes,
            .timeout = options_.timeout};
  }
  // Gives the rank's listener away.
  TcpCollectiveOptions tcp_options(int rank) {
    return {.rank = rank,
            .size = options_.size,
            .addresses = addresses_,
            .listen_fd = listeners_[rank].Release(),
            .key = "the key of this epoch",
            .epoch = options_.epoch,
            .max_message_bytes = options_.max_message_bytes,
            .timeout = options_.timeout};
  }
  absl::StatusOr<std::unique_ptr<Collective>> Join(int rank) {
    if (options_.backend == Backend::kShm) return NewShmCollective(shm_options(rank));
    return NewTcpCollective(tcp_options(rank));
  }
  // A forked rank has the listeners of all.
  void CloseListenersBut(int rank) {
    for (int other = 0; other < static_cast<int>(listeners_.size()); ++other) {
      if (other != rank) listeners_[other].Reset();
    }
  }

 private:
  const Options options_;
  std::string name_;
  std::vector<std::string> addresses_;
  std::vector<UniqueFd> listeners_;
};

// A child that runs `body` and ends with 1 if an expectation in it failed.
inline pid_t ForkRank(const std::function<void()>& body) {
  const pid_t child = fork();
  CHECK_GE(child, 0);
  if (child != 0) return child;
  body();
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

inline void ExpectCleanExit(pid_t child) {
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
}

// Runs `body` once in a process for each rank.
inline void RunForked(RankGroup& group, const std::function<void(Collective&)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < group.size(); ++rank) {
    children.push_back(ForkRank([&] {
      group.CloseListenersBut(rank);
      absl::StatusOr<std::unique_ptr<Collective>> collective = group.Join(rank);
      ASSERT_TRUE(collective.ok()) << collective.status();
      body(**collective);
    }));
  }
  for (const pid_t child : children) ExpectCleanExit(child);
}

}  // namespace cairn
