// The tokenizer in a GGUF file's metadata (tokenizer.ggml.*).
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "model/checkpoint.h"
#include "model/tokenizer_spec.h"
#include "model/utf8.h"

namespace cairn {
namespace {

// What a value of tokenizer.ggml.pre stands for.
struct PreTokenizerKind {
  std::string_view name;
  std::span<const std::string_view> patterns;  // stages
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
  bool is_nfc = false;   // text is brought into that normal form first
};

constexpr std::string_view kGpt2[] = {kGpt2SplitPattern};
constexpr std::string_view kDigitsThenGpt2[] = {kDigitSplitPattern, kGpt2SplitPattern};

constexpr std::string_view kLlama3[] = {kThreeDigitsSplitPattern};

constexpr std::string_view kQwen2[] = {kOneDigitSplitPattern};

constexpr std::string_view kTekken[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr std::string_view kDeepSeekCoder[] = {
    R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", kDigitSplitPattern};

// The letters of the second stage are listed in the model's files one by one.
constexpr std::string_view kDeepSeekLlm[] = {
    R"([\r\n])",
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A})"
    R"(\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556})"
    R"(\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"
    R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
    R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4})"
    R"(\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})"
    R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F})"
    R"(\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"
    R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943}]+)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)",
    kDigitSplitPattern};

constexpr std::string_view kDeepSeekV3[] = {
    R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr PreTokenizerKind kKinds[] = {
    {.name = "gpt-2", .patterns = kGpt2},
    {.name = "smollm", .patterns = kDigitsThenGpt2},
    {.name = "starcoder", .patterns = kDigitsThenGpt2},
    {.name = "refact", .patterns = kDigitsThenGpt2},
    {.name = "llama-bpe", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.name = "qwen2", .patterns = kQwen2, .is_nfc = true},
    {.name = "deepseek-r1-qwen", .patterns = kQwen2, .is_nfc = true},
    {.name = "tekken", .patterns = kTekken, .ignore_merges = true},
    {.name = "deepseek-coder", .patterns = kDeepSeekCoder},
    {.name = "deepseek-llm", .patterns = kDeepSeekLlm},
    {.name = "deepseek-v3", .patterns = kDeepSeekV3},
};

// Values of tokenizer.ggml.token_type.
enum TokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

class Reader {
 public:
  explicit Reader(const Metadata& metadata) : metadata_(metadata) {}

  bool Has(std::string_view key) const { return metadata_.Find(key) != nullptr; }

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

  absl::StatusOr<std::vector<double>> Scores(size_t num_tokens) const {
    constexpr std::string_view kKey = "tokenizer.ggml.scores";
    const MetadataValue* value = metadata_.Find(kKey);
    if (value == nullptr) return absl::InvalidArgumentError(Text(kKey, " is missing"));
    if (!value->is_array_of(MetadataType::kFloat32)) {
      return absl::InvalidArgumentError(Text(kKey, " is not an array of 32-bit floats"));
    }
    if (value->count != static_cast<int64_t>(num_tokens)) {
      return absl::InvalidArgumentError(absl::StrCat(
          Text(kKey, " has another length than the tokens: "), value->count, " and ", num_tokens));
    }
    return *value->AsNumbers();
  }

  // The bytes of an array of them; none if it is missing.
  absl::StatusOr<std::string> Bytes(std::string_view key, int64_t max_count) const {
    const MetadataValue* value = metadata_.Find(key);
    if (value == nullptr) return std::string();
    if (!value->is_array_of(MetadataType::kUint8) && !value->is_array_of(MetadataType::kInt8)) {
      return absl::InvalidArgumentError(Text(key, " is not an array of bytes"));
    }
    if (value->count > max_count) {
      return absl::InvalidArgumentError(
          absl::StrCat(Text(key, " is too long: bytes="), value->count, " limit=", max_count));
    }
    return std::string(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
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

absl::Status ReadByteLevel(const Reader& reader, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const PreTokenizerKind* kind, FindKind(reader));
  for (const std::string_view pattern : kind->patterns) {
    spec.split_stages.push_back({std::string(pattern)});
  }
  if (kind->is_nfc) {
    spec.normalizer_steps.push_back(
        {.kind = NormalizerStep::Kind::kUnicodeForm, .form = UnicodeForm::kNfc});
  }
  spec.ignore_merges = kind->ignore_merges;
  spec.add_bos = kind->add_bos;
  RETURN_IF_ERROR(ReadTokens(reader, spec));
  return ReadMerges(reader, spec);
}

PieceType PieceTypeOf(int64_t token_type) {
  switch (token_type) {
    case kUnknown:
    case kControl:
      return PieceType::kReserved;
    case kUserDefined:
      return PieceType::kUserDefined;
    case kUnused:
      return PieceType::kUnused;
    case kByte:
      return PieceType::kByte;
    default:
      return PieceType::kNormal;
  }
}

// The text with the mark for each space: files have user-defined pieces in either form.
std::string WithMarks(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{" ", absl::string_view(kSpaceMark.data(), kSpaceMark.size())}});
}

absl::Status ReadPieces(const Reader& reader, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens,
                   reader.Strings("tokenizer.ggml.tokens", kMaxVocabulary));
  ASSIGN_OR_RETURN(const std::vector<int64_t> types, reader.TokenTypes(tokens.size()));
  ASSIGN_OR_RETURN(spec.scores, reader.Scores(tokens.size()));
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int64_t type = types[id];
    if (type < kNormal || type > kByte) {
      return absl::UnimplementedError(
          absl::StrCat("tokenizer.ggml.token_type is unknown for pieces: type=", type, " id=", id));
    }
    spec.AddPiece(type == kUserDefined ? WithMarks(tokens[id]) : std::string(tokens[id]),
                  PieceTypeOf(type));
    if (type == kUnknown && !spec.unknown_id.has_value()) {
      spec.unknown_id = static_cast<int32_t>(id);
    }
  }
  return absl::OkStatus();
}

