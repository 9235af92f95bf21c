// Byte-pair encoding over characters, as SentencePiece and tokenizer.json with byte fallback define
// it.
//
// SentencePiece has scores: two symbols merge if their text is a piece, of the greatest score
// first. A tokenizer.json has merges: two tokens merge if they are on the list, and characters
// without a token are bytes or unknown from the beginning.
//
// Thread: any; constant after Create.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "model/merge_table.h"
#include "model/pair_merger.h"
#include "model/piece_vocabulary.h"
#include "model/subword_model.h"

namespace cairn {

class PieceBpe : public SubwordModel {
 public:
  // Errors: as PieceVocabulary::Create and MergeTable::FromMerges; InvalidArgument if there are
  // neither scores nor merges, or a score is not a number.
  static absl::StatusOr<std::unique_ptr<SubwordModel>> Create(const TokenizerSpec& spec,
                                                              const std::vector<bool>& special);

  void Encode(std::string_view piece, UserPieces user_pieces,
              std::vector<int32_t>& ids) const override;

 private:
  // What one call of Encode knows.
  struct Output {
    std::vector<int32_t>& ids;
    UserPieces user_pieces = UserPieces::kAll;
    bool after_unknown = false;
  };

  PieceBpe() = default;

  absl::Status AddScores(const std::vector<double>& scores);
  void AddWholePieces(bool ignore_merges);
  // Whether no piece has a space mark behind another character: then no merge reaches over the
  // beginning of a word, and words can be encoded one by one.
  bool WordsStandAlone() const;

  void EncodeWords(std::string_view text, Output& output) const;
  void EncodeWord(std::string_view word, Output& output) const;
  void EncodeByScores(std::string_view word, Output& output) const;
  void EncodeByMerges(std::string_view word, Output& output) const;

  std::unique_ptr<PieceVocabulary> vocabulary_;
  bool by_scores_ = false;
  std::vector<int32_t> ranks_;  // [V], by scores: the greatest has rank 0
  MergeTable merges_;           // otherwise
  std::vector<bool> whole_;     // [V]: text that is the piece becomes the piece
  bool words_stand_alone_ = false;
  bool fuse_unknown_ = false;
};

}  // namespace cairn
