#include "model/byte_level_bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/unicode.h"
#include "model/utf8.h"

namespace cairn {
namespace {

// Up to here the plain scan for the best pair beats a heap.
constexpr size_t kMaxShortPieceBytes = 48;

constexpr int32_t kNoToken = -1;

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

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

char32_t ByteLevelCharacter(uint8_t byte) {
  const auto found = std::find(kByteOfCharacter.begin(), kByteOfCharacter.end(), byte);
  return static_cast<char32_t>(found - kByteOfCharacter.begin());
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

absl::StatusOr<std::unique_ptr<ByteLevelBpe>> ByteLevelBpe::Create(
    const TokenizerSpec& spec, const std::vector<absl::string_view>& bytes_of_token,
    const std::vector<bool>& special) {
  std::unique_ptr<ByteLevelBpe> bpe(new ByteLevelBpe());
  RETURN_IF_ERROR(bpe->AddBytes(spec, special));
  RETURN_IF_ERROR(bpe->AddMerges(spec, special));
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

absl::Status ByteLevelBpe::AddMerges(const TokenizerSpec& spec, const std::vector<bool>& special) {
  absl::flat_hash_map<absl::string_view, int32_t> ids;
  ids.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.tokens[id].empty()) ids.emplace(spec.tokens[id], static_cast<int32_t>(id));
  }
  merges_.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left_text, right_text] = spec.merges[rank];
    const std::string merged_text = left_text + right_text;
    std::array<int32_t, 3> parts;
    for (int i = 0; const std::string* text : {&left_text, &right_text, &merged_text}) {
      const auto found = ids.find(*text);
      if (found == ids.end()) {
        return absl::InvalidArgumentError(absl::StrCat("merges: token is not in the vocabulary: \"",
                                                       Printable(*text), "\" merge=", rank));
      }
      parts[i++] = found->second;
    }
    if (special[parts[2]]) {
      return absl::InvalidArgumentError(absl::StrCat("merges: plain text makes a control token: \"",
                                                     Printable(merged_text), "\" merge=", rank));
    }
    const Merge merge{static_cast<int32_t>(rank), parts[2]};
    if (!merges_.emplace(PairKey(parts[0], parts[1]), merge).second) {
      return absl::InvalidArgumentError(absl::StrCat("merges: pair is there twice: \"",
                                                     Printable(left_text), "\" \"",
                                                     Printable(right_text), "\" merge=", rank));
    }
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

const ByteLevelBpe::Merge* ByteLevelBpe::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void ByteLevelBpe::Encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const auto whole = whole_pieces_.find(absl::string_view(piece.data(), piece.size()));
  if (whole != whole_pieces_.end()) {
    ids.push_back(whole->second);
    return;
  }
  EncodeByMerges(piece, ids);
}

void ByteLevelBpe::EncodeByMerges(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() <= kMaxShortPieceBytes) {
    EncodeShort(piece, ids);
  } else {
    EncodeLong(piece, ids);
  }
}

void ByteLevelBpe::EncodeShort(std::string_view piece, std::vector<int32_t>& ids) const {
  constexpr Merge kNoMerge{std::numeric_limits<int32_t>::max(), kNoToken};
  std::array<int32_t, kMaxShortPieceBytes> symbols;
  std::array<Merge, kMaxShortPieceBytes> merges;  // of symbol i with i + 1
  size_t count = 0;
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id != kNoToken) symbols[count++] = id;
  }
  const auto merge_at = [&](size_t i) {
    if (i + 1 >= count) return kNoMerge;
    const Merge* merge = FindMerge(symbols[i], symbols[i + 1]);
    return merge == nullptr ? kNoMerge : *merge;
  };
  for (size_t i = 0; i < count; ++i) merges[i] = merge_at(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].id == kNoToken) break;
    symbols[best] = merges[best].id;
    std::copy(&symbols[best + 2], &symbols[count], &symbols[best + 1]);
    std::copy(&merges[best + 2], &merges[count], &merges[best + 1]);
    --count;
    merges[best] = merge_at(best);
    if (best > 0) merges[best - 1] = merge_at(best - 1);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + count);
}

// A symbol of a long piece, linked to its neighbours by index.
struct ByteLevelBpe::Symbol {
  int32_t id;
  int32_t previous;
  int32_t next;
};

void ByteLevelBpe::EncodeLong(std::string_view piece, std::vector<int32_t>& ids) const {
  // A pair that may be merged. It is stale if either symbol has changed since.
  struct Candidate {
    int32_t rank;
    int32_t left;  // index of the symbol
    int32_t id;    // what the pair becomes
    uint64_t key;  // the pair's ids when it was found
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    const int32_t index = static_cast<int32_t>(symbols.size());
    if (id != kNoToken) symbols.push_back({id, index - 1, index + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = kNoToken;

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const int32_t left_id = symbols[left].id;
    const int32_t right_id = symbols[symbols[left].next].id;
    const Merge* merge = FindMerge(left_id, right_id);
    if (merge != nullptr) queue.push({merge->rank, left, merge->id, PairKey(left_id, right_id)});
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.id == kNoToken || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (PairKey(left.id, right.id) != best.key) continue;
    left.id = best.id;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace cairn
