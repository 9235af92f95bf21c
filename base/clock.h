// What time it is, as something a test can hold still.
//
// Code that decides by time takes a Clock*, never the system's: RealClock in the programs, a
// SimulatedClock in tests and in the simulator.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// Thread: any.
class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes backward. Only differences and comparisons within one process mean something.
  virtual absl::Time Now() = 0;
};

// The machine's steady clock, placed so that it reads as wall time at the start of the process: a
// clock that is set later moves no deadline.
class RealClock final : public Clock {
 public:
  absl::Time Now() override;
};

// Stands still until it is told to move.
class SimulatedClock final : public Clock {
 public:
  explicit SimulatedClock(absl::Time start = absl::UnixEpoch()) : now_ns_(ToUnixNanos(start)) {}
  absl::Time Now() override { return absl::FromUnixNanos(now_ns_.load()); }
  // `by` must not be negative.
  void Advance(absl::Duration by);

 private:
  std::atomic<int64_t> now_ns_;
};

}  // namespace cairn
