#include "model/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "model/added_tokens.h"
#include "model/byte_level_bpe.h"
#include "model/piece_bpe.h"
#include "model/piece_vocabulary.h"
#include "model/pre_tokenizer.h"
#include "model/subword_model.h"
#include "model/text_normalizer.h"
#include "model/tokenizer_spec.h"
#include "model/unicode.h"
#include "model/unigram.h"
#include "model/utf8.h"

namespace cairn {
namespace {

absl::Status CheckLimit(std::string_view what, size_t value, int64_t limit) {
  if (static_cast<int64_t>(value) <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: too many ",
                                                 absl::string_view(what.data(), what.size()),
                                                 ": count=", value, " limit=", limit));
}

// A list by token id has as many entries as there are tokens, or none.
absl::Status CheckLength(std::string_view what, size_t length, size_t num_tokens) {
  if (length == 0 || length == num_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("vocabulary: number of ", absl::string_view(what.data(), what.size()),
                   " differs from that of tokens: ", length, " and ", num_tokens));
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
  RETURN_IF_ERROR(CheckLength("scores", spec.scores.size(), spec.tokens.size()));
  RETURN_IF_ERROR(CheckLength("piece types", spec.piece_types.size(), spec.tokens.size()));
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
    // A piece of the user is written with marks in the vocabulary.
    const bool has_other_text =
        id < spec.tokens.size() && !spec.tokens[id].empty() && spec.tokens[id] != token.text;
    if (has_other_text && !token.is_piece) {
      return absl::InvalidArgumentError(absl::StrCat("added tokens: id is another token's: \"",
                                                     Printable(token.text), "\" and \"",
                                                     Printable(spec.tokens[id]), "\" id=", id));
    }
    vocab_size = std::max(vocab_size, id + 1);
  }
  spec.tokens.resize(vocab_size);
  if (!spec.scores.empty()) spec.scores.resize(vocab_size);
  if (!spec.piece_types.empty()) spec.piece_types.resize(vocab_size, PieceType::kReserved);
  RETURN_IF_ERROR(CheckId("unknown_token_id", spec.unknown_id, vocab_size));
  RETURN_IF_ERROR(CheckId("bos_token_id", spec.bos_id, vocab_size));
  return CheckId("eos_token_id", spec.eos_id, vocab_size);
}

// What a token that is not an added one stands for.
std::string PlainTokenBytes(const TokenizerSpec& spec, size_t id) {
  const std::string& token = spec.tokens[id];
  std::string bytes;
  if (spec.model == TokenModelKind::kByteLevelBpe) {
    return DecodeByteLevelText(token, bytes) ? bytes : token;
  }
  const bool is_byte =
      !spec.piece_types.empty() && spec.piece_types[id] == PieceType::kByte && spec.byte_fallback;
  if (const int byte = ByteOfToken(token); is_byte && byte >= 0) {
    return std::string(1, static_cast<char>(byte));
  }
  return spec.marks_spaces ? WithoutSpaceMarks(token) : token;
}

absl::StatusOr<std::unique_ptr<SubwordModel>> CreateModel(
    const TokenizerSpec& spec, const std::vector<absl::string_view>& bytes_of_token,
    const std::vector<bool>& special) {
  switch (spec.model) {
    case TokenModelKind::kByteLevelBpe:
      return ByteLevelBpe::Create(spec, bytes_of_token, special);
    case TokenModelKind::kPieceBpe:
      return PieceBpe::Create(spec, special);
    case TokenModelKind::kUnigram:
      return Unigram::Create(spec);
  }
  return absl::InternalError("a kind of model that is none");
}

}  // namespace

struct Tokenizer::PartOptions {
  const PreTokenizer::Matcher& matcher;
  UserPieces user_pieces = UserPieces::kAll;
  // Tokens that are matched in normalised text are looked for, control tokens too or not.
  bool find_normalized = false;
  bool parse_special = false;
};

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