// SentencePiece models, whose rules are keys of their own here.
absl::Status ReadSentencePiece(const Reader& reader, TokenizerSpec& spec) {
  const bool is_unigram = spec.model == TokenModelKind::kUnigram;
  RETURN_IF_ERROR(ReadPieces(reader, spec));
  ASSIGN_OR_RETURN(const std::optional<int32_t> unknown_id,
                   reader.Id("tokenizer.ggml.unknown_token_id"));
  if (unknown_id.has_value()) spec.unknown_id = unknown_id;
  NormalizerStep rules{.kind = NormalizerStep::Kind::kSentencePiece};
  // As the programs of this format do: after every control token as at the text's beginning.
  ASSIGN_OR_RETURN(const bool prefix, reader.Bool("tokenizer.ggml.add_space_prefix", !is_unigram));
  if (prefix) rules.prefix_rule = PrefixRule::kEveryPart;
  ASSIGN_OR_RETURN(rules.remove_extra_spaces,
                   reader.Bool("tokenizer.ggml.remove_extra_whitespaces", false));
  ASSIGN_OR_RETURN(rules.chars_map,
                   reader.Bytes("tokenizer.ggml.precompiled_charsmap", kMaxCharsMapBytes));
  spec.UseSentencePieceRules(std::move(rules));
  // The ids of a file without these keys.
  spec.add_bos = !is_unigram;
  spec.add_eos = is_unigram;
  if (!is_unigram) spec.bos_id = 1;
  spec.eos_id = is_unigram ? 1 : 2;
  return absl::OkStatus();
}

absl::Status ReadModel(const Reader& reader, TokenizerSpec& spec) {
  const absl::StatusOr<std::string_view> model = reader.String("tokenizer.ggml.model");
  if (!model.ok()) return Annotate(model.status(), "no tokenizer");
  if (*model == "none") return absl::NotFoundError("no tokenizer: the file has no vocabulary");
  if (*model == "gpt2") return ReadByteLevel(reader, spec);
  if (*model == "llama") {
    spec.model = TokenModelKind::kPieceBpe;
    return ReadSentencePiece(reader, spec);
  }
  if (*model == "t5") {
    spec.model = TokenModelKind::kUnigram;
    return ReadSentencePiece(reader, spec);
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model is unknown: \"",
                                               Printable(*model), "\" known: gpt2, llama, t5"));
}

// Reads an id that may be missing: `id` then stays.
absl::Status ReadId(const Reader& reader, std::string_view key, std::optional<int32_t>& id) {
  if (!reader.Has(key)) return absl::OkStatus();
  ASSIGN_OR_RETURN(id, reader.Id(key));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const Checkpoint& checkpoint) {
  const Reader reader(checkpoint.metadata());
  TokenizerSpec spec;
  RETURN_IF_ERROR(ReadModel(reader, spec));
  RETURN_IF_ERROR(ReadId(reader, "tokenizer.ggml.bos_token_id", spec.bos_id));
  RETURN_IF_ERROR(ReadId(reader, "tokenizer.ggml.eos_token_id", spec.eos_id));
  ASSIGN_OR_RETURN(spec.add_bos, reader.Bool("tokenizer.ggml.add_bos_token", spec.add_bos));
  ASSIGN_OR_RETURN(spec.add_eos, reader.Bool("tokenizer.ggml.add_eos_token", spec.add_eos));
  return spec;
}

}  // namespace cairn
