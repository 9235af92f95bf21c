#include "base/clock.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace cairn {
namespace {

TEST(RealClockTest, NeverGoesBackward) {
  RealClock clock;
  absl::Time previous = clock.Now();
  for (int i = 0; i < 10000; ++i) {
    const absl::Time now = clock.Now();
    ASSERT_GE(now, previous);
    previous = now;
  }
}

TEST(RealClockTest, ReadsAsWallTime) {
  RealClock clock;
  EXPECT_LT(absl::AbsDuration(clock.Now() - absl::Now()), absl::Minutes(5));
}

TEST(SimulatedClockTest, MovesOnlyWhenTold) {
  SimulatedClock clock(absl::FromUnixSeconds(100));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(100));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(100));
  clock.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(clock.Now(), absl::FromUnixMillis(101500));
}

TEST(SimulatedClockDeathTest, RefusesToGoBackward) {
  SimulatedClock clock;
  EXPECT_DEATH(clock.Advance(-absl::Seconds(1)), "CHECK failed");
}

}  // namespace
}  // namespace cairn
