// The pieces of a SentencePiece-like vocabulary by their text, and what becomes of text that no
// piece covers. Used by the models of pieces.
//
// Thread: any; constant after Create.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "model/pair_merger.h"
#include "model/prefix_trie.h"
#include "model/subword_model.h"
#include "model/tokenizer_spec.h"

namespace cairn {

class PieceVocabulary {
 public:
  // Errors: InvalidArgument if a byte token is there twice or is no "<0x..>".
  static absl::StatusOr<std::unique_ptr<PieceVocabulary>> Create(const TokenizerSpec& spec);

  // kNoToken if `text` is no piece that is found in text.
  int32_t Find(std::string_view text) const {
    if (text.size() > max_piece_bytes_) return kNoToken;
    const auto found = ids_.find(absl::string_view(text.data(), text.size()));
    return found == ids_.end() ? kNoToken : found->second;
  }
  PieceType type(int32_t id) const { return types_[id]; }
  std::string_view text(int32_t id) const {
    return std::string_view(text_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  int32_t size() const { return static_cast<int32_t>(types_.size()); }

  // The longest piece of the user that `text` begins with.
  PrefixTrie::Match FindUserPiece(std::string_view text, UserPieces user_pieces) const {
    return user_pieces == UserPieces::kAll ? user_pieces_.LongestAt(text)
                                           : user_spaces_.LongestAt(text);
  }
  bool has_user_pieces() const { return has_user_pieces_; }
  // Whether a model may find piece `id` in such a text at all, by whatever way.
  bool Allows(int32_t id, UserPieces user_pieces) const {
    return user_pieces == UserPieces::kAll || type(id) != PieceType::kUserDefined ||
           user_spaces_.LongestAt(text(id)).value == id;
  }

  // True if every byte of `text` has a byte token.
  bool HasByteTokens(std::string_view text) const;
  int32_t byte_id(char byte) const { return byte_ids_[static_cast<uint8_t>(byte)]; }
  int32_t unknown_id() const { return unknown_id_; }

  // Appends what stands for `text`, which is no piece: its byte tokens, or the unknown token, which
  // fuses with one right before it if the vocabulary wants that. `after_unknown` says whether there
  // is one, and then whether this was one.
  void AppendUnknown(std::string_view text, bool& after_unknown, std::vector<int32_t>& ids) const;

 private:
  PieceVocabulary() = default;

  absl::Status AddByte(std::string_view text, int32_t id);

  std::string text_;              // of all pieces, one after another
  std::vector<size_t> offsets_;   // [V + 1] into text_
  std::vector<PieceType> types_;  // [V]
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  size_t max_piece_bytes_ = 0;
  PrefixTrie user_pieces_, user_spaces_;
  bool has_user_pieces_ = false;
  std::array<int32_t, 256> byte_ids_;
  int32_t unknown_id_ = kNoToken;
  bool fuse_unknown_ = false;
};

// The byte that "<0x0A>" names; -1 if `text` names none.
int ByteOfToken(std::string_view text);

}  // namespace cairn
