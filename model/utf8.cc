#include "model/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Length of the well-formed character at the start of `text`, which is not empty; 0 if there is
// none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  // The second byte alone tells overlong forms, surrogates and numbers past U+10FFFF.
  const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// The code point of a well-formed character.
uint32_t CodePoint(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first;
  uint32_t code = first & (0x7Fu >> character.size());
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<uint8_t>(c) & 0x3F);
  return code;
}

// Unicode's categories Cc past ASCII, Zl, Zp, and of Cf what changes how others are shown.
bool IsUnseen(uint32_t code) {
  return (code >= 0x80 && code <= 0x9F) || code == 0xAD || code == 0x61C || code == 0x180E ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF ||
         (code >= 0xE0000 && code <= 0xE007F);
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = CharacterBytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Printable(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t position = 0;
  while (position < text.size() && position < max_bytes) {
    const std::string_view rest = text.substr(position);
    const size_t length = CharacterBytes(rest);
    const auto first = static_cast<uint8_t>(rest[0]);
    if (first == '\n') {
      out += "\\n";
    } else if (length == 0 || first < 0x20 || first == 0x7F) {
      absl::StrAppend(&out, "\\x", absl::Hex(first, absl::kZeroPad2));
    } else if (const uint32_t code = CodePoint(rest.substr(0, length)); IsUnseen(code)) {
      absl::StrAppend(&out, "\\u{", absl::Hex(code), "}");
    } else {
      out += rest.substr(0, length);
    }
    position += std::max<size_t>(length, 1);
  }
  if (position < text.size()) out += "...";
  return out;
}

}  // namespace cairn
