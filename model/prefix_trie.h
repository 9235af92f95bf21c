// Texts by their bytes: which of them begin at a place, all at once.
// Thread: any; constant after the last Add. Errors: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace cairn {

class PrefixTrie {
 public:
  static constexpr int32_t kRoot = 0;
  static constexpr int32_t kNone = -1;

  // `value` must not be negative. A text that is there already gets the new value.
  void Add(std::string_view text, int32_t value) {
    int32_t node = kRoot;
    if (!text.empty()) starts_[static_cast<uint8_t>(text[0])] = true;
    for (const char c : text) {
      const auto [child, inserted] =
          children_.emplace(Key(node, c), static_cast<int32_t>(values_.size()));
      node = child->second;
      if (inserted) values_.push_back(kNone);
    }
    values_[node] = value;
  }

  // The node of the text of `node` and `c`; kNone if no text begins with that.
  int32_t Next(int32_t node, char c) const {
    if (node == kRoot && !starts_[static_cast<uint8_t>(c)]) return kNone;
    const auto child = children_.find(Key(node, c));
    return child == children_.end() ? kNone : child->second;
  }
  // Of the text that ends at `node`; kNone if none does.
  int32_t value(int32_t node) const { return values_[node]; }

  struct Match {
    size_t bytes = 0;  // 0: there is none
    int32_t value = kNone;
  };
  // The longest of the texts that `text` begins with.
  Match LongestAt(std::string_view text) const {
    Match longest;
    int32_t node = kRoot;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Next(node, text[i]);
      if (node == kNone) break;
      if (values_[node] != kNone) longest = {i + 1, values_[node]};
    }
    return longest;
  }

 private:
  static uint64_t Key(int32_t node, char c) {
    return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
  }

  absl::flat_hash_map<uint64_t, int32_t> children_;
  std::vector<int32_t> values_ = {kNone};  // by node
  std::array<bool, 256> starts_{};         // Most places of a text are told by their first byte.
};

}  // namespace cairn
