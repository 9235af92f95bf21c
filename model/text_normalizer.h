// What a tokenizer does to text before it looks for pieces: normal forms, replacements, the mark of
// a text's beginning, and the rules of SentencePiece.
//
// Thread: any; constant after Create.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/chars_map.h"
#include "model/prefix_trie.h"
#include "model/unicode_form.h"

namespace cairn {

// Of a normalised text, of which the text before is a small part where a file asks for much.
inline constexpr int64_t kMaxNormalizedBytes = int64_t{256} << 20;
inline constexpr int64_t kMaxNormalizerSteps = 16;

// SentencePiece's white space, U+2581.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Where a part of a text, which added tokens divide, stands.
enum class PartPosition : uint8_t {
  kTextStart,
  kAfterBoundaryToken,  // after a begin or end token
  kInside,              // after another added token
};

// Which parts get a prefix.
enum class PrefixRule : uint8_t { kNever, kTextStart, kTextStartOrBoundary, kEveryPart };

struct NormalizerStep {
  enum class Kind : uint8_t { kUnicodeForm, kReplace, kPrefix, kSentencePiece };
  Kind kind = Kind::kReplace;
  UnicodeForm form = UnicodeForm::kNfc;  // of kUnicodeForm
  std::string from = {};                 // of kReplace: every occurrence
  std::string to = {};                   // of kReplace; of kPrefix: the prefix
  // Of kPrefix and kSentencePiece. Empty parts get none.
  PrefixRule prefix_rule = PrefixRule::kNever;
  bool unless_present = false;  // of kPrefix: none where the part begins with it

  // Of kSentencePiece, as `normalizer_spec` of a model file says.
  std::string chars_map = {};  // compiled; empty: no character changes
  bool remove_extra_spaces = false;
  std::vector<std::string> kept_texts = {};  // pieces of the user, which the map leaves alone
};

class TextNormalizer {
 public:
  // Errors: InvalidArgument names a step that is wrong or too large.
  static absl::StatusOr<std::unique_ptr<TextNormalizer>> Create(std::vector<NormalizerStep> steps);

  bool empty() const { return steps_.empty(); }

  // `text`, a part of one, must be UTF-8. Errors: InvalidArgument if the result would exceed
  // kMaxNormalizedBytes.
  absl::StatusOr<std::string> Apply(std::string_view text, PartPosition position) const;

 private:
  // The next characters and what stands for them; SentencePiece's unit of normalisation.
  struct Unit {
    size_t bytes = 0;
    std::string_view text;
  };

  TextNormalizer() = default;

  absl::StatusOr<std::string> ApplyStep(const NormalizerStep& step, std::string_view text,
                                        PartPosition position) const;
  absl::StatusOr<std::string> ApplySentencePiece(const NormalizerStep& step, std::string_view text,
                                                 PartPosition position) const;
  Unit NextUnit(std::string_view text) const;

  std::vector<NormalizerStep> steps_;
  CharsMap chars_map_;     // of the one kSentencePiece step
  PrefixTrie kept_texts_;  // of the same
};

}  // namespace cairn
