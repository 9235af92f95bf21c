// A moment of the steady clock by which something must have happened.
//
// Thread: any.
#pragma once

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace cairn {

class Deadline {
 public:
  // `timeout` may be infinite; a negative one has passed already.
  static Deadline After(absl::Duration timeout) {
    const absl::Duration bounded = std::clamp(timeout, absl::ZeroDuration(), kLongest);
    return Deadline(std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(bounded));
  }

  // Never negative.
  absl::Duration Remaining() const {
    return std::max(absl::ZeroDuration(),
                    absl::FromChrono(moment_ - std::chrono::steady_clock::now()));
  }
  bool Passed() const { return std::chrono::steady_clock::now() >= moment_; }

 private:
  // Far enough to mean never, near enough for nanoseconds in 64 bits.
  static constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 10);

  explicit Deadline(std::chrono::steady_clock::time_point moment) : moment_(moment) {}

  std::chrono::steady_clock::time_point moment_;
};

}  // namespace cairn
