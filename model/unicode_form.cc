#include "model/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/log.h"
#include "model/unicode.h"

namespace cairn {
namespace {

bool IsAscii(char c) { return static_cast<uint8_t>(c) < 0x80; }

int CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

void AppendDecomposed(char32_t c, bool compatible, std::vector<utf8proc_int32_t>& out) {
  constexpr int kMaxDecomposed = 32;  // Unicode 15's longest is 18, of U+FDFA.
  std::array<utf8proc_int32_t, kMaxDecomposed> parts;
  int boundary_class = 0;
  const int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), kMaxDecomposed,
                              static_cast<utf8proc_option_t>(options), &boundary_class);
  CHECK(count >= 0 && count <= kMaxDecomposed) << "decomposition of a character: count=" << count;
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

// Sorts each run of characters with a combining class by it; equals stay in their order.
void Reorder(std::vector<utf8proc_int32_t>& characters) {
  const auto is_starter = [](utf8proc_int32_t c) { return CombiningClass(c) == 0; };
  auto run = characters.begin();
  while (run != characters.end()) {
    run = std::find_if_not(run, characters.end(), is_starter);
    const auto end = std::find_if(run, characters.end(), is_starter);
    std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    run = end;
  }
}

void AppendNormalized(std::string_view text, UnicodeForm form, std::string& out) {
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    const DecodedCharacter character = DecodeCharacter(text);
    CHECK(character.kind == DecodedCharacter::Kind::kValid) << "text to normalise is not UTF-8";
    AppendDecomposed(character.code_point, compatible, characters);
    text.remove_prefix(character.bytes);
  }
  Reorder(characters);
  auto count = static_cast<utf8proc_ssize_t>(characters.size());
  if (compose) {
    count = utf8proc_normalize_utf32(
        characters.data(), count,
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    CHECK_GE(count, 0) << "composition of characters";
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<char32_t>(characters[i]), out);
  }
}

}  // namespace

std::string NormalizeUnicode(std::string_view text, UnicodeForm form) {
  std::string out;
  out.reserve(text.size());
  // ASCII stays as it is, and nothing composes with an ASCII character to its right: what others
  // there are is normalised with the one ASCII character before them.
  for (size_t at = 0; at < text.size();) {
    const auto first = std::find_if_not(text.begin() + at, text.end(), IsAscii);
    const auto last = std::find_if(first, text.end(), IsAscii);
    size_t begin = first - text.begin();
    if (begin > at && first != text.end()) --begin;
    const size_t end = last - text.begin();
    out.append(text.substr(at, begin - at));
    AppendNormalized(text.substr(begin, end - begin), form, out);
    at = end;
  }
  return out;
}

}  // namespace cairn
