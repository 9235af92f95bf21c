// The tokenizer in a SentencePiece model file: a protocol buffer of pieces, of what the trainer was
// told, and of how text is normalised. Field numbers are those of sentencepiece_model.proto.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/tokenizer_spec.h"
#include "model/utf8.h"
#include "model/wire_reader.h"

namespace cairn {
namespace {

// What is read besides the pieces, with the defaults of the format.
struct ModelFile {
  uint64_t model_type = 1;
  bool byte_fallback = false;
  bool space_is_suffix = false;
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  std::string normalizer_name;
  std::string chars_map;
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
  bool has_denormalizer = false;
};

absl::Status WrongType(std::string_view field) {
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(field.data(), field.size()),
                                                 " has another type than the format's"));
}

absl::Status ReadFlag(const WireField& field, std::string_view name, bool& flag) {
  if (field.type != WireType::kVarint) return WrongType(name);
  flag = field.value != 0;
  return absl::OkStatus();
}

absl::Status ReadText(const WireField& field, std::string_view name, std::string& text) {
  if (field.type != WireType::kBytes) return WrongType(name);
  text = std::string(field.bytes);
  return absl::OkStatus();
}

// Calls `read` for every field of `message`.
template <typename Read>
absl::Status ForEachField(std::string_view message, Read read) {
  WireReader reader(message);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<WireField> field, reader.Next());
    if (!field.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(read(*field));
  }
}

absl::StatusOr<PieceType> PieceTypeOf(uint64_t type, size_t id) {
  switch (type) {
    case 1:
      return PieceType::kNormal;
    case 2:  // the unknown
    case 3:  // control
      return PieceType::kReserved;
    case 4:
      return PieceType::kUserDefined;
    case 5:
      return PieceType::kUnused;
    case 6:
      return PieceType::kByte;
    default:
      return absl::UnimplementedError(
          absl::StrCat("type of a piece is unknown: type=", type, " id=", id));
  }
}

absl::Status ReadPiece(std::string_view message, TokenizerSpec& spec) {
  const size_t id = spec.tokens.size();
  if (static_cast<int64_t>(id) >= kMaxVocabulary) {
    return absl::InvalidArgumentError(absl::StrCat("too many pieces: limit=", kMaxVocabulary));
  }
  std::string text;
  float score = 0;
  uint64_t type = 1;
  RETURN_IF_ERROR(ForEachField(message, [&](const WireField& field) {
    if (field.number == 1) return ReadText(field, "piece", text);
    if (field.number == 2) {
      if (field.type != WireType::kFixed32) return WrongType("score");
      score = field.AsFloat();
    } else if (field.number == 3) {
      if (field.type != WireType::kVarint) return WrongType("type of a piece");
      type = field.value;
    }
    return absl::OkStatus();
  }));
  if (text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("piece is empty: id=", id));
  }
  if (type == 2) {
    if (spec.unknown_id.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("two pieces stand for the unknown: ids=", *spec.unknown_id, " and ", id));
    }
    spec.unknown_id = static_cast<int32_t>(id);
  }
  ASSIGN_OR_RETURN(const PieceType piece_type, PieceTypeOf(type, id));
  spec.AddPiece(std::move(text), piece_type);
  spec.scores.push_back(score);
  return absl::OkStatus();
}

absl::Status ReadTrainer(std::string_view message, ModelFile& file) {
  return ForEachField(message, [&](const WireField& field) {
    switch (field.number) {
      case 3:
        if (field.type != WireType::kVarint) return WrongType("model_type");
        file.model_type = field.value;
        return absl::OkStatus();
      case 24:
        return ReadFlag(field, "treat_whitespace_as_suffix", file.space_is_suffix);
      case 35:
        return ReadFlag(field, "byte_fallback", file.byte_fallback);
      case 46:
        return ReadText(field, "bos_piece", file.bos_piece);
      case 47:
        return ReadText(field, "eos_piece", file.eos_piece);
      default:  // how it was trained
        return absl::OkStatus();
    }
  });
}

