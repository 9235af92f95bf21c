// Messages on their way into one gRPC stream, which takes them one at a time.
//
// Any thread adds messages and may end the stream; gRPC's callbacks say when a write is done. The
// queue answers what is to be done next with the stream, and the caller does exactly that, outside
// of the lock. Bounded: a reader that is too slow is an answer, not a growing buffer.
//
// Thread: any.
#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"

namespace cairn {

template <typename Message>
class StreamQueue {
 public:
  enum class Act { kNothing, kWrite, kFinish, kFull, kEnded };
  struct Next {
    Act act = Act::kNothing;
    const Message* message = nullptr;  // of kWrite; lives until WriteDone
    grpc::Status status{};             // of kFinish
  };

  // `limit`: messages that may wait, at least 1.
  explicit StreamQueue(size_t limit) : limit_(limit) {}

  // kWrite or kNothing if it was taken, kFull or kEnded if not.
  Next Add(Message message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ending_) return {.act = Act::kEnded};
    if (messages_.size() >= limit_) return {.act = Act::kFull};
    messages_.push_back(std::move(message));
    if (writing_) return {};
    writing_ = true;
    return {.act = Act::kWrite, .message = &messages_.front()};
  }

  // After every write. A write that failed drops what waits.
  Next WriteDone(bool ok) {
    const std::lock_guard<std::mutex> lock(mutex_);
    messages_.pop_front();
    if (!ok) messages_.clear();
    if (!messages_.empty()) return {.act = Act::kWrite, .message = &messages_.front()};
    writing_ = false;
    return FinishIfDue();
  }

  // Ends the stream with `status` after what waits. The first end counts.
  Next End(const grpc::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ending_) return {};
    ending_ = true;
    status_ = status;
    return FinishIfDue();
  }

  // Ends the stream without writing what waits, also one that is already ending.
  Next Abort(const grpc::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!ending_) status_ = status;
    ending_ = true;
    while (messages_.size() > (writing_ ? 1 : 0)) messages_.pop_back();
    return FinishIfDue();
  }

 private:
  Next FinishIfDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!ending_ || writing_ || finished_) return {};
    finished_ = true;
    return {.act = Act::kFinish, .status = status_};
  }

  const size_t limit_;
  std::mutex mutex_;
  std::deque<Message> messages_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
