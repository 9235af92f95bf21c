// Byte-level tokenizers that say what each token's bytes are and leave the merges to be found: rank
// files, and tekken.json. Two tokens merge if their bytes together are a token, of the least rank
// first.
#include <array>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/byte_level_bpe.h"
#include "model/json_text.h"
#include "model/tokenizer_json_parts.h"
#include "model/tokenizer_spec.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxControlTokens = 1 << 16;
constexpr int kMaxTekkenDepth = 16;

// What a rank file leaves to the program that reads it.
struct RankFileKind {
  int64_t num_tokens;
  std::string_view pattern;
  bool is_nfc;
  bool add_bos;
  // Control tokens follow the others: these, then numbered ones up to `num_control_tokens`.
  std::span<const std::string_view> control_tokens;
  std::string_view numbered_prefix, numbered_suffix;
  int64_t first_number;
  int64_t num_control_tokens;
  std::string_view bos, eos;
};

constexpr std::string_view kControlTokensOf128000[] = {
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    "<|image|>",
};
constexpr std::string_view kControlTokensOf151643[] = {"<|endoftext|>", "<|im_start|>",
                                                       "<|im_end|>"};

constexpr RankFileKind kRankFileKinds[] = {
    {.num_tokens = 128000,
     .pattern = kThreeDigitsSplitPattern,
     .is_nfc = false,
     .add_bos = true,
     .control_tokens = kControlTokensOf128000,
     .numbered_prefix = "<|reserved_special_token_",
     .numbered_suffix = "|>",
     .first_number = 2,
     .num_control_tokens = 256,
     .bos = "<|begin_of_text|>",
     .eos = "<|end_of_text|>"},
    {.num_tokens = 151643,
     .pattern = kOneDigitSplitPattern,
     .is_nfc = true,
     .add_bos = false,
     .control_tokens = kControlTokensOf151643,
     .numbered_prefix = "<|extra_",
     .numbered_suffix = "|>",
     .first_number = 0,
     .num_control_tokens = 208,
     .bos = "",
     .eos = "<|endoftext|>"},
};

// What files of the older versions leave out, by id.
constexpr std::string_view kTekkenControlTokens[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};
constexpr const char* kTekkenVersionsWithoutControlTokens[] = {"v3", "v7"};

absl::Status AddToken(std::string_view base64, int64_t id, TokenizerSpec& spec) {
  std::string bytes;
  if (!absl::Base64Unescape(absl::string_view(base64.data(), base64.size()), &bytes) ||
      bytes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("token is not base64: \"", Printable(base64), "\" id=", id));
  }
  if (id < 0 || id >= kMaxVocabulary) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is out of range: id=", id, " limit=", kMaxVocabulary));
  }
  if (static_cast<int64_t>(bytes.size()) > kMaxTokenBytes / 2) {  // each is up to two as text
    return absl::InvalidArgumentError(absl::StrCat(
        "token is too long: id=", id, " bytes=", bytes.size(), " limit=", kMaxTokenBytes / 2));
  }
  if (spec.tokens.size() <= static_cast<size_t>(id)) spec.tokens.resize(id + 1);
  if (!spec.tokens[id].empty()) {
    return absl::InvalidArgumentError(absl::StrCat("rank is there twice: id=", id));
  }
  spec.tokens[id] = EncodeByteLevelText(bytes);
  return absl::OkStatus();
}

void AddControlToken(int64_t id, std::string_view text, bool normalized, TokenizerSpec& spec) {
  spec.added_tokens.push_back({.id = static_cast<int32_t>(id),
                               .text = std::string(text),
                               .special = true,
                               .normalized = normalized});
}

// A spec of tokens that merge by their ids.
TokenizerSpec RankedSpec() {
  TokenizerSpec spec;
  spec.merges_by_id = true;
  spec.ignore_merges = true;
  return spec;
}

// One token a line. Returns how many there are.
absl::StatusOr<int64_t> ReadRanks(std::string_view ranks, TokenizerSpec& spec) {
  int64_t count = 0;
  for (int64_t number = 1; !ranks.empty(); ++number) {
    const size_t length = std::min(ranks.find('\n'), ranks.size());
    std::string_view line = ranks.substr(0, length);
    ranks.remove_prefix(std::min(length + 1, ranks.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view digits = line.substr(std::min(space + 1, line.size()));
    int64_t id = 0;
    if (!absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " is no token and its rank: \"", Printable(line), "\""));
    }
    RETURN_IF_ERROR(
        Annotate(AddToken(line.substr(0, space), id, spec), absl::StrCat("line ", number)));
    ++count;
  }
  return count;
}

absl::Status AddKind(const RankFileKind& kind, TokenizerSpec& spec) {
  spec.split_stages.push_back({std::string(kind.pattern)});
  if (kind.is_nfc) {
    spec.normalizer_steps.push_back(
        {.kind = NormalizerStep::Kind::kUnicodeForm, .form = UnicodeForm::kNfc});
  }
  if (static_cast<int64_t>(spec.tokens.size()) != kind.num_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("ranks have gaps: tokens=", kind.num_tokens,
                                                   " greatest rank=", spec.tokens.size() - 1));
  }
  for (int64_t i = 0; i < kind.num_control_tokens; ++i) {
    const auto named = static_cast<int64_t>(kind.control_tokens.size());
    const std::string text = i < named ? std::string(kind.control_tokens[i])
                                       : std::string(kind.numbered_prefix) +
                                             absl::StrCat(kind.first_number + i - named) +
                                             std::string(kind.numbered_suffix);
    // The reference normalises a text before it looks for them.
    AddControlToken(kind.num_tokens + i, text, kind.is_nfc, spec);
  }
  spec.bos_id = FindTokenId(spec, kind.bos);
  spec.eos_id = FindTokenId(spec, kind.eos);
  spec.add_bos = kind.add_bos;
  return absl::OkStatus();
}

