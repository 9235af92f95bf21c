// Decoding UTF-8, and names from files in messages.
// Thread: any. Errors: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn {

struct DecodedCharacter {
  enum class Kind {
    kValid,       // code_point, in `bytes` bytes
    kInvalid,     // `bytes` bytes that no continuation can make a character (a maximal subpart)
    kIncomplete,  // all that is left (`bytes` bytes) is the start of some character
  };
  Kind kind = Kind::kInvalid;
  char32_t code_point = 0;
  int bytes = 0;
};

// The first character of `text`, which must not be empty.
DecodedCharacter DecodeCharacter(std::string_view text);

// Bytes of the longest prefix of `text` that is UTF-8.
size_t ValidUtf8Prefix(std::string_view text);

// Whether all of `text` is well-formed UTF-8: no overlong form, no surrogate, nothing past
// U+10FFFF.
bool IsValidUtf8(std::string_view text);

// `text` on one line for an error message or a listing: broken UTF-8, control characters and those
// that steer a line without being seen (they turn its direction, or have no width) are escaped, and
// a text of more than about max_bytes is cut with "...".
std::string Printable(std::string_view text, size_t max_bytes = 200);

}  // namespace cairn
