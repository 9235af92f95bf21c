// The methods of str.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/jinja_functions.h"
#include "model/jinja_run.h"
#include "model/unicode.h"

namespace cairn {
namespace {

using Value = absl::StatusOr<JinjaValue>;

JinjaValue MakeText(JinjaText text) { return JinjaValue::Text(std::move(text)); }

Value MakeList(std::vector<JinjaText> parts) {
  std::vector<JinjaValue> items;
  for (JinjaText& part : parts) items.push_back(MakeText(std::move(part)));
  return JinjaValue::List(std::move(items));
}

Value Upper(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return MakeText(UpperText(self.text()));
}

Value Lower(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return MakeText(LowerText(self.text()));
}

Value Capitalize(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return MakeText(MapCase(self.text(), ToTitle, ToLower));
}

Value SwapCase(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  const auto swap = [](char32_t c) { return IsUpper(c) ? ToLower(c) : ToUpper(c); };
  return MakeText(MapCase(self.text(), swap, swap));
}

Value Title(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  const JinjaText& text = self.text();
  JinjaText result;
  bool inside_word = false;
  for (size_t at = 0; at < text.size();) {
    const DecodedCharacter c = DecodeCharacter(text.view().substr(at));
    std::string bytes;
    AppendUtf8(inside_word ? ToLower(c.code_point) : ToTitle(c.code_point), bytes);
    result.Append(bytes, text.IsContentAt(at));
    inside_word = IsCased(c.code_point);
    at += c.bytes;
  }
  return MakeText(std::move(result));
}

Value TrimEnds(const JinjaValue& self, const JinjaBound& arguments, bool left, bool right) {
  ASSIGN_OR_RETURN(const JinjaText characters, arguments.Text(0, ""));
  if (arguments.has(0) && arguments[0].is_text() && characters.empty()) return self;
  return MakeText(TrimText(self.text(), characters.view(), left, right));
}

Value Strip(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  return TrimEnds(self, arguments, true, true);
}

Value StripLeft(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  return TrimEnds(self, arguments, true, false);
}

Value StripRight(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  return TrimEnds(self, arguments, false, true);
}

Value Replace(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const JinjaText old, arguments.Text(0, ""));
  ASSIGN_OR_RETURN(const JinjaText with, arguments.Text(1, ""));
  ASSIGN_OR_RETURN(const int64_t count, arguments.Int(2, -1));
  ASSIGN_OR_RETURN(JinjaText result, ReplaceText(self.text(), old.view(), with, count));
  return MakeText(std::move(result));
}

// Words between white space, at most `count` cuts from the left; from the right if `reverse`.
std::vector<JinjaText> SplitWords(const JinjaText& text, int64_t count, bool reverse) {
  const std::vector<size_t> starts = CharacterStarts(text.view());
  const auto is_space = [&](size_t i) {
    return IsSpaceCharacter(DecodeCharacter(text.view().substr(starts[i])).code_point);
  };
  const size_t length = starts.size() - 1;
  std::vector<JinjaText> words;
  if (!reverse) {
    for (size_t at = 0; at < length;) {
      while (at < length && is_space(at)) ++at;
      if (at == length) break;
      size_t end = at;
      if (count-- == 0) {
        words.push_back(text.Part(starts[at], text.size()));
        break;
      }
      while (end < length && !is_space(end)) ++end;
      words.push_back(text.Part(starts[at], starts[end]));
      at = end;
    }
    return words;
  }
  for (size_t at = length; at > 0;) {
    while (at > 0 && is_space(at - 1)) --at;
    if (at == 0) break;
    size_t begin = at;
    if (count-- == 0) {
      words.push_back(text.Part(0, starts[at]));
      break;
    }
    while (begin > 0 && !is_space(begin - 1)) --begin;
    words.push_back(text.Part(starts[begin], starts[at]));
    at = begin;
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::vector<JinjaText> SplitAt(const JinjaText& text, std::string_view separator, int64_t count,
                               bool reverse) {
  std::vector<JinjaText> parts;
  if (!reverse) {
    size_t begin = 0;
    for (; count != 0; --count) {
      const size_t found = text.view().find(separator, begin);
      if (found == std::string_view::npos) break;
      parts.push_back(text.Part(begin, found));
      begin = found + separator.size();
    }
    parts.push_back(text.Part(begin, text.size()));
    return parts;
  }
  size_t end = text.size();
  for (; count != 0 && end >= separator.size(); --count) {
    const size_t found = text.view().rfind(separator, end - separator.size());
    if (found == std::string_view::npos) break;
    parts.push_back(text.Part(found + separator.size(), end));
    end = found;
  }
  parts.push_back(text.Part(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value SplitText(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments, bool reverse) {
  ASSIGN_OR_RETURN(const int64_t count, arguments.Int(1, -1));
  // Each part costs far more than its bytes.
  RETURN_IF_ERROR(run.Charge(self.weight()));
  std::vector<JinjaText> parts;
  if (!arguments.has(0) || arguments[0].is_none()) {
    parts = SplitWords(self.text(), count, reverse);
  } else {
    ASSIGN_OR_RETURN(const JinjaText separator, arguments.Text(0, ""));
    if (separator.empty()) return absl::InvalidArgumentError("empty separator");
    parts = SplitAt(self.text(), separator.view(), count, reverse);
  }
  RETURN_IF_ERROR(run.Charge(static_cast<int64_t>(parts.size()) * 4));
  return MakeList(std::move(parts));
}

Value Split(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return SplitText(run, self, arguments, false);
}

Value SplitReverse(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return SplitText(run, self, arguments, true);
}

Value SplitLines(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  std::vector<JinjaText> lines = SplitTextLines(self.text(), arguments.Flag(0, false));
  RETURN_IF_ERROR(run.Charge(static_cast<int64_t>(lines.size()) * 4));
  return MakeList(std::move(lines));
}

Value PartitionText(const JinjaValue& self, const JinjaBound& arguments, bool reverse) {
  const JinjaText& text = self.text();
  ASSIGN_OR_RETURN(const JinjaText separator, arguments.Text(0, ""));
  if (separator.empty()) return absl::InvalidArgumentError("empty separator");
  const size_t found =
      reverse ? text.view().rfind(separator.view()) : text.view().find(separator.view());
  if (found == std::string_view::npos) {
    const JinjaValue empty = MakeText(JinjaText());
    if (reverse) return JinjaValue::Tuple({empty, empty, self});
    return JinjaValue::Tuple({self, empty, empty});
  }
  return JinjaValue::Tuple({MakeText(text.Part(0, found)), MakeText(separator),
                            MakeText(text.Part(found + separator.size(), text.size()))});
}

Value Partition(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  return PartitionText(self, arguments, false);
}

Value PartitionReverse(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  return PartitionText(self, arguments, true);
}

// Whether the text starts (ends) with the argument, or with one of a tuple.
Value Fits(const JinjaValue& self, const JinjaBound& arguments, bool at_start) {
  std::vector<JinjaValue> wanted = {arguments[0]};
  if (arguments[0].is_list() && arguments[0].list().is_tuple()) wanted = arguments[0].list().items;
  for (const JinjaValue& text : wanted) {
    if (!text.is_text()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("startswith and endswith want str or a tuple of str, not %s",
                          std::string(text.type_name())));
    }
    const std::string_view part = text.text().view();
    if (at_start ? self.text().view().starts_with(part) : self.text().view().ends_with(part)) {
      return JinjaValue::Bool(true);
    }
  }
  return JinjaValue::Bool(false);
}

Value StartsWith(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  return Fits(self, arguments, true);
}

Value EndsWith(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  return Fits(self, arguments, false);
}

Value RemovePrefix(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const JinjaText part, arguments.Text(0, ""));
  const JinjaText& text = self.text();
  return text.view().starts_with(part.view()) ? MakeText(text.Part(part.size(), text.size()))
                                              : self;
}

Value RemoveSuffix(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const JinjaText part, arguments.Text(0, ""));
  const JinjaText& text = self.text();
  return text.view().ends_with(part.view()) ? MakeText(text.Part(0, text.size() - part.size()))
                                            : self;
}

// Index, in characters, of the first (last) place of the argument; -1 if there is none.
absl::StatusOr<int64_t> Locate(const JinjaValue& self, const JinjaBound& arguments, bool last) {
  ASSIGN_OR_RETURN(const JinjaText part, arguments.Text(0, ""));
  ASSIGN_OR_RETURN(int64_t start, arguments.Int(1, 0));
  const std::vector<size_t> starts = CharacterStarts(self.text().view());
  const int64_t length = static_cast<int64_t>(starts.size()) - 1;
  ASSIGN_OR_RETURN(int64_t stop, arguments.Int(2, length));
  if (start < 0) start = std::max<int64_t>(start + length, 0);
  if (stop < 0) stop = std::max<int64_t>(stop + length, 0);
  stop = std::min(stop, length);
  if (start > stop) return -1;
  const std::string_view text =
      self.text().view().substr(starts[start], starts[stop] - starts[start]);
  const size_t found = last ? text.rfind(part.view()) : text.find(part.view());
  if (found == text.npos) return -1;
  const auto place = std::lower_bound(starts.begin(), starts.end(), starts[start] + found);
  return static_cast<int64_t>(place - starts.begin());
}

Value Find(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t place, Locate(self, arguments, false));
  return JinjaValue::Int(place);
}

Value FindLast(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t place, Locate(self, arguments, true));
  return JinjaValue::Int(place);
}

Value Index(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t place, Locate(self, arguments, false));
  if (place < 0) return absl::InvalidArgumentError("substring not found");
  return JinjaValue::Int(place);
}

