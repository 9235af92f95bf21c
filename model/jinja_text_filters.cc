// Filters that make text of a value, and numbers of text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/jinja_filters.h"
#include "model/jinja_run.h"
#include "model/unicode.h"

namespace cairn {
namespace {

using Value = absl::StatusOr<JinjaValue>;

JinjaValue MakeText(JinjaText text) { return JinjaValue::Text(std::move(text)); }

Value ToText(JinjaRun& run, const JinjaValue& self, const JinjaBound&) {
  if (self.is_text()) return self;
  RETURN_IF_ERROR(run.Charge(8 * self.weight()));
  return MakeText(JinjaStr(self));
}

Value Upper(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return MakeText(UpperText(JinjaStr(self)));
}

Value Lower(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return MakeText(LowerText(JinjaStr(self)));
}

Value Capitalize(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return MakeText(MapCase(JinjaStr(self), ToTitle, ToLower));
}

// Words begin after white space and any of "-({[<".
Value Title(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  const JinjaText text = JinjaStr(self);
  JinjaText result;
  bool begins = true;
  for (size_t at = 0; at < text.size();) {
    const DecodedCharacter c = DecodeCharacter(text.view().substr(at));
    const char32_t code = c.code_point;
    const bool between = IsSpaceCharacter(code) || code == '-' || code == '(' || code == '{' ||
                         code == '[' || code == '<';
    std::string bytes;
    AppendUtf8(begins ? ToUpper(code) : ToLower(code), bytes);
    result.Append(bytes, text.IsContentAt(at));
    begins = between;
    at += c.bytes;
  }
  return MakeText(std::move(result));
}

Value Trim(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const JinjaText characters, arguments.Text(0, ""));
  return MakeText(TrimText(JinjaStr(self), characters.view(), true, true));
}

Value Replace(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t count, arguments.Int(2, -1));
  ASSIGN_OR_RETURN(JinjaText result, ReplaceText(JinjaStr(self), JinjaStr(arguments[0]).view(),
                                                 JinjaStr(arguments[1]), count));
  return MakeText(std::move(result));
}

Value Indent(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  constexpr int64_t kMaxIndent = 1000;
  JinjaText indent;
  if (arguments.has(0) && arguments[0].is_text()) {
    indent = arguments[0].text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, arguments.Int(0, 4));
    if (width > kMaxIndent) {
      return absl::InvalidArgumentError(
          absl::StrCat("indent: width is too large: limit=", kMaxIndent));
    }
    indent = JinjaText::Scaffolding(std::string(std::max<int64_t>(width, 0), ' '));
  }
  if (!self.is_text()) return absl::InvalidArgumentError("indent wants a str");
  const bool first = arguments.Flag(1, false);
  const bool blank = arguments.Flag(2, false);
  JinjaText text = self.text();
  text.Append("\n", false);  // Python's quirk: a last empty line counts.
  const std::vector<JinjaText> lines = SplitTextLines(text, false);
  RETURN_IF_ERROR(run.Charge(static_cast<int64_t>(lines.size())));
  JinjaText result;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.Append("\n", false);
    if (i == 0 ? first : blank || !lines[i].empty()) result.Append(indent);
    result.Append(lines[i]);
    const int64_t bytes = static_cast<int64_t>(result.size());
    if (bytes > kMaxJinjaTextBytes) return JinjaTooLong(bytes);
  }
  return MakeText(std::move(result));
}

Value ToJson(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  RETURN_IF_ERROR(run.Charge(8 * self.weight()));
  ASSIGN_OR_RETURN(JinjaText text, JinjaToJson(self, arguments));
  return MakeText(std::move(text));
}

Value Escape(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  static constexpr std::pair<char, std::string_view> kEntities[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
  const JinjaText text = JinjaStr(self);
  JinjaText result;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto entity =
        std::find_if(std::begin(kEntities), std::end(kEntities),
                     [&](const auto& candidate) { return candidate.first == text.view()[at]; });
    if (entity == std::end(kEntities)) {
      result.AppendPart(text, at, at + 1);
    } else {
      result.Append(entity->second, text.IsContentAt(at));
    }
  }
  return MakeText(std::move(result));
}

Value Center(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  JinjaArguments width;
  width.positional.push_back(arguments.has(0) ? arguments[0] : JinjaValue::Int(80));
  return run.Apply(*FindTextMethod("center"), MakeText(JinjaStr(self)), std::move(width));
}

