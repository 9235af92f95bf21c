#include "coordinator/text_workers.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {

TextWorkers::TextWorkers(int num_threads, int max_queued) : queue_(max_queued) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] {
      while (!queue_.drained()) {
        if (auto work = queue_.Pop(absl::Seconds(1))) (*work)();
      }
    });
  }
}

TextWorkers::~TextWorkers() {
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status TextWorkers::Add(std::function<void()> work) {
  if (queue_.TryPush(std::move(work))) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("coordinator overloaded: ", queue_.capacity(), " prompts wait"));
}

}  // namespace cairn
