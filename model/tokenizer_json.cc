// The tokenizer in a tokenizer.json, as far as byte-level BPE goes. A component or an option that
// would change ids and is not known here is refused by its name.
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "model/json_text.h"
#include "model/tokenizer_spec.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

constexpr int kMaxTokenizerJsonDepth = 32;

// The member `key` of an object; null if there is none.
const Json& Member(const Json& object, const char* key) {
  static const Json* const kNull = new Json();
  if (!object.is_object()) return *kNull;
  const auto found = object.find(key);
  return found == object.end() ? *kNull : *found;
}

std::string TypeOf(const Json& component) {
  const Json& type = Member(component, "type");
  return type.is_string() ? type.get_ref<const std::string&>() : "";
}

absl::Status Unsupported(std::string_view what, std::string_view value) {
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.json: ", absl::string_view(what.data(), what.size()),
                   " is not supported: ", Printable(value)));
}

absl::Status Malformed(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer.json: ", absl::string_view(field.data(), field.size()), " ",
                   absl::string_view(what.data(), what.size())));
}

absl::StatusOr<bool> Flag(const Json& object, const char* key, bool when_missing) {
  const Json& value = Member(object, key);
  if (value.is_null()) return when_missing;
  if (!value.is_boolean()) return Malformed(key, "is not true or false");
  return value.get<bool>();
}

absl::StatusOr<int32_t> Id(const Json& value, std::string_view field) {
  if (!value.is_number_integer()) return Malformed(field, "is not an integer");
  const bool in_range = value.is_number_unsigned()
                            ? value.get<uint64_t>() < static_cast<uint64_t>(kMaxVocabulary)
                            : value.get<int64_t>() >= 0 && value.get<int64_t>() < kMaxVocabulary;
  if (!in_range) {
    return Malformed(field,
                     absl::StrCat("is out of range: id=", value.dump(), " limit=", kMaxVocabulary));
  }
  return value.get<int32_t>();
}

absl::Status ReadVocabulary(const Json& vocabulary, TokenizerSpec& spec) {
  if (!vocabulary.is_object()) return Malformed("model.vocab", "is not an object");
  if (static_cast<int64_t>(vocabulary.size()) > kMaxVocabulary) {
    return Malformed("model.vocab", absl::StrCat("is too long: count=", vocabulary.size(),
                                                 " limit=", kMaxVocabulary));
  }
  for (const auto& [text, value] : vocabulary.items()) {
    ASSIGN_OR_RETURN(const int32_t id, Id(value, "model.vocab id"));
    if (spec.tokens.size() <= static_cast<size_t>(id)) spec.tokens.resize(id + 1);
    if (text.empty()) return Malformed("model.vocab", "has an empty token");
    if (!spec.tokens[id].empty()) {
      return Malformed("model.vocab",
                       absl::StrCat("has an id twice: \"", Printable(text), "\" and \"",
                                    Printable(spec.tokens[id]), "\" id=", id));
    }
    spec.tokens[id] = text;
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const Json& merges, TokenizerSpec& spec) {
  if (!merges.is_array()) return Malformed("model.merges", "is not an array");
  if (static_cast<int64_t>(merges.size()) > kMaxMerges) {
    return Malformed("model.merges",
                     absl::StrCat("is too long: count=", merges.size(), " limit=", kMaxMerges));
  }
  for (const Json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string_view text =
        merge.is_string() ? std::string_view(merge.get_ref<const std::string&>()) : "";
    const size_t space = text.find(' ');
    if (space == text.npos || space == 0 || space + 1 == text.size()) {
      return Malformed("model.merges",
                       absl::StrCat("has an entry that is no pair: merge=", spec.merges.size()));
    }
    spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return absl::OkStatus();
}

absl::Status ReadModel(const Json& model, TokenizerSpec& spec) {
  if (const std::string type = TypeOf(model); type != "BPE") return Unsupported("model", type);
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = Member(model, key);
    const bool off = value.is_null() || value == "" || value == 0.0;
    if (!off) return Unsupported(absl::StrCat("model.", key), value.dump());
  }
  ASSIGN_OR_RETURN(const bool byte_fallback, Flag(model, "byte_fallback", false));
  if (byte_fallback) return Unsupported("model.byte_fallback", "true");
  ASSIGN_OR_RETURN(spec.ignore_merges, Flag(model, "ignore_merges", false));
  RETURN_IF_ERROR(ReadVocabulary(Member(model, "vocab"), spec));
  return ReadMerges(Member(model, "merges"), spec);
}

// A stage that cuts. `byte_level` becomes true when the stage that also maps to the byte-level
// alphabet was seen; nothing may come after it.
absl::Status ReadSplitStage(const Json& stage, bool& byte_level, TokenizerSpec& spec) {
  const std::string type = TypeOf(stage);
  if (byte_level) return Unsupported("pre_tokenizer after ByteLevel", type);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, Flag(stage, "individual_digits", false));
    spec.split_patterns.emplace_back(individual ? kDigitSplitPattern : R"(\p{N}+)");
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    ASSIGN_OR_RETURN(const bool prefix, Flag(stage, "add_prefix_space", true));
    if (prefix) return Unsupported("pre_tokenizer ByteLevel add_prefix_space", "true");
    ASSIGN_OR_RETURN(const bool use_regex, Flag(stage, "use_regex", true));
    if (use_regex) spec.split_patterns.emplace_back(kGpt2SplitPattern);
    byte_level = true;
    return absl::OkStatus();
  }
  if (type != "Split") return Unsupported("pre_tokenizer", type);
  const Json& behavior = Member(stage, "behavior");
  if (behavior != "Isolated") return Unsupported("pre_tokenizer Split behavior", behavior.dump());
  const Json& regex = Member(Member(stage, "pattern"), "Regex");
  if (!regex.is_string()) {
    return Unsupported("pre_tokenizer Split pattern", Member(stage, "pattern").dump());
  }
  spec.split_patterns.push_back(regex.get<std::string>());
  return absl::OkStatus();
}

