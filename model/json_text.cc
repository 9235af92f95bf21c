#include "model/json_text.h"

#include <algorithm>
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
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::unordered_set<std::string>> keys;  // of each open object
  std::string duplicate;
  bool has_duplicate = false;
  const auto watch = [&](int, Event event, nlohmann::json& parsed) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!has_duplicate && !keys.back().insert(key).second) {
        has_duplicate = true;
        duplicate = key;
      }
    }
    return true;
  };
  nlohmann::json json = nlohmann::json::parse(text, watch, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("not valid JSON");
  if (has_duplicate) {
    return absl::InvalidArgumentError(
        absl::StrCat("a JSON object has the key \"", Printable(duplicate), "\" twice"));
  }
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

}  // namespace cairn
