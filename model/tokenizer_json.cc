// The tokenizer in a tokenizer.json. A component or an option that would change ids and is not
// known here is refused by its name.
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model/json_text.h"
#include "model/tokenizer_json_parts.h"
#include "model/tokenizer_spec.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

constexpr int kMaxTokenizerJsonDepth = 32;

absl::Status ReadAddedTokens(const Json& tokens, TokenizerSpec& spec) {
  if (tokens.is_null()) return absl::OkStatus();
  if (!tokens.is_array()) return JsonMalformed("added_tokens", "is not an array");
  if (static_cast<int64_t>(tokens.size()) > kMaxAddedTokens) {
    return JsonMalformed("added_tokens", absl::StrCat("is too long: count=", tokens.size(),
                                                      " limit=", kMaxAddedTokens));
  }
  for (const Json& token : tokens) {
    ASSIGN_OR_RETURN(const int32_t id, JsonTokenId(JsonMember(token, "id"), "added_tokens id"));
    RETURN_IF_ERROR(ReadJsonAddedToken(token, id, spec));
  }
  return absl::OkStatus();
}

// The template of a single text: at most one token before it and one after.
absl::Status ReadTemplate(const Json& processor, TokenizerSpec& spec) {
  const Json& single = JsonMember(processor, "single");
  if (!single.is_array()) return JsonMalformed("post_processor.single", "is not an array");
  bool seen_text = false;
  for (const Json& part : single) {
    if (part.is_object() && part.contains("Sequence")) {
      if (seen_text) return JsonUnsupported("post_processor.single", "the text twice");
      seen_text = true;
      continue;
    }
    const Json& name = JsonMember(JsonMember(part, "SpecialToken"), "id");
    if (!name.is_string()) return JsonMalformed("post_processor.single", "has an unknown part");
    const std::string& text = name.get_ref<const std::string&>();
    const std::optional<int32_t> id = FindTokenId(spec, text);
    if (!id.has_value()) {
      return JsonMalformed("post_processor.single",
                           absl::StrCat("names a token that is not there: ", Printable(text)));
    }
    bool& add = seen_text ? spec.add_eos : spec.add_bos;
    if (add) return JsonUnsupported("post_processor.single", "two tokens on one side of the text");
    add = true;
    (seen_text ? spec.eos_id : spec.bos_id) = id;
  }
  return absl::OkStatus();
}

absl::Status ReadPostProcessor(const Json& processor, TokenizerSpec& spec) {
  const std::string type = JsonType(processor);
  // ByteLevel only moves offsets.
  if (processor.is_null() || type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") return ReadTemplate(processor, spec);
  const Json& parts = JsonMember(processor, "processors");
  if (type != "Sequence" || !parts.is_array()) return JsonUnsupported("post_processor", type);
  for (const Json& part : parts) {
    const std::string part_type = JsonType(part);
    if (part_type == "TemplateProcessing") {
      RETURN_IF_ERROR(ReadTemplate(part, spec));
    } else if (part_type != "ByteLevel") {
      return JsonUnsupported("post_processor", part_type);
    }
  }
  return absl::OkStatus();
}

}  // namespace

// Begin and end token of tokenizer_config.json: a string, or an object with "content".
absl::Status ReadTokenizerConfig(const Json& config, bool has_template, TokenizerSpec& spec) {
  if (config.is_null()) return absl::OkStatus();
  if (!config.is_object()) return absl::InvalidArgumentError("tokenizer_config.json: no object");
  const auto find = [&](const char* key, std::optional<int32_t>& id) {
    const Json& value = JsonMember(config, key);
    const Json& text = value.is_object() ? JsonMember(value, "content") : value;
    if (!text.is_string()) return;
    const std::optional<int32_t> found = FindTokenId(spec, text.get_ref<const std::string&>());
    if (found.has_value()) id = found;
  };
  // What a template names stays.
  if (!has_template || !spec.add_bos) find("bos_token", spec.bos_id);
  if (!has_template || !spec.add_eos) find("eos_token", spec.eos_id);
  if (has_template) return absl::OkStatus();
  ASSIGN_OR_RETURN(spec.add_bos, JsonFlag(config, "add_bos_token", spec.add_bos));
  ASSIGN_OR_RETURN(spec.add_eos, JsonFlag(config, "add_eos_token", spec.add_eos));
  return absl::OkStatus();
}

absl::StatusOr<TokenizerSpec> TokenizerSpecFromJson(std::string_view tokenizer_json,
                                                    const nlohmann::json& config) {
  ASSIGN_OR_RETURN(const Json root,
                   ParseJson(tokenizer_json, {.max_bytes = kMaxTokenizerFileBytes,
                                              .max_depth = kMaxTokenizerJsonDepth}));
  if (!root.is_object()) return JsonMalformed("the file", "is not an object");
  TokenizerSpec spec;
  RETURN_IF_ERROR(ReadJsonModel(JsonMember(root, "model"), spec));
  RETURN_IF_ERROR(ReadJsonNormalizer(JsonMember(root, "normalizer"), spec));
  RETURN_IF_ERROR(ReadJsonPreTokenizer(JsonMember(root, "pre_tokenizer"), spec));
  RETURN_IF_ERROR(ReadJsonDecoder(JsonMember(root, "decoder"), spec));
  RETURN_IF_ERROR(ReadAddedTokens(JsonMember(root, "added_tokens"), spec));
  RETURN_IF_ERROR(ReadPostProcessor(JsonMember(root, "post_processor"), spec));
  RETURN_IF_ERROR(ReadTokenizerConfig(config, spec.add_bos || spec.add_eos, spec));
  return spec;
}

}  // namespace cairn
