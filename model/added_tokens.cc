#include "model/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/unicode.h"
#include "model/utf8.h"

namespace cairn {
namespace {

bool IsWordCharacter(char32_t c) { return IsLetter(c) || IsNumeric(c) || c == '_'; }

bool StartsWithWord(std::string_view text) {
  return !text.empty() && IsWordCharacter(DecodeCharacter(text).code_point);
}

// Start of the last character of `text`, which must not be empty.
size_t LastCharacter(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool EndsWithWord(std::string_view text) {
  return !text.empty() && StartsWithWord(text.substr(LastCharacter(text)));
}

bool IsSpaceAt(std::string_view text) {
  const DecodedCharacter c = DecodeCharacter(text);
  return c.kind == DecodedCharacter::Kind::kValid && IsSpaceCharacter(c.code_point);
}

size_t LeadingSpaceBytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && IsSpaceAt(text.substr(at)))
    at += DecodeCharacter(text.substr(at)).bytes;
  return at;
}

size_t TrailingSpaceBytes(std::string_view text) {
  const size_t all = text.size();
  while (!text.empty() && IsSpaceAt(text.substr(LastCharacter(text)))) {
    text.remove_suffix(text.size() - LastCharacter(text));
  }
  return all - text.size();
}

bool AllSpace(std::string_view text) { return LeadingSpaceBytes(text) == text.size(); }

void AppendPlain(size_t begin, size_t end, std::vector<TextSpan>& out) {
  if (begin < end) out.push_back({begin, end, TextSpan::kPlain});
}

}  // namespace

absl::StatusOr<std::unique_ptr<AddedTokens>> AddedTokens::Create(std::vector<AddedToken> tokens,
                                                                 Normalize normalize) {
  std::unique_ptr<AddedTokens> added(new AddedTokens());
  added->tokens_ = std::move(tokens);
  int64_t total_bytes = 0;
  for (size_t i = 0; i < added->tokens_.size(); ++i) {
    const AddedToken& token = added->tokens_[i];
    const auto index = static_cast<int32_t>(i);
    std::string normalized;
    if (token.normalized) {
      ASSIGN_OR_RETURN(normalized, normalize(token.text));
    }
    total_bytes += token.text.size() + normalized.size();
    if (total_bytes > kMaxAddedTokensBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("added tokens: too much text: limit=", kMaxAddedTokensBytes));
    }
    if (token.text.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("added token is empty: id=", token.id));
    }
    if (added->FindByText(token.text).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("added token is there twice: \"",
                                                     Printable(token.text), "\" id=", token.id));
    }
    const bool is_found_late = token.normalized || token.is_piece;
    (is_found_late ? added->second_pass_ : added->first_pass_).Add(token.text, index);
    if (!normalized.empty()) added->normalized_.Add(normalized, index);
  }
  return added;
}

AddedTokens::Match AddedTokens::Longest(const PrefixTrie& trie, std::string_view text,
                                        Wanted wanted) const {
  Match longest;
  int32_t node = PrefixTrie::kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    node = trie.Next(node, text[i]);
    if (node == PrefixTrie::kNone) break;
    const int32_t index = trie.value(node);
    if (index >= 0 && wanted(tokens_[index])) longest = {&tokens_[index], i + 1};
  }
  return longest;
}

std::optional<int32_t> AddedTokens::FindByText(std::string_view text) const {
  const auto is_all = [&](const AddedToken& token) { return token.text == text; };
  for (const PrefixTrie* trie : {&first_pass_, &second_pass_}) {
    if (const Match match = Longest(*trie, text, is_all); match.token != nullptr) {
      return match.token->id;
    }
  }
  return std::nullopt;
}

void AddedTokens::FindIn(const PrefixTrie& trie, std::string_view text, TextSpan span,
                         bool parse_special, std::vector<TextSpan>& out) const {
  const std::string_view part = text.substr(span.begin, span.end - span.begin);
  size_t done = 0;
  for (size_t at = 0; at < part.size();) {
    const auto [token, bytes] =
        Longest(trie, part.substr(at), [](const AddedToken&) { return true; });
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + bytes;
    at = end;
    if (token->special && !parse_special) continue;
    if (token->single_word &&
        (EndsWithWord(part.substr(0, begin)) || StartsWithWord(part.substr(end)))) {
      continue;
    }
    if (token->lstrip) begin = std::max(done, begin - TrailingSpaceBytes(part.substr(0, begin)));
    if (token->rstrip) end += LeadingSpaceBytes(part.substr(end));
    if (begin < done) continue;
    AppendPlain(span.begin + done, span.begin + begin, out);
    out.push_back({span.begin + begin, span.begin + end, token->id});
    done = end;
    at = std::max(at, end);
  }
  AppendPlain(span.begin + done, span.end, out);
}

std::vector<TextSpan> AddedTokens::Find(std::string_view text, bool parse_special) const {
  std::vector<TextSpan> spans;
  FindIn(first_pass_, text, {0, text.size()}, parse_special, spans);
  return spans;
}

std::vector<TextSpan> AddedTokens::FindNormalized(std::string_view text, bool parse_special) const {
  std::vector<TextSpan> spans;
  FindIn(normalized_, text, {0, text.size()}, parse_special, spans);
  return spans;
}

std::vector<TextSpan> AddedTokens::FindInScaffolding(
    std::string_view text, const std::vector<TextSpan>& scaffolding) const {
  // Scaffolding is searched run by run, so no match can reach into content.
  std::vector<TextSpan> found, carved;
  for (const TextSpan& run : scaffolding) {
    std::vector<TextSpan> first;
    FindIn(first_pass_, text, run, true, first);
    for (const TextSpan& span : first) {
      if (span.id == TextSpan::kPlain) {
        FindIn(second_pass_, text, span, true, found);
      } else {
        found.push_back(span);
      }
    }
  }
  // Plain text between two tokens is one span, whoever wrote it.
  size_t done = 0;
  for (const TextSpan& span : found) {
    if (span.id == TextSpan::kPlain) continue;
    AppendPlain(done, span.begin, carved);
    carved.push_back(span);
    done = span.end;
  }
  AppendPlain(done, text.size(), carved);
  return FindSpacesBetween(text, carved);
}

std::vector<TextSpan> AddedTokens::FindSpacesBetween(std::string_view text,
                                                     const std::vector<TextSpan>& spans) const {
  // The model itself finds the pieces of the user.
  const auto all_space = [](const AddedToken& token) {
    return !token.special && !token.is_piece && AllSpace(token.text);
  };
  if (std::none_of(tokens_.begin(), tokens_.end(), all_space)) return spans;
  std::vector<TextSpan> result;
  for (const TextSpan& span : spans) {
    if (span.id != TextSpan::kPlain) {
      result.push_back(span);
      continue;
    }
    size_t plain = span.begin;
    for (size_t at = span.begin; at < span.end;) {
      const std::string_view rest = text.substr(at, span.end - at);
      Match match = Longest(first_pass_, rest, all_space);
      if (match.token == nullptr) match = Longest(second_pass_, rest, all_space);
      if (match.token == nullptr) {
        ++at;
        continue;
      }
      AppendPlain(plain, at, result);
      result.push_back({at, at + match.bytes, match.token->id});
      plain = at += match.bytes;
    }
    AppendPlain(plain, span.end, result);
  }
  return result;
}

}  // namespace cairn
