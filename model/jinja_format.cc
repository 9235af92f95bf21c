// Python's two ways of formatting text: "%s" % x and "{}".format(x).
#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/jinja_functions.h"
#include "model/jinja_run.h"
#include "model/unicode.h"

namespace cairn {
namespace {

constexpr int kMaxFormatWidth = 10'000;
constexpr int kMaxFormatPrecision = 100;

// How one value is laid out.
struct Layout {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '=' or none
  char sign = '-';
  bool alternate = false;
  bool thousands = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

absl::Status BadFormat(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("format: ", absl::string_view(what.data(), what.size())));
}

absl::StatusOr<int> TakeNumber(std::string_view& text, int limit) {
  int64_t number = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    number = number * 10 + (text[0] - '0');
    if (number > limit) return BadFormat(absl::StrCat("number is too large: limit=", limit));
    text.remove_prefix(1);
  }
  return static_cast<int>(number);
}

// Digits of a whole number in `type`'s base, without sign.
absl::StatusOr<std::string> IntDigits(JinjaInt value, const Layout& layout) {
  const int base = layout.type == 'x' || layout.type == 'X' ? 16
                   : layout.type == 'o'                     ? 8
                   : layout.type == 'b'                     ? 2
                                                            : 10;
  std::string digits;
  do {
    const int digit = static_cast<int>(value % base);
    const int magnitude = digit < 0 ? -digit : digit;
    digits.push_back("0123456789abcdef"[magnitude]);
    value /= base;
  } while (value != 0);
  if (layout.thousands) {
    std::string grouped;
    for (size_t i = 0; i < digits.size(); ++i) {
      if (i > 0 && i % 3 == 0) grouped.push_back(',');
      grouped.push_back(digits[i]);
    }
    digits = grouped;
  }
  std::reverse(digits.begin(), digits.end());
  if (layout.type == 'X') {
    for (char& c : digits) c = static_cast<char>(std::toupper(static_cast<uint8_t>(c)));
  }
  if (layout.alternate && base != 10) {
    digits.insert(0, base == 16 ? (layout.type == 'X' ? "0X" : "0x") : base == 8 ? "0o" : "0b");
  }
  return digits;
}

// Digits of a float in the notation of `type`, without sign.
std::string FloatDigits(double value, const Layout& layout) {
  value = std::fabs(value);
  const int precision = layout.precision < 0 ? 6 : layout.precision;
  char buffer[512];
  switch (layout.type) {
    case 'f':
    case 'F':
      std::snprintf(buffer, sizeof(buffer), "%.*f", precision, value);
      break;
    case 'e':
      std::snprintf(buffer, sizeof(buffer), "%.*e", precision, value);
      break;
    case 'E':
      std::snprintf(buffer, sizeof(buffer), "%.*E", precision, value);
      break;
    case '%':
      std::snprintf(buffer, sizeof(buffer), "%.*f%%", precision, value * 100);
      break;
    case 'G':
      std::snprintf(buffer, sizeof(buffer), "%.*G", precision, value);
      break;
    case '\0':
      if (layout.precision < 0) return JinjaFloatText(value);
      [[fallthrough]];
    default:
      std::snprintf(buffer, sizeof(buffer), "%.*g", precision, value);
  }
  std::string digits = buffer;
  if (layout.thousands) {
    const size_t whole = std::min(digits.find('.'), digits.size());
    for (size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, ",");
  }
  return digits;
}

JinjaText PadTo(const JinjaText& text, const std::string& sign, const Layout& layout,
                char default_align) {
  const int64_t length = static_cast<int64_t>(CharacterStarts(text.view()).size()) - 1 +
                         static_cast<int64_t>(sign.size());
  const int64_t missing = std::max<int64_t>(layout.width - length, 0);
  const char align = layout.align == '\0' ? default_align : layout.align;
  const int64_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  JinjaText result;
  const auto pad = [&](int64_t times) {
    for (int64_t i = 0; i < times; ++i) result.Append(layout.fill, false);
  };
  pad(before);
  result.Append(sign, false);
  if (align == '=') pad(missing);
  result.Append(text);
  if (align != '=') pad(missing - before);
  return result;
}

absl::StatusOr<JinjaText> LayOutNumber(const JinjaValue& value, const Layout& layout) {
  constexpr std::string_view kIntTypes = "dxXobnc";
  const bool wants_int = kIntTypes.find(layout.type) != kIntTypes.npos;
  std::string digits;
  bool negative = false;
  if (!value.is_float() && (wants_int || layout.type == '\0')) {
    negative = value.as_int() < 0;
    if (layout.type == 'c') {
      const JinjaInt code = value.as_int();
      const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
      if (code < 0 || code > 0x10FFFF || surrogate)
        return BadFormat("character code is out of range");
      AppendUtf8(static_cast<char32_t>(code), digits);
      negative = false;
    } else {
      ASSIGN_OR_RETURN(digits, IntDigits(value.as_int(), layout));
    }
  } else if (wants_int) {
    return BadFormat(absl::StrCat("code '", std::string(1, layout.type), "' wants an integer"));
  } else {
    negative = std::signbit(value.as_float());
    digits = FloatDigits(value.as_float(), layout);
  }
  const std::string sign = negative ? "-" : layout.sign == '-' ? "" : std::string(1, layout.sign);
  return PadTo(JinjaText::Scaffolding(digits), sign, layout, '>');
}

absl::StatusOr<JinjaText> LayOut(const JinjaValue& value, const Layout& layout) {
  constexpr std::string_view kTypes = "sdxXobncfFeEgG%";
  if (layout.type != '\0' && kTypes.find(layout.type) == kTypes.npos) {
    return BadFormat(absl::StrCat("unknown code '", std::string(1, layout.type), "'"));
  }
  const bool as_text = layout.type == 's' || (layout.type == '\0' && !value.is_number());
  if (!as_text && !(layout.type == '\0' && value.is_bool() && layout.width == 0)) {
    if (!value.is_number()) {
      return BadFormat(absl::StrFormat("code '%c' wants a number, not %s", layout.type,
                                       std::string(value.type_name())));
    }
    return LayOutNumber(value, layout);
  }
  JinjaText text = JinjaStr(value);
  if (layout.precision >= 0) {
    const std::vector<size_t> starts = CharacterStarts(text.view());
    const size_t length = starts.size() - 1;
    text = text.Part(0, starts[std::min<size_t>(layout.precision, length)]);
  }
  return PadTo(text, "", layout, '<');
}

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

// What stands behind the colon in "{:*>+10,.2f}".
absl::StatusOr<Layout> ParseLayout(std::string_view spec) {
  Layout layout;
  if (!spec.empty()) {
    const size_t bytes = DecodeCharacter(spec).bytes;
    if (spec.size() > bytes && IsAlign(spec[bytes])) {
      layout.fill = std::string(spec.substr(0, bytes));
      layout.align = spec[bytes];
      spec.remove_prefix(bytes + 1);
    } else if (IsAlign(spec[0])) {
      layout.align = spec[0];
      spec.remove_prefix(1);
    }
  }
  const auto take = [&](char c) {
    const bool there = !spec.empty() && spec[0] == c;
    if (there) spec.remove_prefix(1);
    return there;
  };
  for (const char sign : {'+', '-', ' '}) {
    if (take(sign)) layout.sign = sign;
  }
  layout.alternate = take('#');
  if (take('0') && layout.align == '\0') {
    layout.fill = "0";
    layout.align = '=';
  }
  ASSIGN_OR_RETURN(layout.width, TakeNumber(spec, kMaxFormatWidth));
  layout.thousands = take(',');
  if (take('.')) {
    ASSIGN_OR_RETURN(layout.precision, TakeNumber(spec, kMaxFormatPrecision));
  }
  if (!spec.empty()) {
    layout.type = spec[0];
    spec.remove_prefix(1);
  }
  if (!spec.empty()) return BadFormat("invalid format specifier");
  return layout;
}

// One field of "{...}": which value, as what, laid out how.
class BraceFormatter {
 public:
  BraceFormatter(JinjaRun& run, const JinjaText& format, const JinjaArguments& arguments)
      : run_(run), format_(format), arguments_(arguments) {}

