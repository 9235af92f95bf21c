#include "base/unique_handle.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cairn {
namespace {

std::vector<int>* const destroyed = new std::vector<int>;
void Destroy(int handle) { destroyed->push_back(handle); }
using Handle = UniqueHandle<int, Destroy, -1>;

class UniqueHandleTest : public testing::Test {
 protected:
  UniqueHandleTest() { destroyed->clear(); }
};

TEST_F(UniqueHandleTest, DestroysOnceAtTheEnd) {
  {
    Handle a(7);
    Handle b(std::move(a));
    EXPECT_FALSE(a.valid());
    EXPECT_EQ(b.get(), 7);
  }
  EXPECT_EQ(*destroyed, std::vector<int>{7});
}

TEST_F(UniqueHandleTest, NeverDestroysTheEmptyHandle) {
  { Handle none; }
  EXPECT_TRUE(destroyed->empty());
}

TEST_F(UniqueHandleTest, AssignmentDestroysWhatWasHeld) {
  Handle a(1);
  a = Handle(2);
  EXPECT_EQ(*destroyed, std::vector<int>{1});
  EXPECT_EQ(a.get(), 2);
  Handle& same = a;
  a = std::move(same);
  EXPECT_EQ(a.get(), 2);
  EXPECT_EQ(destroyed->size(), 1u);
}

TEST_F(UniqueHandleTest, ReleaseGivesTheHandleUp) {
  {
    Handle a(3);
    EXPECT_EQ(a.Release(), 3);
  }
  EXPECT_TRUE(destroyed->empty());
}

TEST(UniqueFdTest, ClosesItsDescriptor) {
  int number;
  {
    const UniqueFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(fd.valid());
    number = fd.get();
    EXPECT_NE(fcntl(number, F_GETFD), -1);
  }
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

}  // namespace
}  // namespace cairn
