#include "model/text_normalizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/unicode.h"

namespace cairn {
namespace {

absl::Status CheckSize(size_t bytes) {
  if (static_cast<int64_t>(bytes) <= kMaxNormalizedBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("normalised text is too long: bytes>=", bytes, " limit=", kMaxNormalizedBytes));
}

bool WantsPrefix(PrefixRule rule, PartPosition position) {
  switch (rule) {
    case PrefixRule::kNever:
      return false;
    case PrefixRule::kTextStart:
      return position == PartPosition::kTextStart;
    case PrefixRule::kTextStartOrBoundary:
      return position != PartPosition::kInside;
    case PrefixRule::kEveryPart:
      return true;
  }
  return false;
}

absl::StatusOr<std::string> Replace(std::string_view text, std::string_view from,
                                    std::string_view to) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t found = text.find(from);
    out.append(text.substr(0, found));
    if (found == text.npos) return out;
    out.append(to);
    RETURN_IF_ERROR(CheckSize(out.size()));
    text.remove_prefix(found + from.size());
  }
}

void AppendMarked(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == ' ') {
      out.append(kSpaceMark);
    } else {
      out.push_back(c);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextNormalizer>> TextNormalizer::Create(
    std::vector<NormalizerStep> steps) {
  if (static_cast<int64_t>(steps.size()) > kMaxNormalizerSteps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "normalizer: too many steps: count=", steps.size(), " limit=", kMaxNormalizerSteps));
  }
  std::unique_ptr<TextNormalizer> normalizer(new TextNormalizer());
  bool has_sentencepiece = false;
  for (const NormalizerStep& step : steps) {
    if (step.kind == NormalizerStep::Kind::kReplace && step.from.empty()) {
      return absl::InvalidArgumentError("normalizer: replaces the empty text");
    }
    if (step.kind != NormalizerStep::Kind::kSentencePiece) continue;
    if (std::exchange(has_sentencepiece, true)) {
      return absl::InvalidArgumentError("normalizer: two sets of SentencePiece rules");
    }
    ASSIGN_OR_RETURN(normalizer->chars_map_, CharsMap::Create(step.chars_map));
    for (const std::string& text : step.kept_texts) normalizer->kept_texts_.Add(text, 0);
  }
  normalizer->steps_ = std::move(steps);
  return normalizer;
}

absl::StatusOr<std::string> TextNormalizer::Apply(std::string_view text,
                                                  PartPosition position) const {
  std::string result(text);
  for (const NormalizerStep& step : steps_) {
    ASSIGN_OR_RETURN(result, ApplyStep(step, result, position));
  }
  return result;
}

absl::StatusOr<std::string> TextNormalizer::ApplyStep(const NormalizerStep& step,
                                                      std::string_view text,
                                                      PartPosition position) const {
  switch (step.kind) {
    case NormalizerStep::Kind::kUnicodeForm: {
      std::string result = NormalizeUnicode(text, step.form);
      RETURN_IF_ERROR(CheckSize(result.size()));
      return result;
    }
    case NormalizerStep::Kind::kReplace:
      return Replace(text, step.from, step.to);
    case NormalizerStep::Kind::kPrefix: {
      const bool present = step.unless_present && text.starts_with(step.to);
      if (text.empty() || present || !WantsPrefix(step.prefix_rule, position)) {
        return std::string(text);
      }
      return absl::StrCat(step.to, absl::string_view(text.data(), text.size()));
    }
    case NormalizerStep::Kind::kSentencePiece:
      return ApplySentencePiece(step, text, position);
  }
  return std::string(text);
}

TextNormalizer::Unit TextNormalizer::NextUnit(std::string_view text) const {
  if (const size_t kept = kept_texts_.LongestAt(text).bytes; kept > 0) {
    return {kept, text.substr(0, kept)};
  }
  if (const CharsMap::Match match = chars_map_.Find(text); match.bytes > 0) {
    return {match.bytes, match.replacement};
  }
  const size_t bytes = DecodeCharacter(text).bytes;
  return {bytes, text.substr(0, bytes)};
}

absl::StatusOr<std::string> TextNormalizer::ApplySentencePiece(const NormalizerStep& step,
                                                               std::string_view text,
                                                               PartPosition position) const {
  if (step.remove_extra_spaces) {
    while (!text.empty()) {
      const Unit unit = NextUnit(text);
      if (unit.text != " ") break;
      text.remove_prefix(unit.bytes);
    }
  }
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  if (WantsPrefix(step.prefix_rule, position)) out.append(kSpaceMark);
  bool after_space = step.remove_extra_spaces;
  while (!text.empty()) {
    const Unit unit = NextUnit(text);
    text.remove_prefix(unit.bytes);
    std::string_view kept = unit.text;
    while (after_space && kept.starts_with(" ")) kept.remove_prefix(1);
    AppendMarked(kept, out);
    RETURN_IF_ERROR(CheckSize(out.size()));
    // A unit of spaces that were all dropped leaves the state as it is.
    if (!kept.empty()) after_space = step.remove_extra_spaces && kept.ends_with(" ");
  }
  if (step.remove_extra_spaces) {
    while (std::string_view(out).ends_with(kSpaceMark)) out.resize(out.size() - kSpaceMark.size());
  }
  return out;
}

}  // namespace cairn