  absl::StatusOr<JinjaText> Run() {
    const std::string_view text = format_.view();
    JinjaText result;
    for (size_t at = 0; at < text.size();) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      result.AppendPart(format_, at, brace);
      at = brace;
      if (at == text.size()) break;
      if (at + 1 < text.size() && text[at + 1] == text[at]) {
        result.AppendPart(format_, at, at + 1);
        at += 2;
        continue;
      }
      const size_t end = text.find('}', at);
      if (text[at] == '}' || end == text.npos) return BadFormat("single brace in format string");
      ASSIGN_OR_RETURN(const JinjaText field, Field(text.substr(at + 1, end - at - 1)));
      result.Append(field);
      if (static_cast<int64_t>(result.size()) > kMaxJinjaTextBytes) {
        return JinjaTooLong(static_cast<int64_t>(result.size()));
      }
      at = end + 1;
    }
    return result;
  }

 private:
  absl::StatusOr<JinjaText> Field(std::string_view field) {
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : "";
    char conversion = '\0';
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    if (spec.find('{') != spec.npos) return BadFormat("nested fields are not supported");
    ASSIGN_OR_RETURN(JinjaValue value, Lookup(name));
    RETURN_IF_ERROR(run_.Charge(value.weight()));
    if (conversion == 'r') value = JinjaValue::Text(JinjaRepr(value));
    if (conversion == 's') value = JinjaValue::Text(JinjaStr(value));
    ASSIGN_OR_RETURN(const Layout layout, ParseLayout(spec));
    return LayOut(value, layout);
  }

