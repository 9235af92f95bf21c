#include "base/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace cairn {
namespace {

int64_t Address(const HostBuffer& buffer) { return reinterpret_cast<int64_t>(buffer.data()); }

TEST(HostBufferTest, IsZeroedAlignedAndWritableToItsLastByte) {
  constexpr int64_t kHuge = HostBuffer::kHugePageBytes;
  for (const int64_t size : {int64_t{1}, int64_t{65}, kHuge - 1, kHuge, kHuge + 1, 3 * kHuge + 5}) {
    absl::StatusOr<HostBuffer> buffer = HostBuffer::Allocate(size, "test");
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size_bytes(), size);
    EXPECT_EQ(Address(*buffer) % (size >= kHuge ? kHuge : HostBuffer::kSmallAlignment), 0) << size;
    uint8_t* const bytes = buffer->as<uint8_t>();
    EXPECT_TRUE(std::all_of(bytes, bytes + size, [](uint8_t byte) { return byte == 0; })) << size;
    std::fill(bytes, bytes + size, uint8_t{0xff});
  }
}

TEST(HostBufferTest, NothingIsAnEmptyBuffer) {
  absl::StatusOr<HostBuffer> buffer = HostBuffer::Allocate(0, "test");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size_bytes(), 0);
}

TEST(HostBufferTest, NamesTheUseWhenThereIsNoRoom) {
  for (const int64_t size : {int64_t{1} << 60, std::numeric_limits<int64_t>::max()}) {
    const absl::Status status = HostBuffer::Allocate(size, "KV pool").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("KV pool"), absl::string_view::npos) << status;
  }
}

TEST(HostBufferTest, RefusesANegativeSize) {
  EXPECT_EQ(HostBuffer::Allocate(-1, "test").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostBufferTest, MovingKeepsTheMemoryInPlace) {
  HostBuffer a = *HostBuffer::Allocate(100, "test");
  const int64_t address = Address(a);
  HostBuffer b = std::move(a);
  EXPECT_EQ(Address(b), address);
  HostBuffer c = *HostBuffer::Allocate(HostBuffer::kHugePageBytes, "test");
  c = std::move(b);
  EXPECT_EQ(Address(c), address);
  EXPECT_EQ(c.size_bytes(), 100);
}

}  // namespace
}  // namespace cairn