void Tokenizer::AddTokenBytes(const TokenizerSpec& spec) {
  const size_t vocab_size = spec.tokens.size();
  std::vector<const std::string*> literal(vocab_size);  // of added tokens
  special_.resize(vocab_size);
  for (const AddedToken& token : spec.added_tokens) {
    literal[token.id] = &token.text;
    special_[token.id] = token.special;
  }
  token_offsets_.push_back(0);
  for (size_t id = 0; id < vocab_size; ++id) {
    if (literal[id] == nullptr) {
      token_bytes_.append(PlainTokenBytes(spec, id));
    } else {
      token_bytes_.append(spec.marks_spaces ? WithoutSpaceMarks(*literal[id]) : *literal[id]);
    }
    token_offsets_.push_back(static_cast<int64_t>(token_bytes_.size()));
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer());
  tokenizer->AddTokenBytes(spec);
  std::vector<absl::string_view> bytes_of_token(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view token = tokenizer->TokenBytes(static_cast<int32_t>(id));
    bytes_of_token[id] = absl::string_view(token.data(), token.size());
  }
  ASSIGN_OR_RETURN(tokenizer->model_, CreateModel(spec, bytes_of_token, tokenizer->special_));
  ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_, PreTokenizer::Create(spec.split_stages));
  ASSIGN_OR_RETURN(tokenizer->normalizer_,
                   TextNormalizer::Create(std::move(spec.normalizer_steps)));
  ASSIGN_OR_RETURN(tokenizer->piece_normalizer_,
                   TextNormalizer::Create(std::move(spec.piece_normalizer_steps)));
  const auto normalize = [&](std::string_view text) {
    return tokenizer->normalizer_->Apply(text, PartPosition::kTextStart);
  };
  ASSIGN_OR_RETURN(tokenizer->added_tokens_,
                   AddedTokens::Create(std::move(spec.added_tokens), normalize));
  tokenizer->bos_id_ = spec.bos_id;
  tokenizer->eos_id_ = spec.eos_id;
  tokenizer->add_bos_ = spec.add_bos && spec.bos_id.has_value();
  tokenizer->add_eos_ = spec.add_eos && spec.eos_id.has_value();
  if (spec.leading_spaces == LeadingSpaces::kOneDropped) tokenizer->max_leading_spaces_ = 1;
  if (spec.leading_spaces == LeadingSpaces::kDropped) tokenizer->max_leading_spaces_ = SIZE_MAX;
  return tokenizer;
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

PartPosition Tokenizer::PositionAfter(int32_t id) const {
  return id == bos_id_ || id == eos_id_ ? PartPosition::kAfterBoundaryToken : PartPosition::kInside;
}

absl::Status Tokenizer::EncodeSpans(std::string_view text, std::span<const TextSpan> spans,
                                    PartPosition position, EncodePart encode_part,
                                    const PartOptions& options, std::vector<int32_t>& ids) const {
  for (const TextSpan& span : spans) {
    if (span.id == TextSpan::kPlain) {
      RETURN_IF_ERROR((this->*encode_part)(text.substr(span.begin, span.end - span.begin), position,
                                           options, ids));
    } else {
      ids.push_back(span.id);
      position = PositionAfter(span.id);
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodePlain(std::string_view text, PartPosition position,
                                    const PartOptions& options, std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    if (valid > 0 && normalizer_->empty()) {
      RETURN_IF_ERROR(EncodeNormalized(text.substr(0, valid), position, options, ids));
    } else if (valid > 0) {
      ASSIGN_OR_RETURN(const std::string normalized,
                       normalizer_->Apply(text.substr(0, valid), position));
      RETURN_IF_ERROR(EncodeNormalized(normalized, position, options, ids));
    }
    text.remove_prefix(valid);
    // What is not UTF-8 is a piece of its own: its bytes survive.
    size_t invalid = 0;
    while (invalid < text.size()) {
      const DecodedCharacter character = DecodeCharacter(text.substr(invalid));
      if (character.kind == DecodedCharacter::Kind::kValid) break;
      invalid += character.bytes;
    }
    if (invalid > 0) model_->Encode(text.substr(0, invalid), options.user_pieces, ids);
    text.remove_prefix(invalid);
    position = PartPosition::kInside;
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodeNormalized(std::string_view text, PartPosition position,
                                         const PartOptions& options,
                                         std::vector<int32_t>& ids) const {
  if (!options.find_normalized) return EncodePieces(text, position, options, ids);
  return EncodeSpans(text, added_tokens_->FindNormalized(text, options.parse_special), position,
                     &Tokenizer::EncodePieces, options, ids);
}

absl::Status Tokenizer::EncodePieces(std::string_view text, PartPosition position,
                                     const PartOptions& options, std::vector<int32_t>& ids) const {
  std::string normalized;
  if (!piece_normalizer_->empty()) {
    ASSIGN_OR_RETURN(normalized, piece_normalizer_->Apply(text, position));
    text = normalized;
  }
  return pre_tokenizer_->Split(text, options.matcher, [&](std::string_view piece) {
    model_->Encode(piece, options.user_pieces, ids);
  });
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (static_cast<int64_t>(text.size()) > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text is too long: bytes=", text.size(), " limit=", kMaxTextBytes));
  }
  std::vector<int32_t> ids;
  const PreTokenizer::Matcher matcher;
  RETURN_IF_ERROR(EncodeSpans(
      text, added_tokens_->Find(text, options.parse_special), PartPosition::kTextStart,
      &Tokenizer::EncodePlain,
      {.matcher = matcher, .find_normalized = true, .parse_special = options.parse_special}, ids));
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
  const PreTokenizer::Matcher matcher;
  RETURN_IF_ERROR(EncodeSpans(text, added_tokens_->FindInScaffolding(text, scaffolding),
                              PartPosition::kTextStart, &Tokenizer::EncodePlain,
                              {.matcher = matcher, .user_pieces = UserPieces::kSpacesOnly}, ids));
  return ids;
}

}  // namespace cairn
