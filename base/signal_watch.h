// Termination signals as events: no code runs in a signal handler.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

namespace cairn {

// While it lives, SIGINT and SIGTERM reach `on_signal` on a thread of its own instead of ending the
// process. Made before any other thread, so that all threads inherit the blocked signals. SIGPIPE
// is ignored from then on: a write to a closed pipe is an error of that write.
class SignalWatch {
 public:
  explicit SignalWatch(std::function<void(int signal)> on_signal);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  const std::function<void(int)> on_signal_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// In a child process between fork and exec: takes back what SignalWatch did to signals.
void RestoreSignals();

}  // namespace cairn