Value IndexLast(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t place, Locate(self, arguments, true));
  if (place < 0) return absl::InvalidArgumentError("substring not found");
  return JinjaValue::Int(place);
}

Value Count(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const JinjaText part, arguments.Text(0, ""));
  const std::string_view text = self.text().view();
  if (part.empty()) return JinjaValue::Int(static_cast<JinjaInt>(CharacterStarts(text).size()));
  int64_t count = 0;
  for (size_t at = text.find(part.view()); at != text.npos;
       at = text.find(part.view(), at + part.size())) {
    ++count;
  }
  return JinjaValue::Int(count);
}

Value JoinTexts(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> items, run.Iterate(arguments[0]));
  JinjaText result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_text()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("sequence item %d: expected str instance, %s found", i,
                          std::string(items[i].type_name())));
    }
    if (i > 0) result.Append(self.text());
    result.Append(items[i].text());
    const int64_t bytes = static_cast<int64_t>(result.size());
    if (bytes > kMaxJinjaTextBytes) return JinjaTooLong(bytes);
  }
  return MakeText(std::move(result));
}

// The text with fill characters before and behind it.
Value Pad(const JinjaValue& self, int64_t before, int64_t behind, std::string_view fill) {
  before = std::max<int64_t>(before, 0);
  behind = std::max<int64_t>(behind, 0);
  if (before > kMaxJinjaTextBytes / 8 || behind > kMaxJinjaTextBytes / 8) {
    return JinjaTooLong(std::max(before, behind));
  }
  JinjaText result;
  for (int64_t i = 0; i < before; ++i) result.Append(fill, false);
  result.Append(self.text());
  for (int64_t i = 0; i < behind; ++i) result.Append(fill, false);
  return MakeText(std::move(result));
}

