// SentencePiece's precompiled map of characters: which texts stand for which others ("nmt_nfkc" and
// the like). A double-array trie in the layout of darts-clone, with a pool of replacements.
//
// Thread: any; constant after Create.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cairn {

inline constexpr int64_t kMaxCharsMapBytes = int64_t{16} << 20;
// Of a text that is mapped as one; the longest of "nmt_nfkc_cf" is below 40.
inline constexpr size_t kMaxMappedBytes = 256;

class CharsMap {
 public:
  CharsMap() = default;  // maps nothing

  // `compiled` as in the file: a 32-bit length of the trie, the trie, then replacements that end
  // with a zero byte each. An empty one maps nothing.
  // Errors: InvalidArgument if sizes do not fit together.
  static absl::StatusOr<CharsMap> Create(std::string_view compiled);

  struct Match {
    size_t bytes = 0;  // 0: `text` begins with nothing that is mapped
    std::string_view replacement;
  };
  // The longest mapped text that `text` begins with. The view lives as long as the map.
  Match Find(std::string_view text) const;

 private:
  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace cairn
