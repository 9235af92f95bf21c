// What a tokenizer.json does to text before and after its model: normalizer, pre_tokenizer,
// decoder.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model/tokenizer_json_parts.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

const std::string& TextOf(const Json& text) { return text.get_ref<const std::string&>(); }

// The parts of a component of type "Sequence" under `key`, or the component itself.
absl::StatusOr<std::vector<const Json*>> PartsOf(const Json& component, const char* key) {
  std::vector<const Json*> parts;
  if (JsonType(component) != "Sequence") {
    if (!component.is_null()) parts.push_back(&component);
    return parts;
  }
  const Json& list = JsonMember(component, key);
  if (!list.is_array()) return JsonMalformed(key, "is not an array");
  if (static_cast<int64_t>(list.size()) > kMaxSplitStages) {
    return JsonMalformed(
        key, absl::StrCat("is too long: count=", list.size(), " limit=", kMaxSplitStages));
  }
  for (const Json& part : list) {
    ASSIGN_OR_RETURN(const std::vector<const Json*> inner, PartsOf(part, key));
    parts.insert(parts.end(), inner.begin(), inner.end());
  }
  return parts;
}

std::optional<UnicodeForm> UnicodeFormOf(std::string_view type) {
  if (type == "NFC") return UnicodeForm::kNfc;
  if (type == "NFD") return UnicodeForm::kNfd;
  if (type == "NFKC") return UnicodeForm::kNfkc;
  if (type == "NFKD") return UnicodeForm::kNfkd;
  return std::nullopt;
}

absl::Status ReadNormalizerStep(const Json& step, TokenizerSpec& spec) {
  const std::string type = JsonType(step);
  if (const std::optional<UnicodeForm> form = UnicodeFormOf(type); form.has_value()) {
    spec.normalizer_steps.push_back({.kind = NormalizerStep::Kind::kUnicodeForm, .form = *form});
    return absl::OkStatus();
  }
  if (type == "Prepend") {
    const Json& prefix = JsonMember(step, "prepend");
    if (!prefix.is_string()) return JsonMalformed("normalizer Prepend", "has no text");
    spec.normalizer_steps.push_back({.kind = NormalizerStep::Kind::kPrefix,
                                     .to = TextOf(prefix),
                                     .prefix_rule = PrefixRule::kEveryPart});
    return absl::OkStatus();
  }
  if (type != "Replace") return JsonUnsupported("normalizer", type);
  const Json& from = JsonMember(JsonMember(step, "pattern"), "String");
  const Json& to = JsonMember(step, "content");
  if (!from.is_string() || !to.is_string()) {
    return JsonUnsupported("normalizer Replace pattern", JsonMember(step, "pattern").dump());
  }
  spec.normalizer_steps.push_back(
      {.kind = NormalizerStep::Kind::kReplace, .from = TextOf(from), .to = TextOf(to)});
  return absl::OkStatus();
}

// A regular expression that matches `text` and nothing else.
std::string LiteralPattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool is_plain = byte >= 0x80 || (byte >= '0' && byte <= '9') ||
                          (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
    if (!is_plain) pattern.push_back('\\');
    pattern.push_back(c);
  }
  return pattern;
}

absl::Status ReadSplit(const Json& stage, TokenizerSpec& spec) {
  const Json& pattern = JsonMember(stage, "pattern");
  const Json& regex = JsonMember(pattern, "Regex");
  const Json& literal = JsonMember(pattern, "String");
  SplitStage split;
  if (regex.is_string()) {
    split.pattern = TextOf(regex);
  } else if (literal.is_string() && !TextOf(literal).empty()) {
    split.pattern = LiteralPattern(TextOf(literal));
  } else {
    return JsonUnsupported("pre_tokenizer Split pattern", pattern.dump());
  }
  const Json& behavior = JsonMember(stage, "behavior");
  if (behavior == "MergedWithPrevious") {
    split.behavior = SplitBehavior::kMergedWithPrevious;
  } else if (behavior == "MergedWithNext") {
    split.behavior = SplitBehavior::kMergedWithNext;
  } else if (behavior != "Isolated") {
    return JsonUnsupported("pre_tokenizer Split behavior", behavior.dump());
  }
  // Isolated pieces are the same either way.
  ASSIGN_OR_RETURN(const bool invert, JsonFlag(stage, "invert", false));
  if (invert && behavior != "Isolated")
    return JsonUnsupported("pre_tokenizer Split invert", "true");
  spec.split_stages.push_back(std::move(split));
  return absl::OkStatus();
}

absl::Status ReadByteLevel(const Json& stage, TokenizerSpec& spec) {
  if (spec.model != TokenModelKind::kPieceBpe) {
    return JsonUnsupported("pre_tokenizer ByteLevel with a model of another type than", "BPE");
  }
  if (spec.byte_fallback) return JsonUnsupported("model.byte_fallback with ByteLevel", "true");
  spec.model = TokenModelKind::kByteLevelBpe;
  ASSIGN_OR_RETURN(const bool prefix, JsonFlag(stage, "add_prefix_space", true));
  if (prefix && !spec.split_stages.empty()) {
    return JsonUnsupported("pre_tokenizer ByteLevel add_prefix_space after another stage", "true");
  }
  if (prefix) {
    spec.piece_normalizer_steps.push_back({.kind = NormalizerStep::Kind::kPrefix,
                                           .to = " ",
                                           .prefix_rule = PrefixRule::kEveryPart,
                                           .unless_present = true});
  }
  ASSIGN_OR_RETURN(const bool use_regex, JsonFlag(stage, "use_regex", true));
  if (use_regex) spec.split_stages.push_back({std::string(kGpt2SplitPattern)});
  return absl::OkStatus();
}

