#include "model/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/unicode.h"

namespace cairn {
namespace {

absl::Status CheckContainer(size_t items, int depth, int64_t weight) {
  if (static_cast<int64_t>(items) > kMaxJinjaItems) {
    return absl::ResourceExhaustedError(
        absl::StrCat("list is too long: items=", items, " limit=", kMaxJinjaItems));
  }
  if (depth > kMaxJinjaValueDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("lists are nested too deeply: limit=", kMaxJinjaValueDepth));
  }
  if (weight > kMaxJinjaWeight) {
    return absl::ResourceExhaustedError(
        absl::StrCat("list holds too much: weight=", weight, " limit=", kMaxJinjaWeight));
  }
  return absl::OkStatus();
}

}  // namespace

JinjaValue JinjaValue::MakeUndefined(std::string message) {
  return JinjaValue(Data(std::make_shared<const Undefined>(Undefined{std::move(message)})));
}

JinjaValue JinjaValue::Text(JinjaText text) {
  return JinjaValue(Data(std::make_shared<const JinjaText>(std::move(text))));
}

absl::StatusOr<JinjaValue> JinjaValue::List(std::vector<JinjaValue> items) {
  return Make({.kind = JinjaList::Kind::kList, .items = std::move(items)});
}

absl::StatusOr<JinjaValue> JinjaValue::Tuple(std::vector<JinjaValue> items) {
  return Make({.kind = JinjaList::Kind::kTuple, .items = std::move(items)});
}

absl::StatusOr<JinjaValue> JinjaValue::Make(JinjaList list) {
  for (const JinjaValue& item : list.items) {
    list.depth = std::max(list.depth, 1 + item.depth());
    list.weight += item.weight();
  }
  RETURN_IF_ERROR(CheckContainer(list.items.size(), list.depth, list.weight));
  return JinjaValue(Data(std::make_shared<const JinjaList>(std::move(list))));
}

absl::StatusOr<JinjaValue> JinjaValue::Dict(std::vector<std::pair<JinjaValue, JinjaValue>> items) {
  JinjaDict dict;
  std::vector<size_t> other_keys;  // places of keys that are not text
  for (auto& item : items) {
    JinjaValue& key = item.first;
    JinjaValue& value = item.second;
    if (key.is_list() && !key.list().is_tuple()) {
      return absl::InvalidArgumentError("unhashable type: 'list'");
    }
    if (key.is_dict()) return absl::InvalidArgumentError("unhashable type: 'dict'");
    dict.depth = std::max(dict.depth, 1 + std::max(key.depth(), value.depth()));
    dict.weight += key.weight() + value.weight();
    size_t place = dict.items.size();
    if (key.is_text()) {
      place = dict.index.emplace(key.text().bytes(), place).first->second;
    } else {
      const auto same = std::find_if(other_keys.begin(), other_keys.end(), [&](size_t other) {
        return JinjaEquals(dict.items[other].first, key);
      });
      if (same != other_keys.end()) place = *same;
      if (place == dict.items.size()) other_keys.push_back(place);
    }
    if (place < dict.items.size()) {
      dict.items[place].second = std::move(value);
    } else {
      dict.items.emplace_back(std::move(key), std::move(value));
    }
  }
  RETURN_IF_ERROR(CheckContainer(dict.items.size(), dict.depth, dict.weight));
  return JinjaValue(Data(std::make_shared<const JinjaDict>(std::move(dict))));
}

JinjaValue JinjaValue::Method(const JinjaValue& self, const JinjaFunction* function) {
  return JinjaValue(Data(std::make_shared<const JinjaMethod>(JinjaMethod{self, function})));
}

JinjaInt JinjaValue::as_int() const { return is_bool() ? get<bool>() : get<JinjaInt>(); }

double JinjaValue::as_float() const {
  return is_float() ? get<double>() : static_cast<double>(as_int());
}

bool JinjaValue::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_float()) return as_float() != 0;
  if (is_number()) return as_int() != 0;
  if (is_text()) return !text().empty();
  if (is_list()) return !list().items.empty();
  if (is_dict()) return !dict().items.empty();
  return true;
}

