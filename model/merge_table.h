// Which two tokens merge into which, by their ids: a file's merges, or its ranks.
//
// Thread: any; constant after it was made.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "model/pair_merger.h"
#include "model/tokenizer_spec.h"

namespace cairn {

class MergeTable {
 public:
  // `spec.merges`, which name tokens as `spec.tokens` does.
  // Errors: InvalidArgument names a merge whose parts or whole are no tokens, one that makes a
  // control token, or a pair that is there twice.
  static absl::StatusOr<MergeTable> FromMerges(const TokenizerSpec& spec,
                                               const std::vector<bool>& special);

  // Each two tokens whose bytes together are those of a third, which ranks by its id.
  // Errors: InvalidArgument if that is more than kMaxMerges.
  static absl::StatusOr<MergeTable> FromIds(const std::vector<absl::string_view>& bytes_of_token,
                                            const std::vector<bool>& special);

  PairMerge Find(int32_t left, int32_t right) const {
    const auto found = merges_.find(Key(left, right));
    return found == merges_.end() ? PairMerge() : found->second;
  }

 private:
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  absl::flat_hash_map<uint64_t, PairMerge> merges_;
};

}  // namespace cairn
