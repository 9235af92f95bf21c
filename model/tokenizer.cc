#include "model/tokenizer.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "model/added_tokens.h"
#include "model/byte_level_bpe.h"
#include "model/checkpoint.h"
#include "model/json_text.h"
#include "model/pre_tokenizer.h"
#include "model/tokenizer_spec.h"
#include "model/unicode.h"
#include "model/utf8.h"

namespace cairn {
namespace {

absl::Status CheckLimit(std::string_view what, size_t value, int64_t limit) {
  if (static_cast<int64_t>(value) <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: too many ",
                                                 absl::string_view(what.data(), what.size()),
                                                 ": count=", value, " limit=", limit));
}

absl::Status CheckTokenText(std::string_view text, int64_t id) {
  if (static_cast<int64_t>(text.size()) > kMaxTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("vocabulary: token is too long: id=", id,
                                                   " bytes=", text.size(),
                                                   " limit=", kMaxTokenBytes));
  }
  if (!IsValidUtf8(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocabulary: token is not UTF-8: \"", Printable(text), "\" id=", id));
  }
  return absl::OkStatus();
}

absl::Status CheckId(std::string_view field, std::optional<int32_t> id, int64_t vocab_size) {
  if (!id.has_value() || (*id >= 0 && *id < vocab_size)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(field.data(), field.size()),
                                                 " is outside the vocabulary: id=", *id,
                                                 " vocabulary=", vocab_size));
}

// Checks sizes, ids and texts, and makes room for added tokens past the end of the vocabulary.
absl::Status CheckSpec(TokenizerSpec& spec) {
  RETURN_IF_ERROR(CheckLimit("tokens", spec.tokens.size(), kMaxVocabulary));
  RETURN_IF_ERROR(CheckLimit("merges", spec.merges.size(), kMaxMerges));
  RETURN_IF_ERROR(CheckLimit("added tokens", spec.added_tokens.size(), kMaxAddedTokens));
  RETURN_IF_ERROR(CheckLimit("split stages", spec.split_patterns.size(), kMaxSplitStages));
  for (const std::string& pattern : spec.split_patterns) {
    RETURN_IF_ERROR(CheckLimit("bytes in a split pattern", pattern.size(), kMaxPatternBytes));
  }
  absl::flat_hash_set<absl::string_view> seen;
  seen.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].empty()) continue;
    RETURN_IF_ERROR(CheckTokenText(spec.tokens[id], id));
    if (!seen.insert(spec.tokens[id]).second) {
      return absl::InvalidArgumentError(absl::StrCat("vocabulary: token is there twice: \"",
                                                     Printable(spec.tokens[id]), "\" id=", id));
    }
  }
  size_t vocab_size = spec.tokens.size();
  absl::flat_hash_set<int32_t> added_ids;
  for (const AddedToken& token : spec.added_tokens) {
    RETURN_IF_ERROR(CheckTokenText(token.text, token.id));
    RETURN_IF_ERROR(CheckId("added token", token.id, kMaxVocabulary));
    if (!added_ids.insert(token.id).second) {
      return absl::InvalidArgumentError(absl::StrCat("added tokens: id is there twice: \"",
                                                     Printable(token.text), "\" id=", token.id));
    }
    const size_t id = token.id;
    if (id < spec.tokens.size() && !spec.tokens[id].empty() && spec.tokens[id] != token.text) {
      return absl::InvalidArgumentError(absl::StrCat("added tokens: id is another token's: \"",
                                                     Printable(token.text), "\" and \"",
                                                     Printable(spec.tokens[id]), "\" id=", id));
    }
    vocab_size = std::max(vocab_size, id + 1);
  }
  spec.tokens.resize(vocab_size);
  RETURN_IF_ERROR(CheckId("bos_token_id", spec.bos_id, vocab_size));
  return CheckId("eos_token_id", spec.eos_id, vocab_size);
}