absl::Status ReadPreTokenizer(const Json& pre_tokenizer, TokenizerSpec& spec) {
  bool byte_level = false;
  if (TypeOf(pre_tokenizer) == "Sequence") {
    const Json& stages = Member(pre_tokenizer, "pretokenizers");
    if (!stages.is_array()) return Malformed("pre_tokenizer.pretokenizers", "is not an array");
    if (static_cast<int64_t>(stages.size()) > kMaxSplitStages) {
      return Malformed(
          "pre_tokenizer.pretokenizers",
          absl::StrCat("is too long: count=", stages.size(), " limit=", kMaxSplitStages));
    }
    for (const Json& stage : stages) RETURN_IF_ERROR(ReadSplitStage(stage, byte_level, spec));
  } else {
    RETURN_IF_ERROR(ReadSplitStage(pre_tokenizer, byte_level, spec));
  }
  if (!byte_level) return Unsupported("pre_tokenizer", "no ByteLevel stage");
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const Json& tokens, TokenizerSpec& spec) {
  if (tokens.is_null()) return absl::OkStatus();
  if (!tokens.is_array()) return Malformed("added_tokens", "is not an array");
  if (static_cast<int64_t>(tokens.size()) > kMaxAddedTokens) {
    return Malformed("added_tokens", absl::StrCat("is too long: count=", tokens.size(),
                                                  " limit=", kMaxAddedTokens));
  }
  for (const Json& token : tokens) {
    const Json& content = Member(token, "content");
    if (!content.is_string()) return Malformed("added_tokens content", "is not a string");
    AddedToken added{.text = content.get<std::string>()};
    ASSIGN_OR_RETURN(added.id, Id(Member(token, "id"), "added_tokens id"));
    ASSIGN_OR_RETURN(added.special, Flag(token, "special", false));
    ASSIGN_OR_RETURN(added.lstrip, Flag(token, "lstrip", false));
    ASSIGN_OR_RETURN(added.rstrip, Flag(token, "rstrip", false));
    ASSIGN_OR_RETURN(added.single_word, Flag(token, "single_word", false));
    ASSIGN_OR_RETURN(added.normalized, Flag(token, "normalized", !added.special));
    spec.added_tokens.push_back(std::move(added));
  }
  return absl::OkStatus();
}

std::optional<int32_t> FindId(const TokenizerSpec& spec, std::string_view text) {
  for (const AddedToken& token : spec.added_tokens) {
    if (token.text == text) return token.id;
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id] == text) return static_cast<int32_t>(id);
  }
  return std::nullopt;
}

