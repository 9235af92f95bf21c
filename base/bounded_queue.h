// BoundedQueue: how events reach an owner thread.
//
// Any number of threads push and pop. A push never waits: a full queue is an answer (the caller
// says ResourceExhausted), not a place to sleep.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/log.h"

namespace cairn {

// Thread: any, for every method; the destructor only when nobody else uses the queue.
template <typename T>
class BoundedQueue {
 public:
  // Holds `capacity` items at most, at least 1.
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) { CHECK_GE(capacity, 1u); }
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Puts `item` at the end. False if the queue is full or closed; the item is then left untouched,
  // so that the caller can still answer whoever waits for it.
  [[nodiscard]] bool TryPush(T&& item) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    not_empty_.notify_one();
    return true;
  }

  // Takes the first item, waiting for one up to `timeout` (zero or less: not at all). Nothing when
  // the time is over, or at once when the queue is closed and empty: drained() tells which.
  std::optional<T> Pop(absl::Duration timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    WaitForItem(lock, timeout);
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // Takes all items, waiting like Pop for the first one.
  std::deque<T> PopAll(absl::Duration timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    WaitForItem(lock, timeout);
    return std::exchange(items_, {});
  }

  // Refuses further items and wakes all who wait. What is inside can still be popped. Idempotent.
  void Close() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    not_empty_.notify_all();
  }

  // Closed and empty: no item will ever come again.
  bool drained() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return closed_ && items_.empty();
  }

  size_t size() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return items_.size();
  }

  size_t capacity() const { return capacity_; }

 private:
  // Longer waits end early: a time point that far away would overflow the standard library's.
  static constexpr absl::Duration kMaxWait = absl::Hours(24 * 365);

  void WaitForItem(std::unique_lock<std::mutex>& lock, absl::Duration timeout) {
    const auto ready = [this] { return !items_.empty() || closed_; };
    if (ready() || timeout <= absl::ZeroDuration()) return;
    const auto deadline = std::chrono::steady_clock::now() +
                          absl::ToChronoNanoseconds(timeout < kMaxWait ? timeout : kMaxWait);
    not_empty_.wait_until(lock, deadline, ready);
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable not_empty_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