absl::StatusOr<int64_t> MissingWidth(const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t width, arguments.Int(0, 0));
  const int64_t length = static_cast<int64_t>(CharacterStarts(self.text().view()).size()) - 1;
  return width > length ? width - length : 0;
}

Value Center(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t missing, MissingWidth(self, arguments));
  ASSIGN_OR_RETURN(const int64_t width, arguments.Int(0, 0));
  ASSIGN_OR_RETURN(const JinjaText fill, arguments.Text(1, " "));
  const int64_t before = missing / 2 + (missing & width & 1);  // As Python rounds.
  return Pad(self, before, missing - before, fill.view());
}

Value JustifyLeft(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t missing, MissingWidth(self, arguments));
  ASSIGN_OR_RETURN(const JinjaText fill, arguments.Text(1, " "));
  return Pad(self, 0, missing, fill.view());
}

Value JustifyRight(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t missing, MissingWidth(self, arguments));
  ASSIGN_OR_RETURN(const JinjaText fill, arguments.Text(1, " "));
  return Pad(self, missing, 0, fill.view());
}

Value ZeroFill(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t missing, MissingWidth(self, arguments));
  const JinjaText& text = self.text();
  const bool sign = !text.empty() && (text.view()[0] == '-' || text.view()[0] == '+');
  ASSIGN_OR_RETURN(const JinjaValue padded,
                   Pad(MakeText(text.Part(sign ? 1 : 0, text.size())), missing, 0, "0"));
  JinjaText result = text.Part(0, sign ? 1 : 0);
  result.Append(padded.text());
  return MakeText(std::move(result));
}

Value ExpandTabs(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const int64_t size, arguments.Int(0, 8));
  if (size > 1024) return absl::InvalidArgumentError("tab size is too large: limit=1024");
  const JinjaText& text = self.text();
  JinjaText result;
  int64_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const int bytes = DecodeCharacter(text.view().substr(at)).bytes;
    const char c = text.view()[at];
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      result.Append(std::string(spaces, ' '), text.IsContentAt(at));
      column += spaces;
    } else {
      result.AppendPart(text, at, at + bytes);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    at += bytes;
  }
  if (static_cast<int64_t>(result.size()) > kMaxJinjaTextBytes) return JinjaTooLong(result.size());
  return MakeText(std::move(result));
}

