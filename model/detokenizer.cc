#include "model/detokenizer.h"

#include <utility>

#include "model/unicode.h"

namespace cairn {
namespace {

// Moves what is certain of `bytes` to the end of `out` as valid UTF-8 and returns the bytes of an
// incomplete character at the end, at most 3.
std::string_view AppendCertain(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const size_t valid = ValidUtf8Prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const DecodedCharacter character = DecodeCharacter(bytes);
    if (character.kind == DecodedCharacter::Kind::kIncomplete) break;
    out.append(kReplacementCharacter);
    bytes.remove_prefix(character.bytes);
  }
  return bytes;
}

size_t LeadingSpaces(const Tokenizer& tokenizer, const DetokenizerOptions& options) {
  return options.begins_text ? tokenizer.max_leading_spaces() : 0;
}

// What is left of `bytes` without the spaces of a text's beginning. `left`: how many may go; none
// once anything else was seen.
std::string_view WithoutLeadingSpaces(std::string_view bytes, size_t& left) {
  while (left > 0 && bytes.starts_with(' ')) {
    bytes.remove_prefix(1);
    --left;
  }
  if (!bytes.empty()) left = 0;
  return bytes;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options)
    : tokenizer_(tokenizer),
      options_(options),
      leading_spaces_left_(LeadingSpaces(*tokenizer, options)) {}

std::string Detokenizer::Add(int32_t id) {
  if (options_.skip_special_tokens && tokenizer_->is_special(id)) return "";
  tail_.append(WithoutLeadingSpaces(tokenizer_->TokenBytes(id), leading_spaces_left_));
  std::string delta;
  tail_ = std::string(AppendCertain(tail_, delta));
  return delta;
}

std::string Detokenizer::Finish() {
  leading_spaces_left_ = LeadingSpaces(*tokenizer_, options_);
  // The tail is the start of one character: one maximal subpart.
  return std::exchange(tail_, "").empty() ? "" : std::string(kReplacementCharacter);
}

std::string DecodeTokens(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                         DetokenizerOptions options) {
  std::string bytes;
  size_t leading_spaces_left = LeadingSpaces(tokenizer, options);
  for (const int32_t id : ids) {
    if (options.skip_special_tokens && tokenizer.is_special(id)) continue;
    bytes.append(WithoutLeadingSpaces(tokenizer.TokenBytes(id), leading_spaces_left));
  }
  return SanitizeUtf8(bytes);
}

std::string SanitizeUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  if (!AppendCertain(bytes, text).empty()) text.append(kReplacementCharacter);
  return text;
}

}  // namespace cairn
