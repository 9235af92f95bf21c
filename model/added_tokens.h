// Finds the tokens that are matched in the text itself (control tokens, user-defined ones) before
// the rest is split and merged.
//
// Thread: any; constant after Create.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "model/prefix_trie.h"
#include "model/tokenizer_spec.h"

namespace cairn {

// A stretch of text: one added token, or plain text (id -1).
struct TextSpan {
  static constexpr int32_t kPlain = -1;
  size_t begin = 0;
  size_t end = 0;
  int32_t id = kPlain;
};

class AddedTokens {
 public:
  // `normalize` gives the form in which a token of the flag `normalized` is found.
  // Errors: InvalidArgument names a token that is empty, too long, or there twice; those of
  // `normalize`.
  using Normalize = absl::FunctionRef<absl::StatusOr<std::string>(std::string_view)>;
  static absl::StatusOr<std::unique_ptr<AddedTokens>> Create(std::vector<AddedToken> tokens,
                                                             Normalize normalize);

  // The spans of one text of one author, as it is written: all tokens but those of the flags
  // `normalized` and `is_piece`. Without `parse_special` the text of a control token is plain, and
  // so is any shorter token inside it.
  std::vector<TextSpan> Find(std::string_view text, bool parse_special) const;
  // The same of what lies between those spans, after it was normalised: the tokens that have the
  // flag `normalized`.
  std::vector<TextSpan> FindNormalized(std::string_view text, bool parse_special) const;

  // The spans of a text of which only `scaffolding` (ascending, apart) may hold added tokens, of
  // all flags; of what lies between, only tokens of nothing but white space are recognised.
  std::vector<TextSpan> FindInScaffolding(std::string_view text,
                                          const std::vector<TextSpan>& scaffolding) const;

  std::optional<int32_t> FindByText(std::string_view text) const;

 private:
  struct Match {
    const AddedToken* token = nullptr;  // nullptr: there is none
    size_t bytes = 0;
  };
  using Wanted = absl::FunctionRef<bool(const AddedToken&)>;

  AddedTokens() = default;

  // The longest token at the start of `text` for which `wanted` holds.
  Match Longest(const PrefixTrie& trie, std::string_view text, Wanted wanted) const;
  // Splits `span` of `text` at the tokens of `trie` and appends the parts to `out`.
  void FindIn(const PrefixTrie& trie, std::string_view text, TextSpan span, bool parse_special,
              std::vector<TextSpan>& out) const;
  std::vector<TextSpan> FindSpacesBetween(std::string_view text,
                                          const std::vector<TextSpan>& spans) const;

  std::vector<AddedToken> tokens_;
  // Values are indexes into tokens_.
  PrefixTrie first_pass_;   // found in text as it is written
  PrefixTrie second_pass_;  // the others, as they are written
  PrefixTrie normalized_;   // those with the flag `normalized`, in normalised form
};

}  // namespace cairn
