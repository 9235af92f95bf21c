#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace cairn {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

class LogTest : public testing::Test {
 protected:
  ~LogTest() override {
    SetMinLogSeverity(LogSeverity::kInfo);
    SetLogTag("");
  }
};

TEST_F(LogTest, WritesLevelTimeThreadPlaceAndText) {
  testing::internal::CaptureStderr();
  LOG(INFO) << "loaded tensors=" << 3;
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              MatchesRegex("I [0-9:.]+ [0-9]+ log_test.cc:[0-9]+\\] loaded tensors=3\n"));
}

TEST_F(LogTest, PutsTheTagOfTheProcessOnEveryLine) {
  SetLogTag("worker.1");
  testing::internal::CaptureStderr();
  LOG(WARNING) << "x";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), MatchesRegex("W [0-9:.]+ worker.1 .*\n"));
}

TEST_F(LogTest, DropsLinesBelowTheLimitWithoutEvaluatingThem) {
  SetMinLogSeverity(LogSeverity::kWarning);
  int evaluated = 0;
  testing::internal::CaptureStderr();
  LOG(INFO) << ++evaluated;
  LOG(ERROR) << "kept";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("kept"));
  EXPECT_EQ(evaluated, 0);
}

TEST(LogDeathTest, FatalAndFailedChecksEndTheProcess) {
  EXPECT_DEATH(LOG(FATAL) << "broken", "broken");
  EXPECT_DEATH(CHECK(1 > 2) << "context", "CHECK failed: 1 > 2 context");
  EXPECT_DEATH(CHECK_EQ(1 + 1, 3), "\\(2 vs 3\\)");
  EXPECT_DEATH(CHECK_OK(absl::InternalError("why")), "INTERNAL: why");
}

TEST(LogDeathTest, PassedChecksDoNothing) {
  CHECK(true);
  CHECK_LE(1, 1);
  CHECK_OK(absl::OkStatus());
}

}  // namespace
}  // namespace cairn
