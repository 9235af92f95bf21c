// Threads for slow work on text: rendering and tokenizing a long prompt takes a tenth of a second,
// which neither gRPC's threads nor the cluster loop can spare. Who comes with little is not kept
// waiting by those who come with much.
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
  // Work with no more input than this goes first, but for every kMaxBriefInARow pieces of it one
  // with more, if one waits.
  static constexpr int64_t kBriefBytes = int64_t{64} << 10;
  static constexpr int kMaxBriefInARow = 8;

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

  struct Ticket {};  // for one piece of work in either queue

  Work Take();  // with a ticket in hand

  const int64_t max_queued_, max_queued_bytes_;
  std::atomic<int64_t> num_queued_{0}, queued_bytes_{0};
  std::atomic<int> num_brief_in_a_row_{0};
  BoundedQueue<Work> brief_, long_;
  BoundedQueue<Ticket> tickets_;
  std::vector<std::thread> threads_;
};

}  // namespace cairn
