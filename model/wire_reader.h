// A cursor over a protocol buffer message nobody vouches for: field after field, every length
// checked against what is left.
//
// Thread: one at a time.
// Source: the encoding that protobuf.dev describes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cairn {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  int32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;           // of kVarint, kFixed64 and kFixed32
  std::string_view bytes = {};  // of kBytes

  float AsFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
};

class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message), size_(message.size()) {}

  // Nothing at the end. Errors: InvalidArgument with the offset where the message is broken.
  absl::StatusOr<std::optional<WireField>> Next() {
    if (rest_.empty()) return std::nullopt;
    ASSIGN_OR_RETURN(const uint64_t tag, ReadVarint());
    WireField field{.number = static_cast<int32_t>(tag >> 3 & 0x1FFFFFFF)};
    if (tag >> 32 != 0 || field.number == 0) return Broken("field number");
    switch (tag & 7) {
      case 0: {
        ASSIGN_OR_RETURN(field.value, ReadVarint());
        return field;
      }
      case 1:
        return ReadFixed(8, WireType::kFixed64, field);
      case 2:
        return ReadBytes(field);
      case 5:
        return ReadFixed(4, WireType::kFixed32, field);
      default:
        return Broken("type of a field");
    }
  }

 private:
  absl::Status Broken(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("message is broken: ", absl::string_view(what.data(), what.size()),
                     " offset=", size_ - rest_.size()));
  }

  absl::StatusOr<uint64_t> ReadVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return Broken("it ends inside a number");
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return Broken("number of more than 64 bits");
  }

  absl::StatusOr<std::optional<WireField>> ReadFixed(size_t bytes, WireType type, WireField field) {
    static_assert(std::endian::native == std::endian::little);
    if (rest_.size() < bytes) return Broken("it ends inside a number");
    field.type = type;
    std::memcpy(&field.value, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
    return field;
  }

  absl::StatusOr<std::optional<WireField>> ReadBytes(WireField field) {
    ASSIGN_OR_RETURN(const uint64_t length, ReadVarint());
    if (length > rest_.size()) return Broken("length of a field exceeds the message");
    field.type = WireType::kBytes;
    field.bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return field;
  }

  std::string_view rest_;
  size_t size_;
};

}  // namespace cairn
