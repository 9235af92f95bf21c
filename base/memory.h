// HostBuffer: a large piece of zeroed memory that says no instead of throwing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace cairn {

// Owns its memory, which never moves. Aligned to kHugePageBytes from that size on and offered to
// the kernel for huge pages; smaller pieces are aligned to kSmallAlignment.
// Thread: the owner's.
class HostBuffer {
 public:
  static constexpr int64_t kHugePageBytes = int64_t{2} << 20;
  static constexpr int64_t kSmallAlignment = 64;

  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  // `what` names the use in errors ("KV pool"). Zero bytes is an empty buffer. Pages are taken on
  // first touch, near the thread that touches them.
  // Errors: InvalidArgument for a negative size; ResourceExhausted if the system has no such room.
  static absl::StatusOr<HostBuffer> Allocate(int64_t size_bytes, std::string_view what);

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

  // The memory as an array of plain values.
  template <typename T>
  T* as() const {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kSmallAlignment);
    return reinterpret_cast<T*>(data_);
  }

 private:
  HostBuffer(std::byte* data, int64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace cairn
