#include "model/json_text.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "model/utf8.h"

namespace cairn {
namespace {

// The deepest nesting of brackets outside strings, whether or not the text is JSON: known before
// a parser gets to see it.
int Depth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

// Looks for a key that is twice in one object. A pass of its own: the parser's callback would make
// lists of many objects cost the square of their number.
class KeyWatch : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::optional<std::string>& duplicate() const { return duplicate_; }
  size_t error_position() const { return error_position_; }  // of the byte, from 1

  bool start_object(size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!duplicate_.has_value() && !keys_.back().insert(name).second) duplicate_ = name;
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    error_position_ = position;
    return false;
  }

 private:
  std::vector<std::unordered_set<std::string>> keys_;  // of each open object
  std::optional<std::string> duplicate_;
  size_t error_position_ = 0;
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON is too long: bytes=", text.size(), " limit=", limits.max_bytes));
  }
  if (const int depth = Depth(text); depth > limits.max_depth) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON is nested too deeply: depth=", depth, " limit=", limits.max_depth));
  }
  KeyWatch watch;
  if (!nlohmann::json::sax_parse(text, &watch)) {
    return absl::InvalidArgumentError(
        absl::StrCat("not valid JSON: byte=", watch.error_position(), " bytes=", text.size()));
  }
  if (watch.duplicate().has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a JSON object has the key \"", Printable(*watch.duplicate()), "\" twice"));
  }
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("not valid JSON");
  return json;
}

absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  absl::StatusOr<nlohmann::json> json = ParseJson(text, limits);
  if (!json.ok()) return Annotate(json.status(), path);
  return json;
}

std::string ShortJson(const nlohmann::json& value) {
  constexpr size_t kMostBytes = 80;
  // What is large is not written out first: its start says enough.
  if (value.is_structured() && value.size() > kMostBytes)
    return absl::StrCat(value.is_array() ? "a list of " : "an object of ", value.size());
  return Printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                   kMostBytes);
}

}  // namespace cairn
