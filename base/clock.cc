#include "base/clock.h"

#include <chrono>

#include "absl/time/clock.h"
#include "base/log.h"

namespace cairn {
namespace {

int64_t SteadyNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::Time RealClock::Now() {
  static const int64_t offset_ns = absl::GetCurrentTimeNanos() - SteadyNanos();
  return absl::FromUnixNanos(SteadyNanos() + offset_ns);
}

void SimulatedClock::Advance(absl::Duration by) {
  CHECK(by >= absl::ZeroDuration());
  now_ns_ += absl::ToInt64Nanoseconds(by);
}

}  // namespace cairn
