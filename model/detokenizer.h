// Token ids to text, one token at a time, for one request.
//
// A character may be spread over several tokens, so a delta holds back an incomplete tail. Every
// delta is valid UTF-8, and the deltas together with Finish() are byte for byte DecodeTokens() of
// all the ids. Bytes that can never be part of a character become one U+FFFD for each maximal
// subpart (Unicode 15, section 3.9), the rule that browsers and Python follow.
//
// Thread: one at a time. Errors: none; an unknown id is no text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "model/tokenizer.h"

namespace cairn {

struct DetokenizerOptions {
  // Leaves out the text of control tokens.
  bool skip_special_tokens = true;
  // The ids are a text from its beginning, so the space that the tokenizer puts before every text
  // goes. What continues a prompt keeps it.
  bool begins_text = false;
};

class Detokenizer {
 public:
  // `tokenizer` must outlive this.
  explicit Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options = {});

  // The text that became certain with this token; often empty inside a character.
  std::string Add(int32_t id);

  // What is still held back: nothing, or one U+FFFD if generation ended inside a character.
  // The detokenizer is then as new.
  std::string Finish();

  // True while an incomplete character is held back.
  bool pending() const { return !tail_.empty(); }

 private:
  const Tokenizer* const tokenizer_;
  const DetokenizerOptions options_;
  std::string tail_;            // The incomplete character, at most 3 bytes.
  size_t leading_spaces_left_;  // that may still be taken off
};

// The text of all the ids at once.
std::string DecodeTokens(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                         DetokenizerOptions options = {});

// `bytes` with each maximal subpart of an ill-formed sequence replaced by U+FFFD.
std::string SanitizeUtf8(std::string_view bytes);

}  // namespace cairn