// The scheme of a Metaspace component; older files have a flag instead.
absl::StatusOr<PrefixRule> PrefixRuleOf(const Json& metaspace) {
  if (JsonMember(metaspace, "replacement") != std::string(kSpaceMark)) {
    return JsonUnsupported("Metaspace replacement", JsonMember(metaspace, "replacement").dump());
  }
  const Json& scheme = JsonMember(metaspace, "prepend_scheme");
  if (scheme.is_null()) {
    ASSIGN_OR_RETURN(const bool prefix, JsonFlag(metaspace, "add_prefix_space", true));
    return prefix ? PrefixRule::kEveryPart : PrefixRule::kNever;
  }
  if (scheme == "always") return PrefixRule::kEveryPart;
  if (scheme == "first") return PrefixRule::kTextStart;
  if (scheme == "never") return PrefixRule::kNever;
  return JsonUnsupported("Metaspace prepend_scheme", scheme.dump());
}

absl::Status ReadMetaspace(const Json& stage, TokenizerSpec& spec) {
  if (!spec.split_stages.empty() || !spec.piece_normalizer_steps.empty()) {
    return JsonUnsupported("pre_tokenizer after another stage", "Metaspace");
  }
  ASSIGN_OR_RETURN(const PrefixRule rule, PrefixRuleOf(stage));
  const std::string mark(kSpaceMark);
  spec.piece_normalizer_steps.push_back(
      {.kind = NormalizerStep::Kind::kReplace, .from = " ", .to = mark});
  spec.piece_normalizer_steps.push_back({.kind = NormalizerStep::Kind::kPrefix,
                                         .to = mark,
                                         .prefix_rule = rule,
                                         .unless_present = true});
  ASSIGN_OR_RETURN(const bool split, JsonFlag(stage, "split", true));
  if (split) spec.split_stages.push_back({mark, SplitBehavior::kMergedWithNext});
  return absl::OkStatus();
}

absl::Status ReadPreTokenizerStage(const Json& stage, TokenizerSpec& spec) {
  const std::string type = JsonType(stage);
  // The stage that maps to the byte-level alphabet is the last.
  if (spec.model == TokenModelKind::kByteLevelBpe) {
    return JsonUnsupported("pre_tokenizer after ByteLevel", type);
  }
  if (type == "Split") return ReadSplit(stage, spec);
  if (type == "ByteLevel") return ReadByteLevel(stage, spec);
  if (type == "Metaspace") return ReadMetaspace(stage, spec);
  if (type != "Digits") return JsonUnsupported("pre_tokenizer", type);
  ASSIGN_OR_RETURN(const bool individual, JsonFlag(stage, "individual_digits", false));
  spec.split_stages.push_back({std::string(individual ? kDigitSplitPattern : R"(\p{N}+)")});
  return absl::OkStatus();
}

// Takes spaces off the beginning, at most one: what the normaliser has put there.
absl::Status ReadStrip(const Json& decoder, TokenizerSpec& spec) {
  const Json& start = JsonMember(decoder, "start");
  const bool is_known = JsonMember(decoder, "content") == " " && JsonMember(decoder, "stop") == 0 &&
                        (start == 0 || start == 1);
  if (!is_known) return JsonUnsupported("decoder Strip", decoder.dump());
  if (start == 1) spec.leading_spaces = LeadingSpaces::kOneDropped;
  return absl::OkStatus();
}

absl::Status ReadDecoderPart(const Json& decoder, TokenizerSpec& spec) {
  const std::string type = JsonType(decoder);
  if (type == "ByteFallback" || type == "Fuse") return absl::OkStatus();
  if (type == "Strip") return ReadStrip(decoder, spec);
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(const PrefixRule rule, PrefixRuleOf(decoder));
    if (rule != PrefixRule::kNever) spec.leading_spaces = LeadingSpaces::kOneDropped;
    spec.marks_spaces = true;
    return absl::OkStatus();
  }
  if (type != "Replace") return JsonUnsupported("decoder", type);
  const Json& from = JsonMember(JsonMember(decoder, "pattern"), "String");
  if (from != std::string(kSpaceMark) || JsonMember(decoder, "content") != " ") {
    return JsonUnsupported("decoder Replace", decoder.dump());
  }
  spec.marks_spaces = true;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadJsonNormalizer(const Json& normalizer, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<const Json*> steps, PartsOf(normalizer, "normalizers"));
  for (const Json* step : steps) RETURN_IF_ERROR(ReadNormalizerStep(*step, spec));
  return absl::OkStatus();
}

absl::Status ReadJsonPreTokenizer(const Json& pre_tokenizer, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<const Json*> stages, PartsOf(pre_tokenizer, "pretokenizers"));
  for (const Json* stage : stages) RETURN_IF_ERROR(ReadPreTokenizerStage(*stage, spec));
  return absl::OkStatus();
}

absl::Status ReadJsonDecoder(const Json& decoder, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<const Json*> parts, PartsOf(decoder, "decoders"));
  if (spec.model == TokenModelKind::kByteLevelBpe) {
    const bool is_known = parts.size() == 1 && JsonType(*parts[0]) == "ByteLevel";
    return is_known ? absl::OkStatus()
                    : JsonUnsupported("decoder of a ByteLevel pre_tokenizer", JsonType(decoder));
  }
  for (const Json* part : parts) RETURN_IF_ERROR(ReadDecoderPart(*part, spec));
  if (spec.marks_spaces) return absl::OkStatus();
  return JsonUnsupported("decoder without a replacement of U+2581", JsonType(decoder));
}

}  // namespace cairn
