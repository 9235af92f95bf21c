// How long a thread spins before it sleeps, learnt from what spinning has been good for.
//
// On an idle machine a sleep and a wake-up cost more than a long spin. On a busy one a spin burns
// the time that the scheduler would grant to the thread waited for, and a sleeper is put back at
// once when it is woken. So each wait that a spin ends adds a little to the budget, and each that
// it does not halves it.
// Thread: any; threads may overwrite each other's lesson, which is a guess anyhow. Errors: none.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace cairn {

class SpinBudget {
 public:
  static constexpr int kLeastUs = 20;
  static constexpr int kMostUs = 400;

  int us() const { return us_.load(std::memory_order_relaxed); }

  // Spins until done() is true or the budget is used up; returns what done() said last.
  template <typename Done>
  bool SpinUntil(Done done) {
    const int us = this->us();
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
    do {
      for (int i = 0; i < kPausesPerLook; ++i) {
        if (done()) {
          us_.store(std::min(kMostUs, us + kGainUs), std::memory_order_relaxed);
          return true;
        }
        _mm_pause();
      }
    } while (std::chrono::steady_clock::now() < end);
    us_.store(std::max(kLeastUs, us / 2), std::memory_order_relaxed);
    return done();
  }

 private:
  static constexpr int kGainUs = 10;
  static constexpr int kPausesPerLook = 32;

  std::atomic<int> us_{kLeastUs};
};

}  // namespace cairn
