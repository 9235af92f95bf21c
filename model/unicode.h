// Characters: encoding UTF-8 (utf8.h decodes it), and the properties that Python's str methods look
// at.
// Thread: any. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/utf8.h"

namespace cairn {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

void AppendUtf8(char32_t code_point, std::string& out);

bool IsSpaceCharacter(char32_t c);  // str.isspace
bool IsLetter(char32_t c);          // str.isalpha
bool IsDigit(char32_t c);           // str.isdecimal
bool IsNumeric(char32_t c);         // categories Nd, Nl and No
bool IsUpper(char32_t c);           // an upper or title case letter
bool IsLower(char32_t c);
bool IsCased(char32_t c);
bool IsPrintable(char32_t c);  // what repr() leaves as it is
char32_t ToUpper(char32_t c);
char32_t ToLower(char32_t c);
char32_t ToTitle(char32_t c);

}  // namespace cairn