// The template of a single text: at most one token before it and one after.
absl::Status ReadTemplate(const Json& processor, TokenizerSpec& spec) {
  const Json& single = Member(processor, "single");
  if (!single.is_array()) return Malformed("post_processor.single", "is not an array");
  bool seen_text = false;
  for (const Json& part : single) {
    if (part.is_object() && part.contains("Sequence")) {
      if (seen_text) return Unsupported("post_processor.single", "the text twice");
      seen_text = true;
      continue;
    }
    const Json& name = Member(Member(part, "SpecialToken"), "id");
    if (!name.is_string()) return Malformed("post_processor.single", "has an unknown part");
    const std::string& text = name.get_ref<const std::string&>();
    const std::optional<int32_t> id = FindId(spec, text);
    if (!id.has_value()) {
      return Malformed("post_processor.single",
                       absl::StrCat("names a token that is not there: ", Printable(text)));
    }
    bool& add = seen_text ? spec.add_eos : spec.add_bos;
    if (add) return Unsupported("post_processor.single", "two tokens on one side of the text");
    add = true;
    (seen_text ? spec.eos_id : spec.bos_id) = id;
  }
  return absl::OkStatus();
}

absl::Status ReadPostProcessor(const Json& processor, TokenizerSpec& spec) {
  const std::string type = TypeOf(processor);
  // ByteLevel only moves offsets.
  if (processor.is_null() || type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") return ReadTemplate(processor, spec);
  const Json& parts = Member(processor, "processors");
  if (type != "Sequence" || !parts.is_array()) return Unsupported("post_processor", type);
  for (const Json& part : parts) {
    const std::string part_type = TypeOf(part);
    if (part_type == "TemplateProcessing") {
      RETURN_IF_ERROR(ReadTemplate(part, spec));
    } else if (part_type != "ByteLevel") {
      return Unsupported("post_processor", part_type);
    }
  }
  return absl::OkStatus();
}

// Begin and end token of tokenizer_config.json: a string, or an object with "content".
absl::Status ReadConfig(const Json& config, TokenizerSpec& spec) {
  if (config.is_null()) return absl::OkStatus();
  if (!config.is_object()) return absl::InvalidArgumentError("tokenizer_config.json: no object");
  const auto find = [&](const char* key, std::optional<int32_t>& id) {
    const Json& value = Member(config, key);
    const Json& text = value.is_object() ? Member(value, "content") : value;
    if (!text.is_string()) return;
    const std::optional<int32_t> found = FindId(spec, text.get_ref<const std::string&>());
    if (found.has_value() && !id.has_value()) id = found;
  };
  const bool by_template = spec.add_bos || spec.add_eos;
  find("bos_token", spec.bos_id);
  find("eos_token", spec.eos_id);
  if (by_template) return absl::OkStatus();
  ASSIGN_OR_RETURN(spec.add_bos, Flag(config, "add_bos_token", false));
  ASSIGN_OR_RETURN(spec.add_eos, Flag(config, "add_eos_token", false));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromJson(std::string_view tokenizer_json,
                                                    const nlohmann::json& config) {
  ASSIGN_OR_RETURN(const Json root,
                   ParseJson(tokenizer_json, {.max_bytes = kMaxTokenizerFileBytes,
                                              .max_depth = kMaxTokenizerJsonDepth}));
  if (!root.is_object()) return Malformed("the file", "is not an object");
  TokenizerSpec spec;
  const Json& normalizer = Member(root, "normalizer");
  if (!normalizer.is_null()) return Unsupported("normalizer", TypeOf(normalizer));
  RETURN_IF_ERROR(ReadModel(Member(root, "model"), spec));
  RETURN_IF_ERROR(ReadPreTokenizer(Member(root, "pre_tokenizer"), spec));
  const Json& decoder = Member(root, "decoder");
  if (TypeOf(decoder) != "ByteLevel") return Unsupported("decoder", TypeOf(decoder));
  RETURN_IF_ERROR(ReadAddedTokens(Member(root, "added_tokens"), spec));
  RETURN_IF_ERROR(ReadPostProcessor(Member(root, "post_processor"), spec));
  RETURN_IF_ERROR(ReadConfig(config, spec));
  return spec;
}

absl::StatusOr<TokenizerSpec> TokenizerSpecFromJsonFile(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::filesystem::path neighbour =
      std::filesystem::path(path).replace_filename("tokenizer_config.json");
  Json config;
  std::error_code error;
  if (std::filesystem::exists(neighbour, error)) {
    ASSIGN_OR_RETURN(config, ReadJsonFile(neighbour.string(), JsonLimits{}));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  absl::StatusOr<TokenizerSpec> spec = TokenizerSpecFromJson(text, config);
  if (!spec.ok()) return Annotate(spec.status(), path);
  return spec;
}

absl::StatusOr<TokenizerSpec> TokenizerSpecFromFolder(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat("no tokenizer: ", path.string(), " does not exist"));
  }
  return TokenizerSpecFromJsonFile(path.string());
}

}  // namespace cairn
