#include "model/byte_level_bpe.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "model/unicode.h"

namespace cairn {
namespace {

constexpr bool StandsForItself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
         (byte >= 174 && byte <= 255);
}

// Of the characters U+0000..U+0143; -1: not in the alphabet.
constexpr std::array<int16_t, 324> MakeByteOfCharacter() {
  std::array<int16_t, 324> bytes{};
  bytes.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    bytes[StandsForItself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return bytes;
}

constexpr std::array<int16_t, 324> kByteOfCharacter = MakeByteOfCharacter();

constexpr std::array<char32_t, 256> MakeCharacterOfByte() {
  std::array<char32_t, 256> characters{};
  for (size_t character = 0; character < kByteOfCharacter.size(); ++character) {
    if (kByteOfCharacter[character] >= 0) characters[kByteOfCharacter[character]] = character;
  }
  return characters;
}

constexpr std::array<char32_t, 256> kCharacterOfByte = MakeCharacterOfByte();

}  // namespace

std::string EncodeByteLevelText(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) AppendUtf8(kCharacterOfByte[static_cast<uint8_t>(c)], text);
  return text;
}

bool DecodeByteLevelText(std::string_view text, std::string& bytes) {
  bytes.clear();
  while (!text.empty()) {
    const DecodedCharacter character = DecodeCharacter(text);
    if (character.kind != DecodedCharacter::Kind::kValid) return false;
    if (character.code_point >= kByteOfCharacter.size()) return false;
    const int16_t byte = kByteOfCharacter[character.code_point];
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
    text.remove_prefix(character.bytes);
  }
  return true;
}

absl::StatusOr<std::unique_ptr<SubwordModel>> ByteLevelBpe::Create(
    const TokenizerSpec& spec, const std::vector<absl::string_view>& bytes_of_token,
    const std::vector<bool>& special) {
  std::unique_ptr<ByteLevelBpe> bpe(new ByteLevelBpe());
  RETURN_IF_ERROR(bpe->AddBytes(spec, special));
  ASSIGN_OR_RETURN(bpe->merges_, spec.merges_by_id ? MergeTable::FromIds(bytes_of_token, special)
                                                   : MergeTable::FromMerges(spec, special));
  bpe->AddWholePieces(spec, bytes_of_token);
  return bpe;
}

absl::Status ByteLevelBpe::AddBytes(const TokenizerSpec& spec, const std::vector<bool>& special) {
  byte_ids_.fill(kNoToken);
  std::string bytes;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!DecodeByteLevelText(spec.tokens[id], bytes) || bytes.size() != 1) continue;
    const uint8_t byte = static_cast<uint8_t>(bytes[0]);
    if (special[id]) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "vocabulary: control token is a plain byte: id=%d byte=0x%02X", id, byte));
    }
    byte_ids_[byte] = static_cast<int32_t>(id);
  }
  if (*std::max_element(byte_ids_.begin(), byte_ids_.end()) == kNoToken) {
    return absl::InvalidArgumentError("vocabulary: no token for any byte: not a byte-level one");
  }
  return absl::OkStatus();
}

// Most pieces of ordinary text are one token; those are found by one look-up. Without
// ignore_merges only tokens that the merges really make of their own text may be.
void ByteLevelBpe::AddWholePieces(const TokenizerSpec& spec,
                                  const std::vector<absl::string_view>& bytes_of_token) {
  std::vector<bool> added(spec.tokens.size());
  for (const AddedToken& token : spec.added_tokens) {
    if (token.id < static_cast<int64_t>(added.size())) added[token.id] = true;
  }
  std::vector<int32_t> made;
  std::string bytes;
  whole_pieces_.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (added[id] || spec.tokens[id].empty()) continue;
    if (!DecodeByteLevelText(spec.tokens[id], bytes)) continue;
    made.clear();
    if (!spec.ignore_merges) EncodeByMerges(bytes, made);
    if (spec.ignore_merges || (made.size() == 1 && made[0] == static_cast<int32_t>(id))) {
      whole_pieces_.emplace(bytes_of_token[id], static_cast<int32_t>(id));
    }
  }
}

void ByteLevelBpe::Encode(std::string_view piece, UserPieces, std::vector<int32_t>& ids) const {
  const auto whole = whole_pieces_.find(absl::string_view(piece.data(), piece.size()));
  if (whole != whole_pieces_.end()) {
    ids.push_back(whole->second);
    return;
  }
  EncodeByMerges(piece, ids);
}

void ByteLevelBpe::EncodeByMerges(std::string_view piece, std::vector<int32_t>& ids) const {
  MergeSymbols symbols;
  symbols.reserve(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(piece[i])];
    const auto begin = static_cast<int32_t>(i);
    if (id != kNoToken) symbols.push_back({id, begin, begin + 1});
  }
  MergePairs(symbols, [this](const MergeSymbol& left, const MergeSymbol& right) {
    return merges_.Find(left.id, right.id);
  });
  for (const MergeSymbol& symbol : symbols) ids.push_back(symbol.id);
}

}  // namespace cairn
