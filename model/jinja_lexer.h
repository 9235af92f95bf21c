// Cuts a template into tokens, white-space control included (trim_blocks and lstrip_blocks are on,
// as chat templates expect).
// Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/jinja_value.h"

namespace cairn {

inline constexpr int64_t kMaxTemplateBytes = int64_t{1} << 20;

struct JinjaToken {
  enum class Kind {
    kData,         // text between tags
    kOutputBegin,  // {{
    kOutputEnd,    // }}
    kBlockBegin,   // {%
    kBlockEnd,     // %}
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // of the template
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of data and strings: the characters meant
  JinjaInt integer = 0;
  double number = 0;
  int line = 1;

  bool IsName(std::string_view name) const { return kind == Kind::kName && text == name; }
  bool IsOperator(std::string_view op) const { return kind == Kind::kOperator && text == op; }
};

// The tokens, the last one kEnd.
// Errors: InvalidArgument with the line.
absl::StatusOr<std::vector<JinjaToken>> LexJinja(std::string_view source);

// "line 3: what"
absl::Status JinjaSyntaxError(int line, std::string_view what);

}  // namespace cairn
