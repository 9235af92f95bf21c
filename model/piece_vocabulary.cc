#include "model/piece_vocabulary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "model/unicode.h"
#include "model/utf8.h"

namespace cairn {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool AllSpaces(std::string_view text) {
  while (!text.empty()) {
    if (text.starts_with(kSpaceMark)) {
      text.remove_prefix(kSpaceMark.size());
      continue;
    }
    const DecodedCharacter character = DecodeCharacter(text);
    if (!IsSpaceCharacter(character.code_point)) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

}  // namespace

int ByteOfToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = HexDigit(text[3]), low = HexDigit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

absl::StatusOr<std::unique_ptr<PieceVocabulary>> PieceVocabulary::Create(
    const TokenizerSpec& spec) {
  const size_t num_tokens = spec.tokens.size();
  std::unique_ptr<PieceVocabulary> vocabulary(new PieceVocabulary());
  vocabulary->byte_ids_.fill(kNoToken);
  vocabulary->unknown_id_ = spec.unknown_id.value_or(kNoToken);
  vocabulary->fuse_unknown_ = spec.fuse_unknown;
  vocabulary->types_ = spec.piece_types;
  vocabulary->types_.resize(num_tokens, PieceType::kNormal);
  for (const std::string& token : spec.tokens) {
    vocabulary->offsets_.push_back(vocabulary->text_.size());
    vocabulary->text_.append(token);
  }
  vocabulary->offsets_.push_back(vocabulary->text_.size());
  vocabulary->ids_.reserve(num_tokens);
  for (int32_t id = 0; id < vocabulary->size(); ++id) {
    const std::string_view text = vocabulary->text(id);
    const PieceType type = vocabulary->type(id);
    if (text.empty() || type == PieceType::kReserved) continue;
    if (type == PieceType::kByte) {
      if (spec.byte_fallback) RETURN_IF_ERROR(vocabulary->AddByte(text, id));
      if (!spec.text_spells_bytes) continue;
    }
    vocabulary->ids_.emplace(absl::string_view(text.data(), text.size()), id);
    vocabulary->max_piece_bytes_ = std::max(vocabulary->max_piece_bytes_, text.size());
    if (type != PieceType::kUserDefined) continue;
    vocabulary->has_user_pieces_ = true;
    vocabulary->user_pieces_.Add(text, id);
    if (AllSpaces(text)) vocabulary->user_spaces_.Add(text, id);
  }
  return vocabulary;
}

absl::Status PieceVocabulary::AddByte(std::string_view text, int32_t id) {
  const int byte = ByteOfToken(text);
  if (byte < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocabulary: byte token names no byte: \"", Printable(text), "\" id=", id));
  }
  if (byte_ids_[byte] != kNoToken) {
    return absl::InvalidArgumentError(absl::StrCat("vocabulary: byte token is there twice: \"",
                                                   Printable(text), "\" ids=", byte_ids_[byte],
                                                   " and ", id));
  }
  byte_ids_[byte] = id;
  return absl::OkStatus();
}

bool PieceVocabulary::HasByteTokens(std::string_view text) const {
  return std::all_of(text.begin(), text.end(),
                     [this](char byte) { return byte_id(byte) != kNoToken; });
}

void PieceVocabulary::AppendUnknown(std::string_view text, bool& after_unknown,
                                    std::vector<int32_t>& ids) const {
  if (HasByteTokens(text)) {
    for (const char byte : text) ids.push_back(byte_id(byte));
    after_unknown = false;
    return;
  }
  if (unknown_id_ == kNoToken) return;
  if (!after_unknown || !fuse_unknown_) ids.push_back(unknown_id_);
  after_unknown = true;
}

}  // namespace cairn
