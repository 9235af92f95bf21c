// The tokenizer in a GGUF file's metadata (tokenizer.ggml.*).
#include <array>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/checkpoint.h"
#include "model/tokenizer_spec.h"
#include "model/utf8.h"

namespace cairn {
namespace {

// What a value of tokenizer.ggml.pre stands for.
struct PreTokenizerKind {
  std::string_view name;
  std::array<std::string_view, 2> patterns;  // stages; empty ones are none
  bool ignore_merges;
  bool add_bos;  // unless the file says otherwise
};

constexpr std::string_view kLlama3SplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr PreTokenizerKind kKinds[] = {
    {"gpt-2", {kGpt2SplitPattern, ""}, false, false},
    {"smollm", {kDigitSplitPattern, kGpt2SplitPattern}, false, false},
    {"starcoder", {kDigitSplitPattern, kGpt2SplitPattern}, false, false},
    {"refact", {kDigitSplitPattern, kGpt2SplitPattern}, false, false},
    {"llama-bpe", {kLlama3SplitPattern, ""}, true, true},
    {"llama3", {kLlama3SplitPattern, ""}, true, true},
    {"llama-v3", {kLlama3SplitPattern, ""}, true, true},
};

// Values of tokenizer.ggml.token_type.
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

class Reader {
 public:
  explicit Reader(const Metadata& metadata) : metadata_(metadata) {}

  absl::StatusOr<std::string_view> String(std::string_view key) const {
    const MetadataValue* value = metadata_.Find(key);
    if (value == nullptr) return absl::NotFoundError(Text(key, " is missing"));
    const std::optional<std::string_view> text = value->AsString();
    if (!text.has_value()) return absl::InvalidArgumentError(Text(key, " is not a string"));
    return *text;
  }

  absl::StatusOr<std::vector<std::string_view>> Strings(std::string_view key,
                                                        int64_t max_count) const {
    const MetadataValue* value = metadata_.Find(key);
    if (value == nullptr) return absl::InvalidArgumentError(Text(key, " is missing"));
    if (value->is_array() && value->count > max_count) {
      return absl::InvalidArgumentError(
          absl::StrCat(Text(key, " is too long: count="), value->count, " limit=", max_count));
    }
    std::optional<std::vector<std::string_view>> strings = value->AsStrings();
    if (!strings.has_value()) {
      return absl::InvalidArgumentError(Text(key, " is not an array of strings"));
    }
    return *std::move(strings);
  }

  absl::StatusOr<std::optional<int32_t>> Id(std::string_view key) const {
    const MetadataValue* value = metadata_.Find(key);
    if (value == nullptr) return std::nullopt;
    const std::optional<int64_t> id = value->AsInteger();
    if (!id.has_value()) return absl::InvalidArgumentError(Text(key, " is not an integer"));
    // Converters write -1 as a 32-bit number for "none".
    if (*id == -1 || *id == std::numeric_limits<uint32_t>::max()) return std::nullopt;
    if (*id < 0 || *id >= kMaxVocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat(Text(key, " is out of range: id="), *id, " limit=", kMaxVocabulary));
    }
    return static_cast<int32_t>(*id);
  }

  absl::StatusOr<bool> Bool(std::string_view key, bool when_missing) const {
    const MetadataValue* value = metadata_.Find(key);
    if (value == nullptr) return when_missing;
    const std::optional<bool> flag = value->AsBool();
    if (!flag.has_value()) return absl::InvalidArgumentError(Text(key, " is not a bool"));
    return *flag;
  }

  absl::StatusOr<std::vector<int64_t>> TokenTypes(size_t num_tokens) const {
    constexpr std::string_view kKey = "tokenizer.ggml.token_type";
    const MetadataValue* value = metadata_.Find(kKey);
    if (value == nullptr) return std::vector<int64_t>(num_tokens, kNormal);
    if (value->is_array() && value->count != static_cast<int64_t>(num_tokens)) {
      return absl::InvalidArgumentError(absl::StrCat(
          Text(kKey, " has another length than the tokens: "), value->count, " and ", num_tokens));
    }
    std::optional<std::vector<int64_t>> types = value->AsIntegers();
    if (!types.has_value()) {
      return absl::InvalidArgumentError(Text(kKey, " is not an array of integers"));
    }
    return *std::move(types);
  }

