#include "model/piece_bpe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "model/unicode.h"

namespace cairn {
namespace {

std::string_view TextOf(std::string_view word, const MergeSymbol& symbol) {
  return word.substr(symbol.begin, symbol.end - symbol.begin);
}

// Bytes of the character at the start of `text`; a broken one counts as one.
int32_t CharacterBytes(std::string_view text) { return DecodeCharacter(text).bytes; }

// Of unused pieces: the two parts that made each, by its text.
using Halves =
    absl::flat_hash_map<absl::string_view, std::pair<std::string_view, std::string_view>>;

}  // namespace

absl::StatusOr<std::unique_ptr<SubwordModel>> PieceBpe::Create(const TokenizerSpec& spec,
                                                               const std::vector<bool>& special) {
  std::unique_ptr<PieceBpe> bpe(new PieceBpe());
  ASSIGN_OR_RETURN(bpe->vocabulary_, PieceVocabulary::Create(spec));
  bpe->by_scores_ = spec.merges.empty();
  bpe->fuse_unknown_ = spec.fuse_unknown;
  if (bpe->by_scores_) {
    RETURN_IF_ERROR(bpe->AddScores(spec.scores));
  } else {
    ASSIGN_OR_RETURN(bpe->merges_, MergeTable::FromMerges(spec, special));
  }
  bpe->words_stand_alone_ = bpe->WordsStandAlone();
  bpe->AddWholePieces(spec.ignore_merges);
  return bpe;
}

absl::Status PieceBpe::AddScores(const std::vector<double>& scores) {
  if (scores.empty()) {
    return absl::InvalidArgumentError("vocabulary: neither merges nor scores of pieces");
  }
  std::vector<double> greatest_first = scores;
  for (size_t id = 0; id < scores.size(); ++id) {
    if (std::isnan(scores[id])) {
      return absl::InvalidArgumentError(absl::StrCat("vocabulary: score is not a number: id=", id));
    }
  }
  std::sort(greatest_first.begin(), greatest_first.end(), std::greater<>());
  for (const double score : scores) {
    const auto found =
        std::lower_bound(greatest_first.begin(), greatest_first.end(), score, std::greater<>());
    ranks_.push_back(static_cast<int32_t>(found - greatest_first.begin()));
  }
  return absl::OkStatus();
}

bool PieceBpe::WordsStandAlone() const {
  for (int32_t id = 0; id < vocabulary_->size(); ++id) {
    std::string_view text = vocabulary_->text(id);
    if (vocabulary_->Find(text) != id) continue;
    while (text.starts_with(kSpaceMark)) text.remove_prefix(kSpaceMark.size());
    if (text.find(kSpaceMark) != text.npos) return false;
  }
  return true;
}

void PieceBpe::AddWholePieces(bool ignore_merges) {
  std::vector<int32_t> made;
  std::vector<bool> whole(vocabulary_->size());
  for (int32_t id = 0; id < vocabulary_->size(); ++id) {
    const std::string_view text = vocabulary_->text(id);
    if (vocabulary_->Find(text) != id || vocabulary_->type(id) == PieceType::kUnused) continue;
    made.clear();
    Output output{made};
    if (!ignore_merges) EncodeWords(text, output);
    whole[id] = ignore_merges || (made.size() == 1 && made[0] == id);
  }
  whole_ = std::move(whole);
}

void PieceBpe::Encode(std::string_view piece, UserPieces user_pieces,
                      std::vector<int32_t>& ids) const {
  Output output{ids, user_pieces};
  if (!vocabulary_->has_user_pieces()) {
    EncodeWords(piece, output);
    return;
  }
  size_t done = 0;
  for (size_t at = 0; at < piece.size();) {
    const PrefixTrie::Match match = vocabulary_->FindUserPiece(piece.substr(at), user_pieces);
    if (match.bytes == 0) {
      at += CharacterBytes(piece.substr(at));
      continue;
    }
    EncodeWords(piece.substr(done, at - done), output);
    ids.push_back(match.value);
    output.after_unknown = false;
    done = at += match.bytes;
  }
  EncodeWords(piece.substr(done), output);
}

void PieceBpe::EncodeWords(std::string_view text, Output& output) const {
  if (words_stand_alone_) {
    // Cuts before each mark that stands behind another character.
    size_t next = 0;
    while (!text.empty()) {
      while (text.substr(next).starts_with(kSpaceMark)) next += kSpaceMark.size();
      next = std::min(text.find(kSpaceMark, next), text.size());
      EncodeWord(text.substr(0, next), output);
      text.remove_prefix(next);
      next = 0;
    }
  } else if (!text.empty()) {
    EncodeWord(text, output);
  }
}

void PieceBpe::EncodeWord(std::string_view word, Output& output) const {
  const int32_t id = whole_.empty() ? kNoToken : vocabulary_->Find(word);
  if (id != kNoToken && whole_[id] && vocabulary_->Allows(id, output.user_pieces)) {
    output.ids.push_back(id);
    output.after_unknown = false;
  } else if (by_scores_) {
    EncodeByScores(word, output);
  } else {
    EncodeByMerges(word, output);
  }
}

void PieceBpe::EncodeByScores(std::string_view word, Output& output) const {
  MergeSymbols symbols;
  for (size_t at = 0; at < word.size();) {
    const auto begin = static_cast<int32_t>(at);
    at += CharacterBytes(word.substr(at));
    symbols.push_back({kNoToken, begin, static_cast<int32_t>(at)});
  }
  Halves halves;
  MergePairs(symbols, [&](const MergeSymbol& left, const MergeSymbol& right) -> PairMerge {
    const std::string_view both = word.substr(left.begin, right.end - left.begin);
    const int32_t id = vocabulary_->Find(both);
    if (id == kNoToken || !vocabulary_->Allows(id, output.user_pieces)) return {};
    if (vocabulary_->type(id) == PieceType::kUnused) {
      halves[absl::string_view(both.data(), both.size())] = {TextOf(word, left),
                                                             TextOf(word, right)};
    }
    return {ranks_[id], id};
  });
  std::vector<std::string_view> pending;
  for (const MergeSymbol& symbol : symbols) {
    pending.push_back(TextOf(word, symbol));
    while (!pending.empty()) {
      const std::string_view text = pending.back();
      pending.pop_back();
      const int32_t id = vocabulary_->Find(text);
      const auto parts = halves.find(absl::string_view(text.data(), text.size()));
      if (parts != halves.end()) {
        pending.push_back(parts->second.second);
        pending.push_back(parts->second.first);
      } else if (id != kNoToken) {
        output.ids.push_back(id);
        output.after_unknown = false;
      } else {
        vocabulary_->AppendUnknown(text, output.after_unknown, output.ids);
      }
    }
  }
}

void PieceBpe::EncodeByMerges(std::string_view word, Output& output) const {
  MergeSymbols symbols;
  const int32_t unknown_id = vocabulary_->unknown_id();
  for (size_t at = 0; at < word.size();) {
    const auto begin = static_cast<int32_t>(at);
    const std::string_view character = word.substr(at, CharacterBytes(word.substr(at)));
    at += character.size();
    const auto end = static_cast<int32_t>(at);
    const int32_t id = vocabulary_->Find(character);
    if (id != kNoToken) {
      symbols.push_back({id, begin, end});
    } else if (vocabulary_->HasByteTokens(character)) {
      for (int32_t i = begin; i < end; ++i) {
        symbols.push_back({vocabulary_->byte_id(word[i]), i, i + 1});
      }
    } else if (unknown_id != kNoToken) {
      if (fuse_unknown_ && !symbols.empty() && symbols.back().id == unknown_id) {
        symbols.back().end = end;
      } else {
        symbols.push_back({unknown_id, begin, end});
      }
    }
  }
  MergePairs(symbols, [this](const MergeSymbol& left, const MergeSymbol& right) {
    return merges_.Find(left.id, right.id);
  });
  for (const MergeSymbol& symbol : symbols) {
    const bool fuses = fuse_unknown_ && output.after_unknown && symbol.id == unknown_id;
    if (!fuses) output.ids.push_back(symbol.id);
    output.after_unknown = symbol.id == unknown_id;
  }
}

}  // namespace cairn
