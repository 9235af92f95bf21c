#include "model/jinja_json.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/jinja_functions.h"
#include "model/unicode.h"

namespace cairn {
namespace {

// Builds a value from the parser's events, so that no second tree is made and depth is known.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  const absl::Status& status() const { return status_; }
  JinjaValue Take() { return std::move(*result_); }

  bool null() override { return Put(JinjaValue()); }
  bool boolean(bool value) override { return Put(JinjaValue::Bool(value)); }
  bool number_integer(int64_t value) override { return Put(JinjaValue::Int(value)); }
  bool number_unsigned(uint64_t value) override { return Put(JinjaValue::Int(value)); }
  bool number_float(double value, const std::string& text) override {
    // A whole number too long for 64 bits comes here too.
    if (text.find_first_of(".eE") != text.npos) return Put(JinjaValue::Float(value));
    JinjaInt number = 0;
    for (const char c : text) {
      if (c == '-') continue;
      if (__builtin_mul_overflow(number, JinjaInt{10}, &number) ||
          __builtin_add_overflow(number, JinjaInt{c - '0'}, &number)) {
        return Fail(absl::InvalidArgumentError("JSON: integer is too large"));
      }
    }
    return Put(JinjaValue::Int(text[0] == '-' ? -number : number));
  }
  bool string(std::string& value) override {
    return Put(JinjaValue::Text(JinjaText::Content(value)));
  }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(true); }
  bool start_array(size_t) override { return Open(false); }
  bool key(std::string& name) override {
    open_.back().keys.push_back(JinjaValue::Text(JinjaText::Content(name)));
    return true;
  }
  bool end_object() override {
    Container container = std::move(open_.back());
    open_.pop_back();
    std::vector<std::pair<JinjaValue, JinjaValue>> items;
    for (size_t i = 0; i < container.keys.size(); ++i) {
      items.emplace_back(std::move(container.keys[i]), std::move(container.items[i]));
    }
    return Put(JinjaValue::Dict(std::move(items)));
  }
  bool end_array() override {
    Container container = std::move(open_.back());
    open_.pop_back();
    return Put(JinjaValue::List(std::move(container.items)));
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::InvalidArgumentError(absl::StrCat("not valid JSON: byte=", position)));
  }

 private:
  struct Container {
    std::vector<JinjaValue> keys;
    std::vector<JinjaValue> items;
  };

  bool Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
    return false;
  }
  bool Put(absl::StatusOr<JinjaValue> value) {
    if (!value.ok()) return Fail(value.status());
    if (open_.empty()) {
      result_ = *std::move(value);
    } else {
      open_.back().items.push_back(*std::move(value));
    }
    return true;
  }
  bool Open(bool) {
    if (open_.size() >= static_cast<size_t>(kMaxVariablesDepth)) {
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("JSON is nested too deeply: limit=", kMaxVariablesDepth)));
    }
    open_.emplace_back();
    return true;
  }

  std::vector<Container> open_;
  std::optional<JinjaValue> result_;
  absl::Status status_;
};

struct JsonStyle {
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  std::optional<std::string> indent;
  bool ascii_only = false;
  bool sort_keys = false;
};

void AppendJsonText(const JinjaText& text, const JsonStyle& style, JinjaText& out) {
  out.Append("\"", false);
  for (size_t at = 0; at < text.size();) {
    const DecodedCharacter c = DecodeCharacter(text.view().substr(at));
    const uint32_t code = c.code_point;
    std::string escaped;
    switch (code) {
      case '"':
        escaped = "\\\"";
        break;
      case '\\':
        escaped = "\\\\";
        break;
      case '\n':
        escaped = "\\n";
        break;
      case '\r':
        escaped = "\\r";
        break;
      case '\t':
        escaped = "\\t";
        break;
      case '\f':
        escaped = "\\f";
        break;
      case '\b':
        escaped = "\\b";
        break;
      default:
        if (code < 0x20 || (style.ascii_only && code > 0x7E && code < 0x10000)) {
          escaped = absl::StrFormat("\\u%04x", code);
        } else if (style.ascii_only && code >= 0x10000) {
          escaped = absl::StrFormat("\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                                    0xDC00 + ((code - 0x10000) & 0x3FF));
        }
    }
    if (escaped.empty()) {
      out.AppendPart(text, at, at + c.bytes);
    } else {
      out.Append(escaped, text.IsContentAt(at));
    }
    at += c.bytes;
  }
  out.Append("\"", false);
}

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return JinjaFloatText(value);
}

absl::Status AppendJson(const JinjaValue& value, const JsonStyle& style, int depth, JinjaText& out);

void AppendNewline(const JsonStyle& style, int depth, JinjaText& out) {
  if (!style.indent.has_value()) return;
  out.Append("\n", false);
  for (int i = 0; i < depth; ++i) out.Append(*style.indent, false);
}