// Appends the ids of text without added tokens.
absl::Status EncodePlain(std::string_view text, const PreTokenizer& pre_tokenizer,
                         const PreTokenizer::Matcher& matcher, const ByteLevelBpe& bpe,
                         std::vector<int32_t>& ids) {
  const auto encode_piece = [&](std::string_view piece) { bpe.Encode(piece, ids); };
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    RETURN_IF_ERROR(pre_tokenizer.Split(text.substr(0, valid), matcher, encode_piece));
    text.remove_prefix(valid);
    // What is not UTF-8 is a piece of its own: its bytes survive.
    size_t invalid = 0;
    while (invalid < text.size()) {
      const DecodedCharacter character = DecodeCharacter(text.substr(invalid));
      if (character.kind == DecodedCharacter::Kind::kValid) break;
      invalid += character.bytes;
    }
    if (invalid > 0) encode_piece(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
  return absl::OkStatus();
}

}  // namespace

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer());
  const size_t vocab_size = spec.tokens.size();

  std::vector<const std::string*> literal(vocab_size);  // of added tokens
  tokenizer->special_.resize(vocab_size);
  for (const AddedToken& token : spec.added_tokens) {
    literal[token.id] = &token.text;
    tokenizer->special_[token.id] = token.special;
  }
  tokenizer->token_offsets_.push_back(0);
  std::string bytes;
  for (size_t id = 0; id < vocab_size; ++id) {
    if (literal[id] != nullptr) {
      bytes = *literal[id];
    } else if (!DecodeByteLevelText(spec.tokens[id], bytes)) {
      bytes = spec.tokens[id];
    }
    tokenizer->token_bytes_.append(bytes);
    tokenizer->token_offsets_.push_back(static_cast<int64_t>(tokenizer->token_bytes_.size()));
  }
  std::vector<absl::string_view> bytes_of_token(vocab_size);
  for (size_t id = 0; id < vocab_size; ++id) {
    const std::string_view token = tokenizer->TokenBytes(static_cast<int32_t>(id));
    bytes_of_token[id] = absl::string_view(token.data(), token.size());
  }
  ASSIGN_OR_RETURN(tokenizer->bpe_,
                   ByteLevelBpe::Create(spec, bytes_of_token, tokenizer->special_));
  ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_, PreTokenizer::Create(spec.split_patterns));
  ASSIGN_OR_RETURN(tokenizer->added_tokens_, AddedTokens::Create(std::move(spec.added_tokens)));
  tokenizer->bos_id_ = spec.bos_id;
  tokenizer->eos_id_ = spec.eos_id;
  tokenizer->add_bos_ = spec.add_bos && spec.bos_id.has_value();
  tokenizer->add_eos_ = spec.add_eos && spec.eos_id.has_value();
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromCheckpoint(const Checkpoint& checkpoint) {
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromGguf(checkpoint));
    return Create(std::move(spec));
  }
  if (!checkpoint.is_directory()) {
    return absl::NotFoundError(absl::StrCat("no tokenizer: ", checkpoint.path(),
                                            " is one safetensors file; give its folder"));
  }
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromFolder(checkpoint.path()));
  return Create(std::move(spec));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromFile(const std::string& path) {
  const std::filesystem::path file(path);
  std::error_code error;
  absl::StatusOr<TokenizerSpec> spec;
  if (std::filesystem::is_directory(file, error)) {
    spec = TokenizerSpecFromFolder(path);
  } else if (file.extension() == ".json") {
    spec = TokenizerSpecFromJsonFile(path);
  } else {
    ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(path));
    return FromCheckpoint(*checkpoint);
  }
  if (!spec.ok()) return std::move(spec).status();
  return Create(*std::move(spec));
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return std::string_view(token_bytes_)
      .substr(token_offsets_[id], token_offsets_[id + 1] - token_offsets_[id]);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && special_[id];
}

std::optional<int32_t> Tokenizer::FindAddedToken(std::string_view text) const {
  return added_tokens_->FindByText(text);
}

absl::Status Tokenizer::EncodeSpans(std::string_view text, std::span<const TextSpan> spans,
                                    std::vector<int32_t>& ids) const {
  const PreTokenizer::Matcher matcher;
  for (const TextSpan& span : spans) {
    if (span.id == TextSpan::kPlain) {
      RETURN_IF_ERROR(EncodePlain(text.substr(span.begin, span.end - span.begin), *pre_tokenizer_,
                                  matcher, *bpe_, ids));
    } else {
      ids.push_back(span.id);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (static_cast<int64_t>(text.size()) > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text is too long: bytes=", text.size(), " limit=", kMaxTextBytes));
  }
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(EncodeSpans(text, added_tokens_->Find(text, options.parse_special), ids));
  const bool begins = add_bos_ && (options.add_special || options.add_begin);
  const bool ends = add_eos_ && options.add_special;
  if (begins && (ids.empty() || ids.front() != *bos_id_)) ids.insert(ids.begin(), *bos_id_);
  if (ends && (ids.empty() || ids.back() != *eos_id_)) ids.push_back(*eos_id_);
  return ids;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeSegments(
    std::span<const TextSegment> segments) const {
  std::string text;
  std::vector<TextSpan> scaffolding;
  for (const TextSegment& segment : segments) {
    if (static_cast<int64_t>(text.size() + segment.text.size()) > kMaxTextBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("text is too long: bytes>=", text.size() + segment.text.size(),
                       " limit=", kMaxTextBytes));
    }
    const size_t begin = text.size();
    text.append(segment.text);
    if (segment.is_content || segment.text.empty()) continue;
    // Neighbours are one run: the template may write a control token in parts.
    if (!scaffolding.empty() && scaffolding.back().end == begin) {
      scaffolding.back().end = text.size();
    } else {
      scaffolding.push_back({begin, text.size(), TextSpan::kPlain});
    }
  }
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(EncodeSpans(text, added_tokens_->FindInScaffolding(text, scaffolding), ids));
  return ids;
}

}  // namespace cairn
