#include "model/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/unicode.h"

namespace cairn {
namespace {

// How much less likely than the least likely piece an unknown character is.
constexpr double kUnknownPenalty = 10;

}  // namespace

absl::StatusOr<std::unique_ptr<SubwordModel>> Unigram::Create(const TokenizerSpec& spec) {
  std::unique_ptr<Unigram> unigram(new Unigram());
  ASSIGN_OR_RETURN(unigram->vocabulary_, PieceVocabulary::Create(spec));
  if (spec.scores.empty()) return absl::InvalidArgumentError("vocabulary: no scores of pieces");
  if (!spec.unknown_id.has_value()) {
    return absl::InvalidArgumentError("vocabulary: a unigram model without an unknown token");
  }
  unigram->scores_ = spec.scores;
  unigram->scores_are_float_ = spec.scores_are_float;
  unigram->least_score_ = std::numeric_limits<double>::max();
  unigram->greatest_score_ = std::numeric_limits<double>::lowest();
  const PieceVocabulary& vocabulary = *unigram->vocabulary_;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const double score = spec.scores[id];
    if (!std::isfinite(score)) {
      return absl::InvalidArgumentError(absl::StrCat("vocabulary: score is not finite: id=", id));
    }
    if (vocabulary.type(id) == PieceType::kNormal) {
      unigram->least_score_ = std::min(unigram->least_score_, score);
      unigram->greatest_score_ = std::max(unigram->greatest_score_, score);
    }
    const std::string_view text = vocabulary.text(id);
    if (vocabulary.Find(text) != id || vocabulary.type(id) == PieceType::kUnused) continue;
    if (static_cast<int64_t>(text.size()) > kMaxUnigramPieceBytes) {
      return absl::InvalidArgumentError(absl::StrCat("vocabulary: piece is too long: id=", id,
                                                     " bytes=", text.size(),
                                                     " limit=", kMaxUnigramPieceBytes));
    }
    unigram->pieces_.Add(text, id);
  }
  return unigram;
}

void Unigram::Encode(std::string_view piece, UserPieces user_pieces,
                     std::vector<int32_t>& ids) const {
  if (scores_are_float_) {
    EncodeWith<float>(piece, user_pieces, ids);
  } else {
    EncodeWith<double>(piece, user_pieces, ids);
  }
}

template <typename Score>
double Unigram::ScoreOf(int32_t id, size_t bytes) const {
  if (vocabulary_->type(id) != PieceType::kUserDefined) return static_cast<Score>(scores_[id]);
  // Better than any row of other pieces.
  return static_cast<Score>(bytes) * static_cast<Score>(greatest_score_) - 0.1;
}

template <typename Score>
void Unigram::EncodeWith(std::string_view text, UserPieces user_pieces,
                         std::vector<int32_t>& ids) const {
  // The best row of pieces that ends at a place.
  struct Best {
    Score score = 0;
    int32_t begin = -1;  // of its last piece; -1: none ends here
    int32_t id = kNoToken;
  };
  const auto unknown_score = static_cast<Score>(static_cast<Score>(least_score_) - kUnknownPenalty);
  std::vector<Best> best(text.size() + 1);
  // As in the reference, a sum is compared before it is rounded with others that were: that decides
  // between rows of the same pieces in another order.
  const auto offer = [&best](size_t begin, size_t end, double score, int32_t id) {
    if (best[end].begin >= 0 && score <= best[end].score) return;
    best[end] = {static_cast<Score>(score), static_cast<int32_t>(begin), id};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = DecodeCharacter(text.substr(begin)).bytes;
    bool covers_character = false;
    int32_t node = PrefixTrie::kRoot;
    for (size_t end = begin; end < text.size();) {
      node = pieces_.Next(node, text[end++]);
      if (node == PrefixTrie::kNone) break;
      const int32_t id = pieces_.value(node);
      if (id == PrefixTrie::kNone || !vocabulary_->Allows(id, user_pieces)) continue;
      const size_t bytes = end - begin;
      offer(begin, end, best[begin].score + ScoreOf<Score>(id, bytes), id);
      covers_character |= bytes == character;
    }
    if (!covers_character) {
      offer(begin, begin + character, best[begin].score + unknown_score, kNoToken);
    }
    begin += character;
  }
  // The row from its end on.
  std::vector<Best> row;
  std::vector<size_t> ends;
  for (size_t end = text.size(); end > 0; end = best[end].begin) {
    row.push_back(best[end]);
    ends.push_back(end);
  }
  bool after_unknown = false;
  for (size_t i = row.size(); i-- > 0;) {
    const std::string_view piece = text.substr(row[i].begin, ends[i] - row[i].begin);
    if (row[i].id == kNoToken) {
      vocabulary_->AppendUnknown(piece, after_unknown, ids);
    } else {
      ids.push_back(row[i].id);
      after_unknown = false;
    }
  }
}

}  // namespace cairn
