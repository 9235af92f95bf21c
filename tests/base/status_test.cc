#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace cairn {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Sum(int a, int b) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Make(a));
  ASSIGN_OR_RETURN(const std::unique_ptr<int> second, Make(b));
  return *first + *second;
}

absl::Status Check(int value) {
  RETURN_IF_ERROR(Make(value).status());
  return absl::NotFoundError("passed");
}

TEST(StatusTest, MacrosPassErrorsUpAndValuesOn) {
  EXPECT_EQ(*Sum(1, 2), 3);
  EXPECT_EQ(Sum(1, -2).status(), absl::InvalidArgumentError("negative"));
  EXPECT_EQ(Check(-1), absl::InvalidArgumentError("negative"));
  EXPECT_EQ(Check(1), absl::NotFoundError("passed"));
}

TEST(StatusTest, AnnotatePutsContextBeforeTheMessageAndKeepsTheCode) {
  EXPECT_EQ(Annotate(absl::DataLossError("checksum"), "block 3"),
            absl::DataLossError("block 3: checksum"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "block 3").ok());
}

}  // namespace
}  // namespace cairn
