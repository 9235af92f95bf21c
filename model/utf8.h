// UTF-8 checks for names that come from files.
// Thread: any. Errors: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn {

// Whether all of `text` is well-formed UTF-8: no overlong form, no surrogate, nothing past
// U+10FFFF.
bool IsValidUtf8(std::string_view text);

// `text` on one line for an error message or a listing: broken UTF-8, control characters and those
// that steer a line without being seen (they turn its direction, or have no width) are escaped, and
// a text of more than about max_bytes is cut with "...".
std::string Printable(std::string_view text, size_t max_bytes = 200);

}  // namespace cairn