absl::StatusOr<TokenizerSpec> ReadRankFile(std::string_view ranks) {
  TokenizerSpec spec = RankedSpec();
  ASSIGN_OR_RETURN(const int64_t count, ReadRanks(ranks, spec));
  std::vector<int64_t> known;
  for (const RankFileKind& kind : kRankFileKinds) {
    known.push_back(kind.num_tokens);
    if (kind.num_tokens != count) continue;
    RETURN_IF_ERROR(AddKind(kind, spec));
    return spec;
  }
  return absl::UnimplementedError(
      absl::StrCat("how text is split is not known for a file of this number of tokens: ", count,
                   " known: ", absl::StrJoin(known, ", ")));
}

absl::StatusOr<int64_t> TekkenCount(const Json& config, const char* key, int64_t limit) {
  const Json& value = JsonMember(config, key);
  const bool in_range =
      value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(limit);
  if (in_range) return value.get<int64_t>();
  return absl::InvalidArgumentError(absl::StrCat("config.", key, " is not a number up to ", limit,
                                                 ": ", Printable(value.dump())));
}

absl::Status ReadTekkenControlTokens(const Json& root, int64_t limit, TokenizerSpec& spec) {
  const Json& tokens = JsonMember(root, "special_tokens");
  if (tokens.is_null()) {
    const Json& version = JsonMember(JsonMember(root, "config"), "version");
    const auto& known = kTekkenVersionsWithoutControlTokens;
    if (!version.is_string() ||
        std::find(std::begin(known), std::end(known), version.get_ref<const std::string&>()) ==
            std::end(known)) {
      return absl::UnimplementedError(
          absl::StrCat("config.version is unknown for a file without special_tokens: ",
                       Printable(version.dump()), " known: ", absl::StrJoin(known, ", ")));
    }
    for (int64_t id = 0; id < std::min<int64_t>(std::size(kTekkenControlTokens), limit); ++id) {
      AddControlToken(id, kTekkenControlTokens[id], false, spec);
    }
    return absl::OkStatus();
  }
  if (!tokens.is_array() || static_cast<int64_t>(tokens.size()) > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("special_tokens is not an array of at most ", limit));
  }
  for (const Json& token : tokens) {
    ASSIGN_OR_RETURN(const int64_t id, TekkenCount(token, "rank", limit - 1));
    const Json& text = JsonMember(token, "token_str");
    if (!text.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("special token has no text: id=", id));
    }
    ASSIGN_OR_RETURN(const bool is_control, JsonFlag(token, "is_control", true));
    AddControlToken(id, text.get_ref<const std::string&>(), false, spec);
    spec.added_tokens.back().special = is_control;
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerSpec> ReadTekken(std::string_view tekken_json) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(tekken_json, {.max_bytes = kMaxTokenizerFileBytes,
                                                            .max_depth = kMaxTekkenDepth}));
  TokenizerSpec spec = RankedSpec();
  const Json& config = JsonMember(root, "config");
  ASSIGN_OR_RETURN(const int64_t num_control,
                   TekkenCount(config, "default_num_special_tokens", kMaxControlTokens));
  ASSIGN_OR_RETURN(const int64_t vocab_size,
                   TekkenCount(config, "default_vocab_size", kMaxVocabulary));
  const Json& pattern = JsonMember(config, "pattern");
  if (!pattern.is_string()) return absl::InvalidArgumentError("config.pattern is not a string");
  spec.split_stages.push_back({pattern.get_ref<const std::string&>()});
  const Json& vocabulary = JsonMember(root, "vocab");
  const int64_t num_tokens = vocab_size - num_control;
  if (!vocabulary.is_array() || num_tokens <= 0 ||
      num_tokens > static_cast<int64_t>(vocabulary.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab is no array of as many tokens as config says: count=",
                     vocabulary.is_array() ? vocabulary.size() : 0, " needed=", num_tokens));
  }
  // The file has more than the model uses.
  for (int64_t rank = 0; rank < num_tokens; ++rank) {
    const Json& token = vocabulary[rank];
    const Json& bytes = JsonMember(token, "token_bytes");
    if (JsonMember(token, "rank") != rank || !bytes.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocab has another token than that of this rank: rank=", rank));
    }
    RETURN_IF_ERROR(AddToken(bytes.get_ref<const std::string&>(), num_control + rank, spec));
  }
  RETURN_IF_ERROR(ReadTekkenControlTokens(root, num_control, spec));
  spec.bos_id = FindTokenId(spec, "<s>");
  spec.eos_id = FindTokenId(spec, "</s>");
  spec.add_bos = true;
  return spec;
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromRanks(std::string_view ranks) {
  absl::StatusOr<TokenizerSpec> spec = ReadRankFile(ranks);
  if (!spec.ok()) return Annotate(spec.status(), "rank file");
  return spec;
}

absl::StatusOr<TokenizerSpec> TokenizerSpecFromTekken(std::string_view tekken_json) {
  absl::StatusOr<TokenizerSpec> spec = ReadTekken(tekken_json);
  if (!spec.ok()) return Annotate(spec.status(), "tekken.json");
  return spec;
}

}  // namespace cairn
