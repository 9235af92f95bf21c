// A cursor over the bytes of an untrusted header: every step is checked against what is left.
// Thread: one at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cairn {

class HeaderReader {
 public:
  explicit HeaderReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  int64_t position() const { return static_cast<int64_t>(position_); }
  int64_t remaining() const { return static_cast<int64_t>(bytes_.size() - position_); }

  // A little-endian value. Errors (here and below): InvalidArgument, the file ends inside `field`.
  template <typename T>
  absl::StatusOr<T> Read(std::string_view field) {
    static_assert(std::endian::native == std::endian::little);
    ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, ReadBytes(sizeof(T), field));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  absl::StatusOr<std::span<const std::byte>> ReadBytes(uint64_t count, std::string_view field) {
    if (count > bytes_.size() - position_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "file ends inside ", absl::string_view(field.data(), field.size()), ": offset=",
          position_, " declared_bytes=", count, " available_bytes=", bytes_.size() - position_));
    }
    const auto bytes = bytes_.subspan(position_, count);
    position_ += count;
    return bytes;
  }

  // A 64-bit length and as many bytes, `max_bytes` at most.
  absl::StatusOr<std::string_view> ReadString(int64_t max_bytes, std::string_view field) {
    ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(field));
    if (length > static_cast<uint64_t>(max_bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(absl::string_view(field.data(), field.size()),
                                                     " is too long: bytes=", length,
                                                     " limit=", max_bytes));
    }
    ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, ReadBytes(length, field));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  std::span<const std::byte> Since(int64_t start) const {
    return bytes_.subspan(static_cast<size_t>(start), position_ - static_cast<size_t>(start));
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace cairn
