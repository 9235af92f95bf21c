#include "model/jinja_functions.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "model/unicode.h"

namespace cairn {

absl::StatusOr<JinjaBound> BindJinjaArguments(const JinjaFunction& function,
                                              JinjaArguments arguments) {
  const std::string name(function.name);
  std::vector<absl::string_view> parameters =
      absl::StrSplit(absl::string_view(function.parameters.data(), function.parameters.size()), ' ',
                     absl::SkipEmpty());
  const bool any = !parameters.empty() && parameters.back() == "*";
  if (any) parameters.pop_back();
  JinjaBound bound;
  bound.values.resize(parameters.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < parameters.size()) {
      bound.values[i] = std::move(arguments.positional[i]);
    } else if (any) {
      bound.rest.positional.push_back(std::move(arguments.positional[i]));
    } else {
      return absl::InvalidArgumentError(absl::StrCat(name, "() takes at most ", parameters.size(),
                                                     " arguments, got ",
                                                     arguments.positional.size()));
    }
  }
  for (auto& [argument, value] : arguments.named) {
    size_t place = 0;
    while (place < parameters.size() && parameters[place] != argument) ++place;
    if (place < parameters.size() && !bound.values[place].has_value()) {
      bound.values[place] = std::move(value);
    } else if (any && place == parameters.size()) {
      bound.rest.named.emplace_back(argument, std::move(value));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "() got an unexpected argument '", argument, "'"));
    }
  }
  for (int i = 0; i < function.required; ++i) {
    if (bound.values[i].has_value()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, "() is missing argument '", parameters[i], "'"));
  }
  return bound;
}

absl::StatusOr<int64_t> JinjaBound::Int(size_t i, int64_t when_missing) const {
  if (!has(i) || values[i]->is_none()) return when_missing;
  const JinjaValue& value = *values[i];
  if (!value.is_int() && !value.is_bool()) {
    return absl::InvalidArgumentError(absl::StrFormat("argument %d must be an integer, not %s",
                                                      i + 1, std::string(value.type_name())));
  }
  const JinjaInt number = value.as_int();
  if (number > std::numeric_limits<int64_t>::max() ||
      number < std::numeric_limits<int64_t>::min()) {
    return absl::InvalidArgumentError(absl::StrFormat("argument %d is too large", i + 1));
  }
  return static_cast<int64_t>(number);
}

absl::StatusOr<JinjaText> JinjaBound::Text(size_t i, std::string_view when_missing) const {
  if (!has(i) || values[i]->is_none()) return JinjaText::Scaffolding(std::string(when_missing));
  if (values[i]->is_text()) return values[i]->text();
  return absl::InvalidArgumentError(absl::StrFormat("argument %d must be str, not %s", i + 1,
                                                    std::string(values[i]->type_name())));
}

bool JinjaBound::Flag(size_t i, bool when_missing) const {
  return has(i) ? values[i]->truthy() : when_missing;
}

std::vector<size_t> CharacterStarts(std::string_view text) {
  std::vector<size_t> starts;
  starts.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) != 0x80) starts.push_back(at);
  }
  starts.push_back(text.size());
  return starts;
}

JinjaText MapCase(const JinjaText& text, char32_t (*first)(char32_t),
                  char32_t (*others)(char32_t)) {
  JinjaText result;
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const DecodedCharacter c = DecodeCharacter(text.view().substr(at));
    const auto map = at == 0 ? first : others;
    bytes.clear();
    if (c.code_point == 0xDF && map != ToLower) {  // The one letter that grows in common texts.
      bytes = map == ToTitle ? "Ss" : "SS";
    } else {
      AppendUtf8(map(c.code_point), bytes);
    }
    result.Append(bytes, text.IsContentAt(at));
    at += c.bytes;
  }
  return result;
}

JinjaText UpperText(const JinjaText& text) { return MapCase(text, ToUpper, ToUpper); }
JinjaText LowerText(const JinjaText& text) { return MapCase(text, ToLower, ToLower); }

JinjaText TrimText(const JinjaText& text, std::string_view characters, bool left, bool right) {
  const std::vector<size_t> starts = CharacterStarts(text.view());
  const auto goes = [&](size_t i) {
    const std::string_view character = text.view().substr(starts[i], starts[i + 1] - starts[i]);
    if (characters.empty()) return IsSpaceCharacter(DecodeCharacter(character).code_point);
    return characters.find(character) != characters.npos;
  };
  size_t begin = 0, end = starts.size() - 1;
  while (left && begin < end && goes(begin)) ++begin;
  while (right && begin < end && goes(end - 1)) --end;
  return text.Part(starts[begin], starts[end]);
}

absl::StatusOr<JinjaText> ReplaceText(const JinjaText& text, std::string_view old,
                                      const JinjaText& with, int64_t count) {
  JinjaText result;
  size_t done = 0;
  size_t from = 0;
  while (count != 0) {
    const size_t found = text.view().find(old, from);
    if (found == std::string_view::npos) break;
    result.AppendPart(text, done, found);
    result.Append(with);
    if (static_cast<int64_t>(result.size()) > kMaxJinjaTextBytes) {
      return JinjaTooLong(static_cast<int64_t>(result.size()));
    }
    done = found + old.size();
    // Nothing is found before and after each character.
    from = old.empty()
               ? done + (done < text.size() ? DecodeCharacter(text.view().substr(done)).bytes : 1)
               : done;
    --count;
    if (from > text.size()) break;
  }
  result.AppendPart(text, done, text.size());
  return result;
}

std::vector<JinjaText> SplitTextLines(const JinjaText& text, bool keep_ends) {
  std::vector<JinjaText> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const DecodedCharacter c = DecodeCharacter(text.view().substr(at));
    const char32_t code = c.code_point;
    const bool ends = (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) ||
                      code == 0x85 || code == 0x2028 || code == 0x2029;
    size_t next = at + c.bytes;
    if (ends) {
      if (code == '\r' && next < text.size() && text.view()[next] == '\n') ++next;
      lines.push_back(text.Part(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.Part(begin, text.size()));
  return lines;
}

}  // namespace cairn
