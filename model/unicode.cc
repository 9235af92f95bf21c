#include "model/unicode.h"

#include <utf8proc.h>

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

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<int32_t>(c)); }

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

void AppendUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
    return;
  }
  if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | c >> 6));
  } else {
    if (c < 0x10000) {
      out.push_back(static_cast<char>(0xE0 | c >> 12));
    } else {
      out.push_back(static_cast<char>(0xF0 | c >> 18));
      out.push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    }
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
  }
  out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
}

bool IsSpaceCharacter(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  if (c == 0x85) return true;
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool IsLetter(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDigit(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsUpper(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
}

bool IsLower(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL; }

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c); }

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

char32_t ToUpper(char32_t c) { return utf8proc_toupper(static_cast<int32_t>(c)); }
char32_t ToLower(char32_t c) { return utf8proc_tolower(static_cast<int32_t>(c)); }
char32_t ToTitle(char32_t c) { return utf8proc_totitle(static_cast<int32_t>(c)); }

}  // namespace cairn