int JinjaValue::depth() const {
  if (is_list()) return list().depth;
  if (is_dict()) return dict().depth;
  return is_method() ? method().self.depth() : 0;
}

int64_t JinjaValue::weight() const {
  if (is_text()) return 1 + static_cast<int64_t>(text().size()) / 32;
  if (is_list()) return list().weight;
  if (is_dict()) return dict().weight;
  return is_method() ? method().self.weight() : 1;
}

std::string_view JinjaValue::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_text()) return "str";
  if (is_dict()) return "dict";
  if (is_object()) return object()->type_name();
  if (!is_list()) return "function";
  switch (list().kind) {
    case JinjaList::Kind::kTuple:
    case JinjaList::Kind::kGroup:
      return "tuple";
    case JinjaList::Kind::kRange:
      return "range";
    case JinjaList::Kind::kKeys:
      return "dict_keys";
    case JinjaList::Kind::kValues:
      return "dict_values";
    case JinjaList::Kind::kItems:
      return "dict_items";
    case JinjaList::Kind::kList:
      break;
  }
  return "list";
}

const JinjaValue* JinjaDict::Find(std::string_view key) const {
  const auto found = index.find(absl::string_view(key.data(), key.size()));
  return found == index.end() ? nullptr : &items[found->second].second;
}

const JinjaValue* JinjaDict::Find(const JinjaValue& key) const {
  if (key.is_text()) return Find(key.text().view());
  for (const auto& [other, value] : items) {
    if (!other.is_text() && JinjaEquals(other, key)) return &value;
  }
  return nullptr;
}

namespace {

bool EqualLists(const JinjaList& a, const JinjaList& b) {
  const bool same_kind = a.kind == b.kind || (a.is_tuple() && b.is_tuple());
  return same_kind &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), JinjaEquals);
}

bool EqualDicts(const JinjaDict& a, const JinjaDict& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const JinjaValue* other = b.Find(item.first);
    return other != nullptr && JinjaEquals(item.second, *other);
  });
}

}  // namespace

bool JinjaEquals(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.as_float() == b.as_float();
    return a.as_int() == b.as_int();
  }
  if (a.is_text() && b.is_text()) return a.text().bytes() == b.text().bytes();
  if (a.is_list() && b.is_list()) return EqualLists(a.list(), b.list());
  if (a.is_dict() && b.is_dict()) return EqualDicts(a.dict(), b.dict());
  if (a.is_object() && b.is_object()) return a.object() == b.object();
  if (a.is_function() && b.is_function()) return a.function() == b.function();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

absl::StatusOr<bool> JinjaLess(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.as_float() < b.as_float();
    return a.as_int() < b.as_int();
  }
  // UTF-8 sorts as code points do.
  if (a.is_text() && b.is_text()) return a.text().bytes() < b.text().bytes();
  if (a.is_list() && b.is_list() && a.list().is_tuple() == b.list().is_tuple()) {
    const auto& left = a.list().items;
    const auto& right = b.list().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!JinjaEquals(left[i], right[i])) return JinjaLess(left[i], right[i]);
    }
    return left.size() < right.size();
  }
  for (const JinjaValue* value : {&a, &b}) {
    if (value->is_undefined()) return absl::InvalidArgumentError(value->undefined_message());
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("'<' not supported between instances of '%s' and '%s'",
                      std::string(a.type_name()), std::string(b.type_name())));
}

std::string JinjaIntText(JinjaInt value) {
  if (value == 0) return "0";
  std::string digits;
  // The smallest value has no positive twin, so digits are taken from the negative.
  for (JinjaInt rest = value; rest != 0; rest /= 10) {
    const int digit = static_cast<int>(rest % 10);
    digits.push_back(static_cast<char>('0' + std::abs(digit)));
  }
  if (value < 0) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string JinjaFloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string scientific(buffer, end.ptr);  // d.ddde+XX
  const size_t mark = scientific.find('e');
  int exponent = 0;
  const std::string_view digits = std::string_view(scientific).substr(mark + 2);
  std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  if (scientific[mark + 1] == '-') exponent = -exponent;
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed_end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string fixed(buffer, fixed_end.ptr);
  if (fixed.find('.') == fixed.npos) fixed.append(".0");
  return fixed;
}