 private:
  static std::string Text(std::string_view key, std::string_view what) {
    return std::string(key) + std::string(what);
  }

  const Metadata& metadata_;
};

absl::StatusOr<const PreTokenizerKind*> FindKind(const Reader& reader) {
  std::vector<std::string> known;
  absl::StatusOr<std::string_view> name = reader.String("tokenizer.ggml.pre");
  if (!name.ok()) {
    return absl::UnimplementedError(
        absl::StrCat(name.status().message(), ": which way to split text is not known"));
  }
  for (const PreTokenizerKind& kind : kKinds) {
    if (kind.name == *name) return &kind;
    known.emplace_back(kind.name);
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.pre is unknown: \"",
                                               Printable(*name),
                                               "\" known: ", absl::StrJoin(known, ", ")));
}

absl::Status ReadTokens(const Reader& reader, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens,
                   reader.Strings("tokenizer.ggml.tokens", kMaxVocabulary));
  ASSIGN_OR_RETURN(const std::vector<int64_t> types, reader.TokenTypes(tokens.size()));
  spec.tokens.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int64_t type = types[id];
    if (type < kNormal || type > kUnused) {
      return absl::UnimplementedError(absl::StrCat(
          "tokenizer.ggml.token_type is unknown for byte-level BPE: type=", type, " id=", id));
    }
    spec.tokens.emplace_back(type == kUnused ? std::string_view() : tokens[id]);
    if (type == kControl || type == kUnknown || type == kUserDefined) {
      spec.added_tokens.push_back({.id = static_cast<int32_t>(id),
                                   .text = std::string(tokens[id]),
                                   .special = type != kUserDefined});
    }
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const Reader& reader, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<std::string_view> merges,
                   reader.Strings("tokenizer.ggml.merges", kMaxMerges));
  spec.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t space = merges[i].find(' ', 1);
    if (space == merges[i].npos) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.merges: no space in \"",
                                                     Printable(merges[i]), "\" merge=", i));
    }
    spec.merges.emplace_back(merges[i].substr(0, space), merges[i].substr(space + 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const Checkpoint& checkpoint) {
  const Reader reader(checkpoint.metadata());
  const absl::StatusOr<std::string_view> model = reader.String("tokenizer.ggml.model");
  if (!model.ok()) return Annotate(model.status(), "no tokenizer");
  if (*model == "none") return absl::NotFoundError("no tokenizer: the file has no vocabulary");
  if (*model != "gpt2") {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer.ggml.model is unknown: \"", Printable(*model), "\" known: gpt2"));
  }
  ASSIGN_OR_RETURN(const PreTokenizerKind* kind, FindKind(reader));
  TokenizerSpec spec;
  for (const std::string_view pattern : kind->patterns) {
    if (!pattern.empty()) spec.split_patterns.emplace_back(pattern);
  }
  spec.ignore_merges = kind->ignore_merges;
  RETURN_IF_ERROR(ReadTokens(reader, spec));
  RETURN_IF_ERROR(ReadMerges(reader, spec));
  ASSIGN_OR_RETURN(spec.bos_id, reader.Id("tokenizer.ggml.bos_token_id"));
  ASSIGN_OR_RETURN(spec.eos_id, reader.Id("tokenizer.ggml.eos_token_id"));
  ASSIGN_OR_RETURN(spec.add_bos, reader.Bool("tokenizer.ggml.add_bos_token", kind->add_bos));
  ASSIGN_OR_RETURN(spec.add_eos, reader.Bool("tokenizer.ggml.add_eos_token", false));
  return spec;
}

}  // namespace cairn
