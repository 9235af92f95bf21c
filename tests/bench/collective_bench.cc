// How long a sum over all ranks and an exchange take, in microseconds as rank 0 sees them.
//
//   collective_bench [shm|tcp|all]
//
// Ranks are processes on this machine; with more ranks than free cores the figures tell about the
// scheduler as much as about the back end.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "worker/collective.h"

namespace cairn {
namespace {

constexpr int64_t kMaxBytes = 8 << 20;

int NumCalls(int64_t bytes) {
  if (bytes <= 64 << 10) return 3000;
  return bytes <= 1 << 20 ? 200 : 30;
}

template <typename Call>
std::vector<double> Measure(Collective& collective, int num_calls, Call call) {
  for (int i = 0; i < num_calls / 10; ++i) call();
  CHECK_OK(collective.Barrier());
  std::vector<double> microseconds;
  for (int i = 0; i < num_calls; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    microseconds.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::sort(microseconds.begin(), microseconds.end());
  return microseconds;
}

void Print(const std::string& backend, const Collective& collective, const char* call,
           int64_t bytes, const std::vector<double>& microseconds) {
  if (collective.rank() != 0) return;
  const size_t count = microseconds.size();
  printf("%s ranks=%d %-6s %8lld B  p10 %8.1f  p50 %8.1f  p99 %9.1f us\n", backend.c_str(),
         collective.size(), call, static_cast<long long>(bytes), microseconds[count / 10],
         microseconds[count / 2], microseconds[count * 99 / 100]);
  fflush(stdout);
}

void RunRank(const std::string& backend, Collective& collective) {
  for (const int64_t bytes : {1024, 2304, 16384, 65536, 1 << 20, 8 << 20}) {
    std::vector<float> x(bytes / sizeof(float), 1.0f);
    Print(backend, collective, "sum", bytes, Measure(collective, NumCalls(bytes), [&] {
            std::fill(x.begin(), x.end(), 1.0f);
            CHECK_OK(collective.AllReduceSum(x));
          }));
    CHECK(x.back() == static_cast<float>(collective.size()));
    Print(backend, collective, "gather", bytes,
          Measure(collective, NumCalls(bytes), [&] { CHECK_OK(collective.AllGatherV(bytes)); }));
  }
}

void RunGroup(const std::string& backend, int size) {
  std::vector<Listener> listeners;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<Listener> listener = ListenTcp("127.0.0.1", 0);
    CHECK(listener.ok()) << listener.status();
    listeners.push_back(*listener);
    addresses.push_back(absl::StrCat("127.0.0.1:", listener->port));
  }
  const std::string name = absl::StrCat("/cairn-bench-", getpid(), "-", size);
  for (int rank = 0; rank < size; ++rank) {
    if (fork() != 0) continue;
    absl::StatusOr<std::unique_ptr<Collective>> collective;
    if (backend == "shm") {
      collective = NewShmCollective({.name = name,
                                     .rank = rank,
                                     .size = size,
                                     .epoch = 1,
                                     .max_message_bytes = kMaxBytes,
                                     .timeout = absl::Seconds(60)});
    } else {
      collective = NewTcpCollective({.rank = rank,
                                     .size = size,
                                     .addresses = addresses,
                                     .listen_fd = listeners[rank].fd,
                                     .key = "bench",
                                     .epoch = 1,
                                     .max_message_bytes = kMaxBytes,
                                     .timeout = absl::Seconds(60)});
    }
    CHECK(collective.ok()) << collective.status();
    RunRank(backend, **collective);
    _exit(0);
  }
  for (const Listener& listener : listeners) close(listener.fd);
  while (wait(nullptr) > 0) {
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  const std::string choice = argc > 1 ? argv[1] : "all";
  if (choice != "all" && choice != "shm" && choice != "tcp") {
    fprintf(stderr, "usage: collective_bench [shm|tcp|all]\n");
    return 2;
  }
  for (const char* backend : {"shm", "tcp"}) {
    if (choice != "all" && choice != backend) continue;
    for (const int size : {2, 4}) cairn::RunGroup(backend, size);
  }
  return 0;
}
