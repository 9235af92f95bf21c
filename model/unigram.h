// The unigram model: of all rows of pieces that spell a text, the one with the greatest sum of
// scores (Viterbi), as SentencePiece and tokenizer.json define it.
//
// Thread: any; constant after Create.
// Source: Kudo, "Subword Regularization", 2018, section 3.2.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/piece_vocabulary.h"
#include "model/prefix_trie.h"
#include "model/subword_model.h"

namespace cairn {

// A text costs as many steps as its bytes times this at most.
inline constexpr int64_t kMaxUnigramPieceBytes = 512;

class Unigram : public SubwordModel {
 public:
  // Errors: as PieceVocabulary::Create; InvalidArgument if there are no scores, one is not finite,
  // there is no unknown token or a piece is too long.
  static absl::StatusOr<std::unique_ptr<SubwordModel>> Create(const TokenizerSpec& spec);

  void Encode(std::string_view piece, UserPieces user_pieces,
              std::vector<int32_t>& ids) const override;

 private:
  Unigram() = default;

  template <typename Score>
  void EncodeWith(std::string_view text, UserPieces user_pieces, std::vector<int32_t>& ids) const;
  template <typename Score>
  double ScoreOf(int32_t id, size_t bytes) const;

  std::unique_ptr<PieceVocabulary> vocabulary_;
  PrefixTrie pieces_;
  std::vector<double> scores_;  // [V]
  double least_score_ = 0;      // of normal pieces
  double greatest_score_ = 0;
  bool scores_are_float_ = false;
};

}  // namespace cairn
