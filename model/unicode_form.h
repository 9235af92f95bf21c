// Unicode normal forms (Unicode Standard Annex 15) by utf8proc's tables.
// Thread: any. Errors: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// `text`, which must be UTF-8, in the form. Takes time n log n for any text: utf8proc's own
// reordering of combining marks is quadratic, so the marks are sorted here.
std::string NormalizeUnicode(std::string_view text, UnicodeForm form);

}  // namespace cairn
