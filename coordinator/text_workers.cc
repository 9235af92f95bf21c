#include "coordinator/text_workers.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {

TextWorkers::TextWorkers(int num_threads, int max_queued, int64_t max_queued_bytes)
    : max_queued_bytes_(max_queued_bytes), queue_(max_queued) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] {
      while (!queue_.drained()) {
        const std::optional<Work> work = queue_.Pop(absl::Seconds(1));
        if (!work.has_value()) continue;
        queued_bytes_.fetch_sub(work->bytes);
        work->run();
      }
    });
  }
}

TextWorkers::~TextWorkers() {
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status TextWorkers::Add(std::function<void()> work, int64_t bytes) {
  if (queued_bytes_.fetch_add(bytes) + bytes > max_queued_bytes_) {
    queued_bytes_.fetch_sub(bytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        "coordinator overloaded: prompts of more than ", max_queued_bytes_, " bytes would wait"));
  }
  if (queue_.TryPush(Work{std::move(work), bytes})) return absl::OkStatus();
  queued_bytes_.fetch_sub(bytes);
  return absl::ResourceExhaustedError(
      absl::StrCat("coordinator overloaded: ", queue_.capacity(), " prompts wait"));
}

}  // namespace cairn