absl::Status AppendJsonKey(const JinjaValue& key, const JsonStyle& style, JinjaText& out) {
  if (key.is_text()) {
    AppendJsonText(key.text(), style, out);
    return absl::OkStatus();
  }
  if (!key.is_none() && !key.is_number()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "keys must be str, int, float, bool or None, not %s", std::string(key.type_name())));
  }
  out.Append("\"", false);
  RETURN_IF_ERROR(AppendJson(key, style, 0, out));
  out.Append("\"", false);
  return absl::OkStatus();
}

absl::Status AppendJsonDict(const JinjaDict& dict, const JsonStyle& style, int depth,
                            JinjaText& out) {
  std::vector<const std::pair<JinjaValue, JinjaValue>*> items;
  for (const auto& item : dict.items) items.push_back(&item);
  if (style.sort_keys) {
    absl::Status status;
    std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
      const absl::StatusOr<bool> less = JinjaLess(a->first, b->first);
      if (!less.ok()) status = less.status();
      return less.ok() && *less;
    });
    RETURN_IF_ERROR(status);
  }
  out.Append("{", false);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(style.item_separator, false);
    AppendNewline(style, depth + 1, out);
    RETURN_IF_ERROR(AppendJsonKey(items[i]->first, style, out));
    out.Append(style.key_separator, false);
    RETURN_IF_ERROR(AppendJson(items[i]->second, style, depth + 1, out));
  }
  if (!items.empty()) AppendNewline(style, depth, out);
  out.Append("}", false);
  return absl::OkStatus();
}

absl::Status AppendJson(const JinjaValue& value, const JsonStyle& style, int depth,
                        JinjaText& out) {
  const int64_t bytes = static_cast<int64_t>(out.size());
  if (bytes > kMaxJinjaTextBytes) return JinjaTooLong(bytes);
  if (value.is_text()) {
    AppendJsonText(value.text(), style, out);
  } else if (value.is_none()) {
    out.Append("null", false);
  } else if (value.is_bool()) {
    out.Append(value.truthy() ? "true" : "false", false);
  } else if (value.is_int()) {
    out.Append(JinjaIntText(value.as_int()), false);
  } else if (value.is_float()) {
    out.Append(JsonFloat(value.as_float()), false);
  } else if (value.is_dict()) {
    return AppendJsonDict(value.dict(), style, depth, out);
  } else if (value.is_list() && (value.list().is_tuple() || value.type_name() == "list")) {
    const std::vector<JinjaValue>& items = value.list().items;
    out.Append("[", false);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out.Append(style.item_separator, false);
      AppendNewline(style, depth + 1, out);
      RETURN_IF_ERROR(AppendJson(items[i], style, depth + 1, out));
    }
    if (!items.empty()) AppendNewline(style, depth, out);
    out.Append("]", false);
  } else {
    return absl::InvalidArgumentError(absl::StrFormat("Object of type %s is not JSON serializable",
                                                      std::string(value.type_name())));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JinjaValue> ParseJinjaJson(std::string_view json) {
  if (static_cast<int64_t>(json.size()) > kMaxVariablesBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON is too long: bytes=", json.size(), " limit=", kMaxVariablesBytes));
  }
  Builder builder;
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  if (!builder.status().ok()) return builder.status();
  if (!parsed) return absl::InvalidArgumentError("not valid JSON");
  return builder.Take();
}

// Parameters: ensure_ascii, indent, separators, sort_keys.
absl::StatusOr<JinjaText> JinjaToJson(const JinjaValue& value, const JinjaBound& options) {
  constexpr int64_t kMaxIndent = 64;
  JsonStyle style;
  style.ascii_only = options.Flag(0, false);
  if (options.has(1) && options[1].is_text()) {
    style.indent = options[1].text().bytes();
  } else if (options.has(1) && !options[1].is_none()) {
    ASSIGN_OR_RETURN(const int64_t indent, options.Int(1, 0));
    if (indent > kMaxIndent) {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson: indent is too large: limit=", kMaxIndent));
    }
    style.indent = std::string(indent < 0 ? 0 : indent, ' ');
  }
  if (style.indent.has_value()) style.item_separator = ",";
  if (options.has(2) && options[2].is_list()) {
    const std::vector<JinjaValue>& separators = options[2].list().items;
    if (separators.size() != 2 || !separators[0].is_text() || !separators[1].is_text()) {
      return absl::InvalidArgumentError("tojson: separators must be two texts");
    }
    style.item_separator = separators[0].text().bytes();
    style.key_separator = separators[1].text().bytes();
  }
  style.sort_keys = options.Flag(3, false);
  JinjaText out;
  RETURN_IF_ERROR(AppendJson(value, style, 0, out));
  return out;
}

}  // namespace cairn
