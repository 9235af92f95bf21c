// UniqueHandle: one owned C handle, destroyed with its owner. UniqueFd is the one for descriptors.
//
// Thread: as the handle's own rules say; the wrapper adds none.
#pragma once

#include <unistd.h>

#include <utility>

namespace cairn {

// Handle is a plain value (a pointer, a descriptor), kNone the one that owns nothing, kDestroy what
// is called with the handle at the end. Made by a function that returns a StatusOr.
template <typename Handle, void (*kDestroy)(Handle), Handle kNone = Handle{}>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.Release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~UniqueHandle() { Reset(); }

  Handle get() const { return handle_; }
  bool valid() const { return handle_ != kNone; }
  // Gives the handle up: the caller destroys it.
  [[nodiscard]] Handle Release() { return std::exchange(handle_, kNone); }
  // Destroys the handle held and takes `handle` in its place.
  void Reset(Handle handle = kNone) {
    const Handle old = std::exchange(handle_, handle);
    if (old != kNone) kDestroy(old);
  }

 private:
  Handle handle_ = kNone;
};

// A failing close leaves nothing to do: on Linux the descriptor is gone either way.
inline void CloseDescriptor(int descriptor) { close(descriptor); }

using UniqueFd = UniqueHandle<int, CloseDescriptor, -1>;

}  // namespace cairn