namespace {

// A text between quotes, escaped as Python's repr() does.
void AppendQuoted(const JinjaText& text, JinjaText& out) {
  const bool single = text.bytes().find('\'') == std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = single || has_double ? '\'' : '"';
  const std::string_view mark(&quote, 1);
  out.Append(mark, false);
  for (size_t at = 0; at < text.size();) {
    const DecodedCharacter c = DecodeCharacter(text.view().substr(at));
    const char32_t code = c.code_point;
    std::string escaped;
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      escaped = {'\\', static_cast<char>(code)};
    } else if (code == '\n') {
      escaped = "\\n";
    } else if (code == '\r') {
      escaped = "\\r";
    } else if (code == '\t') {
      escaped = "\\t";
    } else if (!IsPrintable(code)) {
      escaped = code < 0x100     ? absl::StrFormat("\\x%02x", static_cast<uint32_t>(code))
                : code < 0x10000 ? absl::StrFormat("\\u%04x", static_cast<uint32_t>(code))
                                 : absl::StrFormat("\\U%08x", static_cast<uint32_t>(code));
    }
    if (escaped.empty()) {
      out.AppendPart(text, at, at + c.bytes);
    } else {
      out.Append(escaped, text.IsContentAt(at));
    }
    at += c.bytes;
  }
  out.Append(mark, false);
}

void AppendRepr(const JinjaValue& value, JinjaText& out);

void AppendListRepr(const JinjaList& list, JinjaText& out) {
  using Kind = JinjaList::Kind;
  const bool view =
      list.kind == Kind::kKeys || list.kind == Kind::kValues || list.kind == Kind::kItems;
  const char* open = "[";
  const char* close = "]";
  if (list.is_tuple()) {
    open = "(";
    close = list.items.size() == 1 ? ",)" : ")";
  } else if (view) {
    open = list.kind == Kind::kKeys     ? "dict_keys(["
           : list.kind == Kind::kValues ? "dict_values(["
                                        : "dict_items([";
    close = "])";
  } else if (list.kind == Kind::kRange) {
    open = "range(";
    close = ")";
  }
  out.Append(open, false);
  if (list.kind == Kind::kRange) {
    out.Append(absl::StrCat(JinjaIntText(list.start), ", ", JinjaIntText(list.stop)), false);
    if (list.step != 1) out.Append(absl::StrCat(", ", JinjaIntText(list.step)), false);
  } else {
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out.Append(", ", false);
      AppendRepr(list.items[i], out);
    }
  }
  out.Append(close, false);
}

void AppendRepr(const JinjaValue& value, JinjaText& out) {
  if (value.is_text()) {
    AppendQuoted(value.text(), out);
  } else if (value.is_list()) {
    AppendListRepr(value.list(), out);
  } else if (value.is_dict()) {
    out.Append("{", false);
    for (size_t i = 0; i < value.dict().items.size(); ++i) {
      if (i > 0) out.Append(", ", false);
      AppendRepr(value.dict().items[i].first, out);
      out.Append(": ", false);
      AppendRepr(value.dict().items[i].second, out);
    }
    out.Append("}", false);
  } else if (value.is_undefined()) {
    out.Append("Undefined", false);
  } else {
    out.Append(JinjaStr(value));
  }
}

}  // namespace

JinjaText JinjaStr(const JinjaValue& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return JinjaText();
  if (value.is_none()) return JinjaText::Scaffolding("None");
  if (value.is_bool()) return JinjaText::Scaffolding(value.truthy() ? "True" : "False");
  if (value.is_int()) return JinjaText::Scaffolding(JinjaIntText(value.as_int()));
  if (value.is_float()) return JinjaText::Scaffolding(JinjaFloatText(value.as_float()));
  if (value.is_list() || value.is_dict()) return JinjaRepr(value);
  return JinjaText::Scaffolding(absl::StrCat("<", std::string(value.type_name()), ">"));
}

JinjaText JinjaRepr(const JinjaValue& value) {
  JinjaText out;
  AppendRepr(value, out);
  return out;
}

}  // namespace cairn
