// Finds the tokens that are matched in the text itself (control tokens, user-defined ones) before
// the rest is split and merged.
//
// Thread: any; constant after Create.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
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
  // Errors: InvalidArgument names a token that is empty, too long, or there twice.
  static absl::StatusOr<std::unique_ptr<AddedTokens>> Create(std::vector<AddedToken> tokens);

  // The spans of one text of one author. Without `parse_special` the text of a control token is
  // plain, and so is any shorter token inside it.
  std::vector<TextSpan> Find(std::string_view text, bool parse_special) const;

  // The spans of a text of which only `scaffolding` (ascending, apart) may hold added tokens; of
  // what lies between, only tokens of nothing but white space are recognised.
  std::vector<TextSpan> FindInScaffolding(std::string_view text,
                                          const std::vector<TextSpan>& scaffolding) const;

  std::optional<int32_t> FindByText(std::string_view text) const;

 private:
  // All tokens of one pass by their bytes: a node is a set of tokens with a common beginning.
  struct Node {
    std::map<uint8_t, int32_t> children;
    int32_t token = -1;  // index into tokens_
  };
  using Trie = std::vector<Node>;

  AddedTokens() = default;

  void Add(Trie& trie, int32_t token);
  // The longest token at the start of `text` for which `wanted` holds; nullptr if there is none.
  const AddedToken* Longest(const Trie& trie, std::string_view text,
                            const std::function<bool(const AddedToken&)>& wanted) const;
  // Splits `span` of `text` at the tokens of `trie` and appends the parts to `out`.
  void FindIn(const Trie& trie, std::string_view text, TextSpan span, bool parse_special,
              std::vector<TextSpan>& out) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};  // bytes that some token begins with
  Trie first_pass_;                 // not normalized
  Trie second_pass_;                // normalized
};

}  // namespace cairn