Value Format(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  JinjaValue values;
  if (!arguments.rest.named.empty()) {
    if (!arguments.rest.positional.empty()) {
      return absl::InvalidArgumentError(
          "can't handle positional and keyword arguments at the same time");
    }
    std::vector<std::pair<JinjaValue, JinjaValue>> items;
    for (const auto& [name, value] : arguments.rest.named) {
      items.emplace_back(JinjaValue::Scaffolding(name), value);
    }
    ASSIGN_OR_RETURN(values, JinjaValue::Dict(std::move(items)));
  } else {
    ASSIGN_OR_RETURN(values, JinjaValue::Tuple(arguments.rest.positional));
  }
  ASSIGN_OR_RETURN(JinjaText text, FormatPercent(JinjaStr(self), values));
  return MakeText(std::move(text));
}

Value Truncate(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t length, arguments.Int(0, 255));
  ASSIGN_OR_RETURN(const JinjaText end, arguments.Text(2, "..."));
  ASSIGN_OR_RETURN(const int64_t leeway, arguments.Int(3, 5));
  const JinjaText text = JinjaStr(self);
  const std::vector<size_t> starts = CharacterStarts(text.view());
  const int64_t characters = static_cast<int64_t>(starts.size()) - 1;
  const int64_t end_characters = static_cast<int64_t>(CharacterStarts(end.view()).size()) - 1;
  if (length < end_characters || leeway < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("truncate: length is too small: length=", length));
  }
  if (characters <= length || characters - length <= leeway) return MakeText(text);
  JinjaText result = text.Part(0, starts[length - end_characters]);
  if (!arguments.Flag(1, false)) {
    const size_t space = result.bytes().rfind(' ');
    if (space != std::string::npos) result = result.Part(0, space);
  }
  result.Append(end);
  return MakeText(std::move(result));
}

Value WordCount(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  const JinjaText text = JinjaStr(self);
  int64_t words = 0;
  bool inside = false;
  for (std::string_view rest = text.view(); !rest.empty();) {
    const DecodedCharacter c = DecodeCharacter(rest);
    const bool is_word = IsLetter(c.code_point) || IsNumeric(c.code_point) || c.code_point == '_';
    if (is_word && !inside) ++words;
    inside = is_word;
    rest.remove_prefix(c.bytes);
  }
  return JinjaValue::Int(words);
}

Value UrlEncode(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  if (self.is_dict() || self.is_list()) {
    return absl::UnimplementedError("urlencode of a mapping or list is not supported");
  }
  const JinjaText text = JinjaStr(self);
  JinjaText result;
  for (size_t at = 0; at < text.size(); ++at) {
    const uint8_t c = static_cast<uint8_t>(text.view()[at]);
    const bool plain = std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '~' || c == '/';
    if (plain) {
      result.AppendPart(text, at, at + 1);
    } else {
      result.Append(absl::StrFormat("%%%02X", c), text.IsContentAt(at));
    }
  }
  return MakeText(std::move(result));
}

// The number that all of the text is, white space around it aside.
std::optional<double> ParseFloat(std::string_view text) {
  const JinjaText trimmed = TrimText(JinjaText::Scaffolding(std::string(text)), "", true, true);
  std::string digits = trimmed.bytes();
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  if (digits.empty() || digits.find_first_of("xXpP") != digits.npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return value;
}

std::optional<JinjaInt> ParseInt(std::string_view text, int64_t base) {
  const JinjaText trimmed = TrimText(JinjaText::Scaffolding(std::string(text)), "", true, true);
  std::string_view rest = trimmed.view();
  const bool negative = rest.starts_with("-");
  if (negative || rest.starts_with("+")) rest.remove_prefix(1);
  const auto prefix = [&](std::string_view lower, std::string_view upper, int64_t of_base) {
    if (base != of_base && base != 0) return;
    if (!rest.starts_with(lower) && !rest.starts_with(upper)) return;
    rest.remove_prefix(2);
    base = of_base;
  };
  prefix("0x", "0X", 16);
  prefix("0o", "0O", 8);
  prefix("0b", "0B", 2);
  if (base == 0) base = 10;
  if (rest.empty() || base < 2 || base > 36) return std::nullopt;
  JinjaInt value = 0;
  for (const char c : rest) {
    if (c == '_') continue;
    const int lower = std::tolower(static_cast<uint8_t>(c));
    const int digit = c >= '0' && c <= '9'           ? c - '0'
                      : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10
                                                     : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<JinjaInt>(base), &value) ||
        __builtin_add_overflow(value, static_cast<JinjaInt>(digit), &value)) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

std::optional<JinjaInt> WholePart(double value) {
  if (!std::isfinite(value) || std::fabs(value) > 1e38) return std::nullopt;
  return static_cast<JinjaInt>(value);
}

Value ToInt(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t base, arguments.Int(1, 10));
  const JinjaValue when_wrong = arguments.has(0) ? arguments[0] : JinjaValue::Int(0);
  if (self.is_int() || self.is_bool()) return JinjaValue::Int(self.as_int());
  std::optional<JinjaInt> value;
  if (self.is_float()) value = WholePart(self.as_float());
  if (self.is_text()) {
    value = ParseInt(self.text().view(), base);
    const std::optional<double> number = ParseFloat(self.text().view());
    if (!value.has_value() && number.has_value()) value = WholePart(*number);
  }
  return value.has_value() ? JinjaValue::Int(*value) : when_wrong;
}

