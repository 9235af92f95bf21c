#include "model/jinja_lexer.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/unicode.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using Kind = JinjaToken::Kind;

// Longest first, so that the first that fits is the right one.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// \r\n and \r become \n; one newline at the very end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result.push_back(source[i]);
      continue;
    }
    result.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

bool IsSpaceAt(std::string_view text, size_t at) {
  return IsSpaceCharacter(DecodeCharacter(text.substr(at)).code_point);
}

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size() && IsSpaceAt(text, at)) at += DecodeCharacter(text.substr(at)).bytes;
  return at;
}

// `text` without the white space at its end.
std::string_view TrimEnd(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    if (!IsSpaceAt(text, last)) break;
    text = text.substr(0, last);
  }
  return text;
}

bool IsNameCharacter(char32_t c, bool first) {
  if (c == '_' || IsLetter(c)) return true;
  return !first && IsNumeric(c);
}

bool IsDecimal(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<JinjaToken>> Run() {
    while (at_ < source_.size()) {
      const size_t tag = FindTag();
      if (tag == std::string::npos) {
        AddData(Rest());
        break;
      }
      RETURN_IF_ERROR(LexTag(tag));
    }
    Add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(at_); }
  bool Looking(std::string_view text) const { return Rest().starts_with(text); }

  JinjaToken& Add(Kind kind, std::string_view text) {
    JinjaToken token;
    token.kind = kind;
    token.text = std::string(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  void AddData(std::string_view text) {
    if (!text.empty()) Add(Kind::kData, text);
  }

  void Advance(size_t bytes) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + bytes, '\n'));
    at_ += bytes;
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  size_t FindTag() const {
    for (size_t at = source_.find('{', at_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string::npos;
  }

  // The text before a tag as the tag's sign leaves it; `strips` says whether a tag of this kind
  // takes the white space before it on its own line.
  std::string_view BeforeTag(std::string_view text, char sign, bool strips) const {
    if (sign == '-') return TrimEnd(text);
    if (sign == '+' || !strips) return text;
    const size_t newline = text.rfind('\n');
    if (newline == text.npos && !line_starting_) return text;
    const size_t line = newline == text.npos ? 0 : newline + 1;
    return SkipSpace(text, line) == text.size() ? text.substr(0, line) : text;
  }

  absl::Status LexTag(size_t tag) {
    const char kind = source_[tag + 1];
    const char next = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    const std::string_view before = std::string_view(source_).substr(at_, tag - at_);
    AddData(BeforeTag(before, sign, kind != '{'));
    Advance(tag - at_ + 2 + (sign != '\0' ? 1 : 0));
    if (kind == '#') return SkipComment();
    if (kind == '%') {
      const size_t raw = SkipSpace(source_, at_);
      if (std::string_view(source_).substr(raw).starts_with("raw")) {
        const size_t end = SkipSpace(source_, raw + 3);
        const std::string_view rest = std::string_view(source_).substr(end);
        if (rest.starts_with("%}") || rest.starts_with("-%}")) return LexRaw(end);
      }
    }
    Add(kind == '{' ? Kind::kOutputBegin : Kind::kBlockBegin, "");
    return LexExpression(kind == '{');
  }

  // Passes over the end of a block or comment, with what it takes along. `end` is "%}" or "#}".
  bool TakeBlockEnd(std::string_view end) {
    const bool minus = Looking("-") && Rest().substr(1).starts_with(end);
    const bool plus = Looking("+") && Rest().substr(1).starts_with(end);
    if (!minus && !plus && !Looking(end)) return false;
    size_t past = at_ + end.size() + (minus || plus ? 1 : 0);
    if (minus) {
      past = SkipSpace(source_, past);
    } else if (!plus && past < source_.size() && source_[past] == '\n') {
      ++past;
    }
    Advance(past - at_);
    return true;
  }

  absl::Status SkipComment() {
    const int line = line_;
    while (at_ < source_.size()) {
      if (TakeBlockEnd("#}")) return absl::OkStatus();
      Advance(1);
    }
    return JinjaSyntaxError(line, "missing end of comment tag");
  }

  // {% raw %}: text up to {% endraw %}. `begin_end` is where the first tag's end stands.
  absl::Status LexRaw(size_t begin_end) {
    const int line = line_;
    const bool minus = source_[begin_end] == '-';
    const size_t past = begin_end + (minus ? 3 : 2);
    Advance((minus ? SkipSpace(source_, past) : past) - at_);
    const size_t start = at_;
    for (size_t tag = source_.find("{%", start); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      size_t at = tag + 2;
      const char sign =
          at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
      at = SkipSpace(source_, at + (sign != '\0' ? 1 : 0));
      if (!std::string_view(source_).substr(at).starts_with("endraw")) continue;
      at = SkipSpace(source_, at + 6);
      const std::string_view text = std::string_view(source_).substr(start, tag - start);
      const std::string data(BeforeTag(text, sign, true));
      Advance(at - at_);
      if (!TakeBlockEnd("%}")) return JinjaSyntaxError(line_, "missing end of endraw tag");
      AddData(data);
      return absl::OkStatus();
    }
    return JinjaSyntaxError(line, "missing end of raw directive");
  }

  bool TakeExpressionEnd(bool output) {
    if (!output) {
      const int line = line_;
      if (!TakeBlockEnd("%}")) return false;
      Add(Kind::kBlockEnd, "").line = line;
      return true;
    }
    const bool minus = Looking("-}}");
    if (!minus && !Looking("}}")) return false;
    const int line = line_;
    const size_t past = at_ + (minus ? 3 : 2);
    Advance((minus ? SkipSpace(source_, past) : past) - at_);
    Add(Kind::kOutputEnd, "").line = line;
    return true;
  }

  absl::Status LexExpression(bool output) {
    std::string open;  // brackets not yet closed
    while (at_ < source_.size()) {
      if (open.empty() && TakeExpressionEnd(output)) return absl::OkStatus();
      const DecodedCharacter c = DecodeCharacter(Rest());
      if (IsSpaceCharacter(c.code_point)) {
        Advance(c.bytes);
      } else if (IsDecimal(source_[at_])) {
        RETURN_IF_ERROR(LexNumber());
      } else if (IsNameCharacter(c.code_point, true)) {
        LexName();
      } else if (source_[at_] == '\'' || source_[at_] == '"') {
        RETURN_IF_ERROR(LexString());
      } else {
        RETURN_IF_ERROR(LexOperator(open));
      }
    }
    return JinjaSyntaxError(line_, "unexpected end of template inside a tag");
  }

  void LexName() {
    size_t end = at_;
    while (end < source_.size()) {
      const DecodedCharacter c = DecodeCharacter(std::string_view(source_).substr(end));
      if (!IsNameCharacter(c.code_point, end == at_)) break;
      end += c.bytes;
    }
    Add(Kind::kName, Rest().substr(0, end - at_));
    Advance(end - at_);
  }

  absl::Status LexOperator(std::string& open) {
    for (const std::string_view op : kOperators) {
      if (!Looking(op)) continue;
      if (op == "(" || op == "[" || op == "{")
        open.push_back(op[0] == '(' ? ')' : op[0] == '[' ? ']' : '}');
      if (op == ")" || op == "]" || op == "}") {
        if (open.empty() || open.back() != op[0]) {
          return JinjaSyntaxError(line_, absl::StrCat("unexpected '", std::string(op), "'"));
        }
        open.pop_back();
      }
      Add(Kind::kOperator, op);
      Advance(op.size());
      return absl::OkStatus();
    }
    const size_t bytes = DecodeCharacter(Rest()).bytes;
    return JinjaSyntaxError(
        line_, absl::StrCat("unexpected character '", Printable(Rest().substr(0, bytes)), "'"));
  }

  // End of a run of digits that single underscores may divide.
  static size_t EndOfDigits(std::string_view text, size_t at) {
    while (at < text.size() && (IsDecimal(text[at]) || (text[at] == '_' && at + 1 < text.size() &&
                                                        IsDecimal(text[at + 1])))) {
      ++at;
    }
    return at;
  }

  absl::Status LexNumber() {
    const std::string_view rest = Rest();
    if (rest.size() > 2 && rest[0] == '0' &&
        std::string_view("xXoObB").find(rest[1]) != std::string_view::npos) {
      return LexPrefixedInteger();
    }
    size_t end = EndOfDigits(rest, 0);
    bool is_float = false;
    // "msg.0.x" and "1.x" are attribute access: a fraction needs a digit, and no dot before.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && end + 1 < rest.size() && rest[end] == '.' && IsDecimal(rest[end + 1])) {
      is_float = true;
      end = EndOfDigits(rest, end + 1);
    }
    if (!after_dot && end < rest.size() && (rest[end] == 'e' || rest[end] == 'E')) {
      size_t digits = end + 1;
      if (digits < rest.size() && (rest[digits] == '+' || rest[digits] == '-')) ++digits;
      if (digits < rest.size() && IsDecimal(rest[digits])) {
        is_float = true;
        end = EndOfDigits(rest, digits);
      }
    }
    std::string digits(rest.substr(0, end));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    if (is_float) {
      Add(Kind::kFloat, digits).number = std::strtod(digits.c_str(), nullptr);
      Advance(end);
      return absl::OkStatus();
    }
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != digits.npos) {
      return JinjaSyntaxError(line_, "a number may not begin with 0");
    }
    return AddInteger(digits, 10, end);
  }

  absl::Status LexPrefixedInteger() {
    const std::string_view rest = Rest();
    const int base = (rest[1] | 0x20) == 'x' ? 16 : (rest[1] | 0x20) == 'o' ? 8 : 2;
    size_t end = 2;
    std::string digits;
    for (;
         end < rest.size() && (std::isxdigit(static_cast<uint8_t>(rest[end])) || rest[end] == '_');
         ++end) {
      if (rest[end] != '_') digits.push_back(rest[end]);
    }
    return AddInteger(digits, base, end);
  }

  absl::Status AddInteger(std::string_view digits, int base, size_t bytes) {
    JinjaInt value = 0;
    for (const char c : digits) {
      const int digit = IsDecimal(c) ? c - '0' : (c | 0x20) - 'a' + 10;
      if (digit >= base) return JinjaSyntaxError(line_, "not a digit of this base");
      if (__builtin_mul_overflow(value, static_cast<JinjaInt>(base), &value) ||
          __builtin_add_overflow(value, static_cast<JinjaInt>(digit), &value)) {
        return JinjaSyntaxError(line_, "integer is too large");
      }
    }
    if (digits.empty()) return JinjaSyntaxError(line_, "a number has no digits");
    Add(Kind::kInteger, digits).integer = value;
    Advance(bytes);
    return absl::OkStatus();
  }

  absl::Status LexString() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return JinjaSyntaxError(line_, "a string has no end");
    const std::string_view body = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    std::string text;
    for (size_t i = 0; i < body.size();) {
      if (body[i] != '\\') {
        text.push_back(body[i++]);
      } else {
        RETURN_IF_ERROR(LexEscape(body, i, text));
      }
    }
    Add(Kind::kString, text);
    Advance(end + 1 - at_);
    return absl::OkStatus();
  }

  // One escape of a Python string; `at` is at its backslash and moves past it.
  absl::Status LexEscape(std::string_view body, size_t& at, std::string& out) {
    static constexpr std::pair<char, char> kSimple[] = {
        {'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'}, {'\'', '\''},
        {'"', '"'},  {'a', '\a'}, {'b', '\b'}, {'f', '\f'},  {'v', '\v'}};
    const char kind = body[at + 1];
    at += 2;
    for (const auto& [escape, character] : kSimple) {
      if (kind == escape) {
        out.push_back(character);
        return absl::OkStatus();
      }
    }
    if (kind == '\n') return absl::OkStatus();
    size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    int base = 16;
    if (kind >= '0' && kind <= '7') {
      base = 8;
      --at;
      digits = 1;
      while (digits < 3 && at + digits < body.size() && body[at + digits] >= '0' &&
             body[at + digits] <= '7')
        ++digits;
    } else if (kind == 'N') {
      return JinjaSyntaxError(line_, "escape \\N is not supported");
    } else if (digits == 0) {  // Python leaves unknown escapes as they are.
      out.push_back('\\');
      --at;
      return absl::OkStatus();
    }
    const std::string number(body.substr(at, digits));
    char* end = nullptr;
    const unsigned long code = std::strtoul(number.c_str(), &end, base);
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (number.size() != digits || *end != '\0' || code > 0x10FFFF || surrogate) {
      return JinjaSyntaxError(line_, "not a character: escape in a string");
    }
    AppendUtf8(static_cast<char32_t>(code), out);
    at += digits;
    return absl::OkStatus();
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

absl::Status JinjaSyntaxError(int line, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", line, ": ", absl::string_view(what.data(), what.size())));
}

absl::StatusOr<std::vector<JinjaToken>> LexJinja(std::string_view source) {
  if (static_cast<int64_t>(source.size()) > kMaxTemplateBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("template is too long: bytes=", source.size(), " limit=", kMaxTemplateBytes));
  }
  if (!IsValidUtf8(source)) return absl::InvalidArgumentError("template is not UTF-8");
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace cairn
