// Filters, tests, methods and global functions of templates, by name.
//
// Each is one row of a table: its parameters as Python names them, and a function. Arguments are
// bound to the parameters here, once for all of them.
// Thread: any.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/jinja_value.h"

namespace cairn {

class JinjaRun;

struct JinjaArguments {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

// The arguments of one call by the place of their parameter.
struct JinjaBound {
  std::vector<std::optional<JinjaValue>> values;
  JinjaArguments rest;  // of a function that takes any

  bool has(size_t i) const { return i < values.size() && values[i].has_value(); }
  const JinjaValue& operator[](size_t i) const { return *values[i]; }
  // The argument, or `when_missing`. Errors: InvalidArgument if it is of another type.
  absl::StatusOr<int64_t> Int(size_t i, int64_t when_missing) const;
  absl::StatusOr<JinjaText> Text(size_t i, std::string_view when_missing) const;
  bool Flag(size_t i, bool when_missing) const;
};

struct JinjaFunction {
  using Call = absl::StatusOr<JinjaValue> (*)(JinjaRun& run, const JinjaValue& self,
                                              const JinjaBound& arguments);
  std::string_view name;
  std::string_view parameters;  // "width first blank"; a last "*" takes any further ones
  int required;                 // so many of them must be given
  Call call;
};

// The row named `name`; nullptr if there is none.
inline const JinjaFunction* FindFunction(std::span<const JinjaFunction> table,
                                         std::string_view name) {
  for (const JinjaFunction& function : table) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

// nullptr if there is none.
const JinjaFunction* FindJinjaFilter(std::string_view name);
const JinjaFunction* FindJinjaTest(std::string_view name);
const JinjaFunction* FindJinjaGlobal(std::string_view name);
const JinjaFunction* FindTextMethod(std::string_view name);
const JinjaFunction* FindListMethod(std::string_view name);
const JinjaFunction* FindDictMethod(std::string_view name);
const JinjaFunction* FindLoopMethod(std::string_view name);
const JinjaFunction* FindCyclerMethod(std::string_view name);

// Errors: InvalidArgument names the function and the argument that is missing or too much.
absl::StatusOr<JinjaBound> BindJinjaArguments(const JinjaFunction& function,
                                              JinjaArguments arguments);

// Pieces of several files.
// "{} {name!r:>8}" with the arguments. Errors: InvalidArgument; Unimplemented names the format.
absl::StatusOr<JinjaValue> FormatBraces(JinjaRun& run, const JinjaText& format,
                                        const JinjaArguments& arguments);
// "%s %5.2f" with a tuple, a dict or one value. Errors: as above.
absl::StatusOr<JinjaText> FormatPercent(const JinjaText& format, const JinjaValue& arguments);
absl::StatusOr<JinjaText> JinjaToJson(const JinjaValue& value, const JinjaBound& options);
JinjaText TrimText(const JinjaText& text, std::string_view characters, bool left, bool right);
JinjaText MapCase(const JinjaText& text, char32_t (*first)(char32_t), char32_t (*others)(char32_t));
// Whether the text has letters with case, all of the wanted one.
bool HasOnlyCase(std::string_view text, bool (*wanted)(char32_t));
JinjaText UpperText(const JinjaText& text);
JinjaText LowerText(const JinjaText& text);
absl::StatusOr<JinjaText> ReplaceText(const JinjaText& text, std::string_view old,
                                      const JinjaText& with, int64_t count);
// Lines without their ends, as str.splitlines cuts them.
std::vector<JinjaText> SplitTextLines(const JinjaText& text, bool keep_ends);
// Start of each character, and the end of the last.
std::vector<size_t> CharacterStarts(std::string_view text);

absl::Status JinjaTooLong(int64_t bytes);

}  // namespace cairn