  // "", "0", "name", each with ".member" and "[key]" behind it.
  absl::StatusOr<JinjaValue> Lookup(std::string_view name) {
    const size_t head_end = std::min(name.find_first_of(".["), name.size());
    ASSIGN_OR_RETURN(JinjaValue value, Argument(name.substr(0, head_end)));
    for (std::string_view rest = name.substr(head_end); !rest.empty();) {
      const bool item = rest[0] == '[';
      const size_t end = item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (end == rest.npos) return BadFormat("missing ] in format string");
      const std::string_view key = rest.substr(1, end - 1);
      if (item && key.find_first_not_of("0123456789") == key.npos && key.size() < 10) {
        ASSIGN_OR_RETURN(const int index, TakeIndex(key));
        ASSIGN_OR_RETURN(value, run_.Item(value, JinjaValue::Int(index)));
      } else if (item) {
        ASSIGN_OR_RETURN(value, run_.Item(value, JinjaValue::Scaffolding(std::string(key))));
      } else {
        ASSIGN_OR_RETURN(value, run_.Attribute(value, key));
      }
      rest.remove_prefix(end + (item ? 1 : 0));
    }
    return value;
  }

  static absl::StatusOr<int> TakeIndex(std::string_view digits) {
    return TakeNumber(digits, static_cast<int>(kMaxJinjaItems));
  }

  absl::StatusOr<JinjaValue> Argument(std::string_view name) {
    if (name.find_first_not_of("0123456789") == name.npos) {
      size_t index = next_;
      if (name.empty()) {
        ++next_;
      } else {
        ASSIGN_OR_RETURN(index, TakeIndex(name));
      }
      if (index < arguments_.positional.size()) return arguments_.positional[index];
      return BadFormat(absl::StrCat("no positional argument: index=", index));
    }
    for (const auto& [other, value] : arguments_.named) {
      if (other == name) return value;
    }
    return BadFormat(absl::StrCat("no argument named '", std::string(name), "'"));
  }

  JinjaRun& run_;
  const JinjaText& format_;
  const JinjaArguments& arguments_;
  size_t next_ = 0;
};

// The arguments of "..." % x, taken one after another or by name.
struct PercentArguments {
  std::vector<JinjaValue> items;
  const JinjaDict* by_name = nullptr;
  size_t next = 0;

