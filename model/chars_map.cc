#include "model/chars_map.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// A unit of the double array: a label and the way to the children, or a leaf's value.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

absl::Status Malformed(std::string_view what, size_t value, size_t limit) {
  return absl::InvalidArgumentError(
      absl::StrCat("precompiled_charsmap: ", absl::string_view(what.data(), what.size()),
                   ": bytes=", value, " limit=", limit));
}

}  // namespace

absl::StatusOr<CharsMap> CharsMap::Create(std::string_view compiled) {
  CharsMap map;
  if (compiled.empty()) return map;
  if (static_cast<int64_t>(compiled.size()) > kMaxCharsMapBytes) {
    return Malformed("is too long", compiled.size(), kMaxCharsMapBytes);
  }
  uint32_t trie_bytes = 0;
  if (compiled.size() < sizeof(trie_bytes)) {
    return Malformed("ends inside its header", compiled.size(), sizeof(trie_bytes));
  }
  std::memcpy(&trie_bytes, compiled.data(), sizeof(trie_bytes));
  compiled.remove_prefix(sizeof(trie_bytes));
  const bool whole_units = trie_bytes > 0 && trie_bytes % sizeof(uint32_t) == 0;
  if (!whole_units || trie_bytes > compiled.size()) {
    return Malformed("has a trie of a wrong size", trie_bytes, compiled.size());
  }
  map.trie_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.trie_.data(), compiled.data(), trie_bytes);
  map.replacements_ = std::string(compiled.substr(trie_bytes));
  return map;
}

CharsMap::Match CharsMap::Find(std::string_view text) const {
  Match longest;
  if (trie_.empty()) return longest;
  // A file is not believed: every index is compared with the size, and a trie may go in circles.
  uint32_t at = Offset(trie_[0]);
  for (size_t i = 0; i < text.size() && i < kMaxMappedBytes; ++i) {
    at ^= static_cast<uint8_t>(text[i]);
    if (at >= trie_.size()) break;
    const uint32_t unit = trie_[at];
    if (Label(unit) != static_cast<uint8_t>(text[i])) break;
    at ^= Offset(unit);
    if (at >= trie_.size()) break;
    if (!HasLeaf(unit)) continue;
    const uint32_t begin = Value(trie_[at]);
    if (begin > replacements_.size()) continue;
    const size_t end = replacements_.find('\0', begin);
    longest = {i + 1, std::string_view(replacements_).substr(begin, end - begin)};
  }
  return longest;
}

}  // namespace cairn