absl::Status ReadNormalizer(std::string_view message, ModelFile& file) {
  return ForEachField(message, [&](const WireField& field) {
    switch (field.number) {
      case 1:
        return ReadText(field, "normalizer name", file.normalizer_name);
      case 2:
        return ReadText(field, "precompiled_charsmap", file.chars_map);
      case 3:
        return ReadFlag(field, "add_dummy_prefix", file.add_dummy_prefix);
      case 4:
        return ReadFlag(field, "remove_extra_whitespaces", file.remove_extra_spaces);
      case 5:
        return ReadFlag(field, "escape_whitespaces", file.escape_spaces);
      default:
        return absl::OkStatus();
    }
  });
}

absl::Status ReadDenormalizer(std::string_view message, ModelFile& file) {
  return ForEachField(message, [&](const WireField& field) {
    if (field.number == 2) file.has_denormalizer |= !field.bytes.empty();
    return absl::OkStatus();
  });
}

absl::Status ReadModelField(const WireField& field, TokenizerSpec& spec, ModelFile& file) {
  if (field.number > 5) return absl::OkStatus();
  if (field.type != WireType::kBytes) return WrongType("a part of the model");
  switch (field.number) {
    case 1:
      return ReadPiece(field.bytes, spec);
    case 2:
      return ReadTrainer(field.bytes, file);
    case 3:
      return ReadNormalizer(field.bytes, file);
    case 5:
      return ReadDenormalizer(field.bytes, file);
    default:  // texts to test the model with
      return absl::OkStatus();
  }
}

absl::Status CheckByteTokens(const TokenizerSpec& spec) {
  const auto count = std::count(spec.piece_types.begin(), spec.piece_types.end(), PieceType::kByte);
  if (count == 256) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("byte_fallback without a piece for each byte: count=", count, " needed=256"));
}

std::optional<int32_t> FindControlPiece(const TokenizerSpec& spec, std::string_view text) {
  for (const AddedToken& token : spec.added_tokens) {
    if (token.special && token.text == text && token.id != spec.unknown_id) return token.id;
  }
  return std::nullopt;
}

absl::Status Refuse(std::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(absl::string_view(what.data(), what.size()), " is not supported"));
}

absl::StatusOr<TokenizerSpec> Read(std::string_view model) {
  TokenizerSpec spec;
  ModelFile file;
  RETURN_IF_ERROR(ForEachField(
      model, [&](const WireField& field) { return ReadModelField(field, spec, file); }));
  if (spec.tokens.empty()) return absl::InvalidArgumentError("no pieces");
  if (!spec.unknown_id.has_value()) {
    return absl::InvalidArgumentError("no piece stands for the unknown");
  }
  if (file.model_type != 1 && file.model_type != 2) {
    return absl::UnimplementedError(
        absl::StrCat("model_type is unknown: ", file.model_type, " known: 1 (unigram), 2 (BPE)"));
  }
  if (file.space_is_suffix) return Refuse("treat_whitespace_as_suffix");
  if (!file.escape_spaces) return Refuse("escape_whitespaces=false");
  if (file.has_denormalizer) return Refuse("denormalizer_spec");
  spec.model = file.model_type == 1 ? TokenModelKind::kUnigram : TokenModelKind::kPieceBpe;
  spec.byte_fallback = file.byte_fallback;
  if (file.byte_fallback) RETURN_IF_ERROR(CheckByteTokens(spec));
  spec.bos_id = FindControlPiece(spec, file.bos_piece);
  spec.eos_id = FindControlPiece(spec, file.eos_piece);
  spec.add_bos = true;  // where there is one; the file does not say
  spec.UseSentencePieceRules(
      {.kind = NormalizerStep::Kind::kSentencePiece,
       .prefix_rule = file.add_dummy_prefix ? PrefixRule::kTextStartOrBoundary : PrefixRule::kNever,
       .chars_map = std::move(file.chars_map),
       .remove_extra_spaces = file.remove_extra_spaces});
  return spec;
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromSentencePiece(std::string_view model) {
  absl::StatusOr<TokenizerSpec> spec = Read(model);
  if (!spec.ok()) return Annotate(spec.status(), "SentencePiece model");
  return spec;
}

}  // namespace cairn