// Whether the text is not empty and all of its characters are so.
Value All(const JinjaValue& self, bool (*is)(char32_t), bool when_empty = false) {
  std::string_view text = self.text().view();
  if (text.empty()) return JinjaValue::Bool(when_empty);
  while (!text.empty()) {
    const DecodedCharacter c = DecodeCharacter(text);
    if (!is(c.code_point)) return JinjaValue::Bool(false);
    text.remove_prefix(c.bytes);
  }
  return JinjaValue::Bool(true);
}

Value IsAlpha(JinjaRun&, const JinjaValue& self, const JinjaBound&) { return All(self, IsLetter); }
Value IsDecimalText(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return All(self, IsDigit);
}
Value IsDigitText(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return All(self, [](char32_t c) {
    return IsDigit(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0x2070 && c <= 0x2089);
  });
}
Value IsNumericText(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return All(self, IsNumeric);
}
Value IsAlphanumeric(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return All(self, [](char32_t c) { return IsLetter(c) || IsNumeric(c); });
}
Value IsAscii(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return All(
      self, [](char32_t c) { return c < 0x80; }, true);
}
Value IsSpaceText(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return All(self, IsSpaceCharacter);
}
Value IsPrintableText(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return All(self, IsPrintable, true);
}

Value IsTitle(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  bool any = false, inside_word = false;
  for (std::string_view text = self.text().view(); !text.empty();) {
    const DecodedCharacter c = DecodeCharacter(text);
    if (IsUpper(c.code_point) && inside_word) return JinjaValue::Bool(false);
    if (IsLower(c.code_point) && !inside_word) return JinjaValue::Bool(false);
    inside_word = IsCased(c.code_point);
    any |= inside_word;
    text.remove_prefix(c.bytes);
  }
  return JinjaValue::Bool(any);
}

Value IsLowerText(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return JinjaValue::Bool(HasOnlyCase(self.text().view(), IsLower));
}
Value IsUpperText(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return JinjaValue::Bool(HasOnlyCase(self.text().view(), IsUpper));
}

Value Format(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return FormatBraces(run, self.text(), arguments.rest);
}

constexpr JinjaFunction kMethods[] = {
    {"capitalize", "", 0, Capitalize},
    {"casefold", "", 0, Lower},
    {"center", "width fillchar", 1, Center},
    {"count", "sub", 1, Count},
    {"endswith", "suffix", 1, EndsWith},
    {"expandtabs", "tabsize", 0, ExpandTabs},
    {"find", "sub start end", 1, Find},
    {"format", "*", 0, Format},
    {"index", "sub start end", 1, Index},
    {"isalnum", "", 0, IsAlphanumeric},
    {"isalpha", "", 0, IsAlpha},
    {"isascii", "", 0, IsAscii},
    {"isdecimal", "", 0, IsDecimalText},
    {"isdigit", "", 0, IsDigitText},
    {"islower", "", 0, IsLowerText},
    {"isnumeric", "", 0, IsNumericText},
    {"isprintable", "", 0, IsPrintableText},
    {"isspace", "", 0, IsSpaceText},
    {"istitle", "", 0, IsTitle},
    {"isupper", "", 0, IsUpperText},
    {"join", "iterable", 1, JoinTexts},
    {"ljust", "width fillchar", 1, JustifyLeft},
    {"lower", "", 0, Lower},
    {"lstrip", "chars", 0, StripLeft},
    {"partition", "sep", 1, Partition},
    {"removeprefix", "prefix", 1, RemovePrefix},
    {"removesuffix", "suffix", 1, RemoveSuffix},
    {"replace", "old new count", 2, Replace},
    {"rfind", "sub start end", 1, FindLast},
    {"rindex", "sub start end", 1, IndexLast},
    {"rjust", "width fillchar", 1, JustifyRight},
    {"rpartition", "sep", 1, PartitionReverse},
    {"rsplit", "sep maxsplit", 0, SplitReverse},
    {"rstrip", "chars", 0, StripRight},
    {"split", "sep maxsplit", 0, Split},
    {"splitlines", "keepends", 0, SplitLines},
    {"startswith", "prefix", 1, StartsWith},
    {"strip", "chars", 0, Strip},
    {"swapcase", "", 0, SwapCase},
    {"title", "", 0, Title},
    {"upper", "", 0, Upper},
    {"zfill", "width", 1, ZeroFill},
};

}  // namespace

bool HasOnlyCase(std::string_view text, bool (*wanted)(char32_t)) {
  bool any = false;
  while (!text.empty()) {
    const DecodedCharacter c = DecodeCharacter(text);
    if (IsCased(c.code_point) && !wanted(c.code_point)) return false;
    any |= IsCased(c.code_point);
    text.remove_prefix(c.bytes);
  }
  return any;
}

const JinjaFunction* FindTextMethod(std::string_view name) { return FindFunction(kMethods, name); }

}  // namespace cairn