Value ToFloat(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  if (self.is_number()) return JinjaValue::Float(self.as_float());
  const std::optional<double> value =
      self.is_text() ? ParseFloat(self.text().view()) : std::nullopt;
  if (value.has_value()) return JinjaValue::Float(*value);
  return arguments.has(0) ? arguments[0] : JinjaValue::Float(0);
}

Value Abs(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  if (!self.is_number()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("bad operand type for abs(): '%s'", std::string(self.type_name())));
  }
  if (self.is_float()) return JinjaValue::Float(std::fabs(self.as_float()));
  if (self.as_int() >= 0) return JinjaValue::Int(self.as_int());
  return JinjaUnary(JinjaOperator::kNegate, self);
}

Value Round(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  constexpr int64_t kMaxPrecision = 30;
  ASSIGN_OR_RETURN(const int64_t precision, arguments.Int(0, 0));
  ASSIGN_OR_RETURN(const JinjaText method, arguments.Text(1, "common"));
  if (!self.is_number()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("type %s cannot be rounded", std::string(self.type_name())));
  }
  if (std::abs(precision) > kMaxPrecision) {
    return absl::InvalidArgumentError(
        absl::StrCat("round: precision is out of range: limit=", kMaxPrecision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method.bytes() == "ceil")
    return JinjaValue::Float(std::ceil(self.as_float() * scale) / scale);
  if (method.bytes() == "floor") {
    return JinjaValue::Float(std::floor(self.as_float() * scale) / scale);
  }
  if (method.bytes() != "common") {
    return absl::InvalidArgumentError("method must be common, ceil or floor");
  }
  if (!self.is_float() && precision >= 0) return JinjaValue::Int(self.as_int());
  if (precision < 0) {
    const double rounded = std::nearbyint(self.as_float() * scale) / scale;
    if (self.is_float()) return JinjaValue::Float(rounded);
    return JinjaValue::Int(static_cast<JinjaInt>(rounded));
  }
  // printf rounds the exact binary value, as Python does.
  char buffer[512];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), self.as_float());
  return JinjaValue::Float(std::strtod(buffer, nullptr));
}

constexpr JinjaFunction kFilters[] = {
    {"abs", "", 0, Abs},
    {"capitalize", "", 0, Capitalize},
    {"center", "width", 0, Center},
    {"e", "", 0, Escape},
    {"escape", "", 0, Escape},
    {"float", "default", 0, ToFloat},
    {"forceescape", "", 0, Escape},
    {"format", "*", 0, Format},
    {"indent", "width first blank", 0, Indent},
    {"int", "default base", 0, ToInt},
    {"lower", "", 0, Lower},
    {"replace", "old new count", 2, Replace},
    {"round", "precision method", 0, Round},
    {"safe", "", 0, ToText},
    {"string", "", 0, ToText},
    {"title", "", 0, Title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, ToJson},
    {"trim", "chars", 0, Trim},
    {"truncate", "length killwords end leeway", 0, Truncate},
    {"upper", "", 0, Upper},
    {"urlencode", "", 0, UrlEncode},
    {"wordcount", "", 0, WordCount},
};

}  // namespace

std::span<const JinjaFunction> JinjaTextFilters() { return kFilters; }

}  // namespace cairn
