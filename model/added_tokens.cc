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

absl::StatusOr<std::unique_ptr<AddedTokens>> AddedTokens::Create(std::vector<AddedToken> tokens) {
  std::unique_ptr<AddedTokens> added(new AddedTokens());
  added->tokens_ = std::move(tokens);
  added->first_pass_.emplace_back();
  added->second_pass_.emplace_back();
  int64_t total_bytes = 0;
  for (size_t i = 0; i < added->tokens_.size(); ++i) {
    const AddedToken& token = added->tokens_[i];
    total_bytes += token.text.size();
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
    added->Add(token.normalized ? added->second_pass_ : added->first_pass_,
               static_cast<int32_t>(i));
  }
  return added;
}

void AddedTokens::Add(Trie& trie, int32_t token) {
  starts_[static_cast<uint8_t>(tokens_[token].text[0])] = true;
  int32_t node = 0;
  for (const char c : tokens_[token].text) {
    const auto [child, inserted] =
        trie[node].children.emplace(static_cast<uint8_t>(c), static_cast<int32_t>(trie.size()));
    node = child->second;
    if (inserted) trie.emplace_back();
  }
  trie[node].token = token;
}

const AddedToken* AddedTokens::Longest(const Trie& trie, std::string_view text,
                                       const std::function<bool(const AddedToken&)>& wanted) const {
  const AddedToken* longest = nullptr;
  if (text.empty() || !starts_[static_cast<uint8_t>(text[0])]) return nullptr;
  int32_t node = 0;
  for (const char c : text) {
    const auto child = trie[node].children.find(static_cast<uint8_t>(c));
    if (child == trie[node].children.end()) break;
    node = child->second;
    const int32_t token = trie[node].token;
    if (token >= 0 && wanted(tokens_[token])) longest = &tokens_[token];
  }
  return longest;
}

std::optional<int32_t> AddedTokens::FindByText(std::string_view text) const {
  for (const Trie* trie : {&first_pass_, &second_pass_}) {
    const AddedToken* token =
        Longest(*trie, text, [&](const AddedToken& t) { return t.text.size() == text.size(); });
    if (token != nullptr) return token->id;
  }
  return std::nullopt;
}

void AddedTokens::FindIn(const Trie& trie, std::string_view text, TextSpan span, bool parse_special,
                         std::vector<TextSpan>& out) const {
  const std::string_view part = text.substr(span.begin, span.end - span.begin);
  size_t done = 0;
  for (size_t at = 0; at < part.size();) {
    const AddedToken* token =
        Longest(trie, part.substr(at), [](const AddedToken&) { return true; });
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->text.size();
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
  std::vector<TextSpan> first;
  FindIn(first_pass_, text, {0, text.size()}, parse_special, first);
  if (second_pass_.size() == 1) return first;
  std::vector<TextSpan> both;
  for (const TextSpan& span : first) {
    if (span.id == TextSpan::kPlain) {
      FindIn(second_pass_, text, span, parse_special, both);
    } else {
      both.push_back(span);
    }
  }
  return both;
}

std::vector<TextSpan> AddedTokens::FindInScaffolding(
    std::string_view text, const std::vector<TextSpan>& scaffolding) const {
  // Scaffolding is searched run by run, so no match can reach into content.
  std::vector<TextSpan> carved;
  size_t done = 0;
  for (const TextSpan& run : scaffolding) {
    for (const TextSpan& span : Find(text.substr(run.begin, run.end - run.begin), true)) {
      if (span.id == TextSpan::kPlain) continue;
      AppendPlain(done, run.begin + span.begin, carved);
      carved.push_back({run.begin + span.begin, run.begin + span.end, span.id});
      done = run.begin + span.end;
    }
  }
  AppendPlain(done, text.size(), carved);

  const auto all_space = [](const AddedToken& t) { return !t.special && AllSpace(t.text); };
  if (std::none_of(tokens_.begin(), tokens_.end(), all_space)) return carved;
  std::vector<TextSpan> result;
  for (const TextSpan& span : carved) {
    if (span.id != TextSpan::kPlain) {
      result.push_back(span);
      continue;
    }
    size_t plain = span.begin;
    for (size_t at = span.begin; at < span.end;) {
      const std::string_view rest = text.substr(at, span.end - at);
      const AddedToken* token = Longest(first_pass_, rest, all_space);
      if (token == nullptr) token = Longest(second_pass_, rest, all_space);
      if (token == nullptr) {
        ++at;
        continue;
      }
      AppendPlain(plain, at, result);
      result.push_back({at, at + token->text.size(), token->id});
      plain = at += token->text.size();
    }
    AppendPlain(plain, span.end, result);
  }
  return result;
}

}  // namespace cairn
