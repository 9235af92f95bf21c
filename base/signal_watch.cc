#include "base/signal_watch.h"

#include <csignal>
#include <ctime>
#include <utility>

namespace cairn {
namespace {

sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

SignalWatch::SignalWatch(std::function<void(int)> on_signal) : on_signal_(std::move(on_signal)) {
  signal(SIGPIPE, SIG_IGN);
  const sigset_t set = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this, set] {
    const timespec slice{.tv_sec = 0, .tv_nsec = 100'000'000};
    while (!ending_.load()) {
      const int received = sigtimedwait(&set, nullptr, &slice);
      if (received > 0) on_signal_(received);
    }
  });
}

SignalWatch::~SignalWatch() {
  ending_.store(true);
  thread_.join();
}

void RestoreSignals() {
  signal(SIGPIPE, SIG_DFL);
  const sigset_t set = WatchedSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace cairn
