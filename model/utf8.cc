#include "model/utf8.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// The inclusive range that the second byte must be in after `first`; it alone tells overlong forms,
// surrogates and numbers past U+10FFFF.
struct ByteRange {
  uint8_t low;
  uint8_t high;
};

ByteRange SecondByteRange(uint8_t first) {
  switch (first) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

// Unicode's categories Cc past ASCII, Zl, Zp, and of Cf what changes how others are shown.
bool IsUnseen(char32_t code) {
  return (code >= 0x80 && code <= 0x9F) || code == 0xAD || code == 0x61C || code == 0x180E ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF ||
         (code >= 0xE0000 && code <= 0xE007F);
}

}  // namespace

DecodedCharacter DecodeCharacter(std::string_view text) {
  using Kind = DecodedCharacter::Kind;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {Kind::kValid, first, 1};
  if (first < 0xC2 || first > 0xF4) return {Kind::kInvalid, 0, 1};
  const int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  const ByteRange second = SecondByteRange(first);
  char32_t code_point = first & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {Kind::kIncomplete, 0, i};
    const ByteRange range = i == 1 ? second : ByteRange{0x80, 0xBF};
    if (byte(i) < range.low || byte(i) > range.high) return {Kind::kInvalid, 0, i};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  return {Kind::kValid, code_point, length};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const DecodedCharacter character = DecodeCharacter(text.substr(at));
    if (character.kind != DecodedCharacter::Kind::kValid) return at;
    at += character.bytes;
  }
  return at;
}

bool IsValidUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

std::string Printable(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t position = 0;
  while (position < text.size() && position < max_bytes) {
    const DecodedCharacter character = DecodeCharacter(text.substr(position));
    const bool is_valid = character.kind == DecodedCharacter::Kind::kValid;
    const size_t length = is_valid ? static_cast<size_t>(character.bytes) : 1;
    const auto first = static_cast<uint8_t>(text[position]);
    if (first == '\n') {
      out += "\\n";
    } else if (!is_valid || first < 0x20 || first == 0x7F) {
      absl::StrAppend(&out, "\\x", absl::Hex(first, absl::kZeroPad2));
    } else if (IsUnseen(character.code_point)) {
      absl::StrAppend(&out, "\\u{", absl::Hex(static_cast<uint32_t>(character.code_point)), "}");
    } else {
      out += text.substr(position, length);
    }
    position += length;
  }
  if (position < text.size()) out += "...";
  return out;
}

}  // namespace cairn
