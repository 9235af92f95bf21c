// Threads for slow work on text: rendering and tokenizing a long prompt takes a tenth of a second,
// which neither gRPC's threads nor the cluster loop can spare.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/status.h"

namespace cairn {

class TextWorkers {
 public:
  static constexpr int64_t kMaxQueuedBytes = int64_t{256} << 20;

  // `max_queued`: pieces of work that may wait; `max_queued_bytes`: the input of all of them.
  TextWorkers(int num_threads, int max_queued, int64_t max_queued_bytes = kMaxQueuedBytes);
  ~TextWorkers();  // Finishes what waits and joins.

  // Runs `work` on one of the threads, later; it keeps `bytes` of input until then. Thread: any.
  // Errors: ResourceExhausted if too much waits; `work` is then not run.
  absl::Status Add(std::function<void()> work, int64_t bytes);

 private:
  struct Work {
    std::function<void()> run;
    int64_t bytes = 0;
  };

  const int64_t max_queued_bytes_;
  std::atomic<int64_t> queued_bytes_{0};
  BoundedQueue<Work> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace cairn
