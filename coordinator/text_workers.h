// Threads for slow work on text: rendering and tokenizing a long prompt takes a tenth of a second,
// which neither gRPC's threads nor the cluster loop can spare.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/status.h"

namespace cairn {

class TextWorkers {
 public:
  // `max_queued`: pieces of work that may wait.
  TextWorkers(int num_threads, int max_queued);
  ~TextWorkers();  // Finishes what waits and joins.

  // Runs `work` on one of the threads, later. Thread: any.
  // Errors: ResourceExhausted if too much waits; `work` is then not run.
  absl::Status Add(std::function<void()> work);

 private:
  BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace cairn
