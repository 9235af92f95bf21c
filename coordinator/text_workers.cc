#include "coordinator/text_workers.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace cairn {

TextWorkers::TextWorkers(int num_threads, int max_queued, int64_t max_queued_bytes)
    : max_queued_(max_queued),
      max_queued_bytes_(max_queued_bytes),
      brief_(max_queued),
      long_(max_queued),
      tickets_(max_queued) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] {
      while (!tickets_.drained()) {
        if (tickets_.Pop(absl::Seconds(1)).has_value()) Take().run();
      }
    });
  }
}

TextWorkers::~TextWorkers() {
  tickets_.Close();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status TextWorkers::Add(std::function<void()> work, int64_t bytes) {
  if (queued_bytes_.fetch_add(bytes) + bytes > max_queued_bytes_) {
    queued_bytes_.fetch_sub(bytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        "coordinator overloaded: prompts of more than ", max_queued_bytes_, " bytes would wait"));
  }
  if (num_queued_.fetch_add(1) >= max_queued_) {
    num_queued_.fetch_sub(1);
    queued_bytes_.fetch_sub(bytes);
    return absl::ResourceExhaustedError(
        absl::StrCat("coordinator overloaded: ", max_queued_, " prompts wait"));
  }
  CHECK((bytes <= kBriefBytes ? brief_ : long_).TryPush({std::move(work), bytes}));
  CHECK(tickets_.TryPush({}));
  return absl::OkStatus();
}

TextWorkers::Work TextWorkers::Take() {
  while (true) {  // another thread may take what this one has seen, and leave the other kind to it
    const bool long_is_due = num_brief_in_a_row_.load() >= kMaxBriefInARow;
    std::optional<Work> work;
    if (!long_is_due) work = brief_.Pop(absl::ZeroDuration());
    if (!work.has_value()) work = long_.Pop(absl::ZeroDuration());
    if (!work.has_value()) work = brief_.Pop(absl::ZeroDuration());
    if (!work.has_value()) continue;
    num_brief_in_a_row_ = work->bytes <= kBriefBytes ? num_brief_in_a_row_ + 1 : 0;
    queued_bytes_.fetch_sub(work->bytes);
    num_queued_.fetch_sub(1);
    return *std::move(work);
  }
}

}  // namespace cairn