  absl::StatusOr<JinjaValue> Take(const std::string& name, bool named) {
    if (named) {
      const JinjaValue* value = by_name == nullptr ? nullptr : by_name->Find(name);
      if (value == nullptr) return BadFormat(absl::StrCat("no argument named '", name, "'"));
      return *value;
    }
    if (next >= items.size()) return BadFormat("not enough arguments for format string");
    return items[next++];
  }
};

// What stands behind a "%", up to its code; "%" alone is a percent sign.
absl::Status FormatOnePercent(std::string_view& spec, PercentArguments& arguments,
                              JinjaText& result) {
  Layout layout;
  std::string name;
  const bool named = spec.starts_with("(");
  if (named) {
    const size_t end = spec.find(')');
    if (end == spec.npos) return BadFormat("incomplete format key");
    name = std::string(spec.substr(1, end - 1));
    spec.remove_prefix(end + 1);
  }
  for (; !spec.empty() && std::string_view("-+ #0").find(spec[0]) != std::string_view::npos;
       spec.remove_prefix(1)) {
    if (spec[0] == '-') layout.align = '<';
    if (spec[0] == '+' || (spec[0] == ' ' && layout.sign == '-')) layout.sign = spec[0];
    if (spec[0] == '#') layout.alternate = true;
    if (spec[0] == '0' && layout.align == '\0') {
      layout.fill = "0";
      layout.align = '=';
    }
  }
  ASSIGN_OR_RETURN(layout.width, TakeNumber(spec, kMaxFormatWidth));
  if (spec.starts_with(".")) {
    spec.remove_prefix(1);
    ASSIGN_OR_RETURN(layout.precision, TakeNumber(spec, kMaxFormatPrecision));
  }
  if (spec.empty()) return BadFormat("incomplete format");
  layout.type = spec[0];
  spec.remove_prefix(1);
  if (layout.type == '%') {
    result.Append("%", false);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(JinjaValue value, arguments.Take(name, named));
  if (layout.type == 'r') value = JinjaValue::Text(JinjaRepr(value));
  if (layout.type == 'r') layout.type = 's';
  if (layout.type == 'i' || layout.type == 'u') layout.type = 'd';
  if (layout.type == 's' && layout.align == '=') layout.align = '>';
  if (layout.type == 's' && layout.align == '\0') layout.align = '>';
  if (layout.type == 'd' && value.is_float()) {
    if (std::fabs(value.as_float()) > 1e30) return BadFormat("number is too large");
    value = JinjaValue::Int(static_cast<JinjaInt>(value.as_float()));
  }
  ASSIGN_OR_RETURN(const JinjaText text, LayOut(value, layout));
  result.Append(text);
  const int64_t bytes = static_cast<int64_t>(result.size());
  return bytes > kMaxJinjaTextBytes ? JinjaTooLong(bytes) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<JinjaValue> FormatBraces(JinjaRun& run, const JinjaText& format,
                                        const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(JinjaText text, BraceFormatter(run, format, arguments).Run());
  return JinjaValue::Text(std::move(text));
}

absl::StatusOr<JinjaText> FormatPercent(const JinjaText& format, const JinjaValue& value) {
  PercentArguments arguments;
  if (value.is_list() && value.list().is_tuple()) {
    arguments.items = value.list().items;
  } else {
    arguments.items = {value};
    if (value.is_dict()) arguments.by_name = &value.dict();
  }
  JinjaText result;
  for (size_t at = 0; at < format.size();) {
    const size_t percent = std::min(format.bytes().find('%', at), format.size());
    result.AppendPart(format, at, percent);
    if (percent == format.size()) break;
    std::string_view spec = format.view().substr(percent + 1);
    RETURN_IF_ERROR(FormatOnePercent(spec, arguments, result));
    at = format.size() - spec.size();
  }
  if (arguments.by_name == nullptr && arguments.next < arguments.items.size()) {
    return BadFormat("not all arguments converted during string formatting");
  }
  return result;
}

}  // namespace cairn
