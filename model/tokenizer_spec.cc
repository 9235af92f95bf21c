#include "model/tokenizer_spec.h"

#include <algorithm>

#include "absl/strings/str_replace.h"

namespace cairn {

void TokenizerSpec::AddPiece(std::string text, PieceType type) {
  const auto id = static_cast<int32_t>(tokens.size());
  if (type == PieceType::kReserved) {
    added_tokens.push_back({.id = id, .text = text, .special = true});
  } else if (type == PieceType::kUserDefined) {
    added_tokens.push_back({.id = id, .text = WithoutSpaceMarks(text), .is_piece = true});
  }
  byte_fallback |= type == PieceType::kByte;
  tokens.push_back(std::move(text));
  piece_types.push_back(type);
}

void TokenizerSpec::UseSentencePieceRules(NormalizerStep rules) {
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (piece_types[id] == PieceType::kUserDefined) rules.kept_texts.push_back(tokens[id]);
  }
  marks_spaces = true;
  fuse_unknown = true;
  scores_are_float = true;
  if (rules.remove_extra_spaces) {
    leading_spaces = LeadingSpaces::kDropped;
  } else if (rules.prefix_rule != PrefixRule::kNever) {
    leading_spaces = LeadingSpaces::kOneDropped;
  }
  normalizer_steps.push_back(std::move(rules));
}

std::string WithoutSpaceMarks(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{absl::string_view(kSpaceMark.data(), kSpaceMark.size()), " "}});
}

}  // namespace cairn
