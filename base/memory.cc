#include "base/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Room for the largest alignment beyond this would overflow.
constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max() / 4;

absl::Status NoRoom(int64_t size_bytes, std::string_view what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for ", std::string(what), ": bytes=", size_bytes));
}

std::byte* AllocateSmall(int64_t size_bytes) {
  const int64_t rounded = RoundUp(size_bytes, HostBuffer::kSmallAlignment);
  void* memory = std::aligned_alloc(HostBuffer::kSmallAlignment, rounded);
  if (memory != nullptr) std::memset(memory, 0, rounded);
  return static_cast<std::byte*>(memory);
}

// Maps one huge page more than needed and gives back what sticks out at both ends.
std::byte* MapHuge(int64_t size_bytes) {
  constexpr int64_t kPage = HostBuffer::kHugePageBytes;
  const int64_t rounded = RoundUp(size_bytes, kPage);
  void* mapped =
      mmap(nullptr, rounded + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::byte* const begin = static_cast<std::byte*>(mapped);
  const int64_t head =
      RoundUp(reinterpret_cast<int64_t>(begin), kPage) - reinterpret_cast<int64_t>(begin);
  if (head > 0) munmap(begin, head);
  if (kPage - head > 0) munmap(begin + head + rounded, kPage - head);
  // Advice only: without huge pages everything works, slower.
  madvise(begin + head, rounded, MADV_HUGEPAGE);
  return begin + head;
}

}  // namespace

absl::StatusOr<HostBuffer> HostBuffer::Allocate(int64_t size_bytes, std::string_view what) {
  if (size_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("negative size of ", std::string(what), ": bytes=", size_bytes));
  }
  if (size_bytes == 0) return HostBuffer();
  if (size_bytes > kMaxBytes) return NoRoom(size_bytes, what);
  std::byte* const data =
      size_bytes < kHugePageBytes ? AllocateSmall(size_bytes) : MapHuge(size_bytes);
  if (data == nullptr) return NoRoom(size_bytes, what);
  return HostBuffer(data, size_bytes);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

HostBuffer::~HostBuffer() {
  if (data_ == nullptr) return;
  if (size_bytes_ < kHugePageBytes) {
    std::free(data_);
  } else {
    munmap(data_, RoundUp(size_bytes_, kHugePageBytes));
  }
}

}  // namespace cairn
