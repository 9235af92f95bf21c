#include "model/merge_table.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "model/utf8.h"

namespace cairn {

absl::StatusOr<MergeTable> MergeTable::FromMerges(const TokenizerSpec& spec,
                                                  const std::vector<bool>& special) {
  absl::flat_hash_map<absl::string_view, int32_t> ids;
  ids.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.tokens[id].empty()) ids.emplace(spec.tokens[id], static_cast<int32_t>(id));
  }
  MergeTable table;
  table.merges_.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left_text, right_text] = spec.merges[rank];
    const std::string merged_text = left_text + right_text;
    std::array<int32_t, 3> parts;
    for (int i = 0; const std::string* text : {&left_text, &right_text, &merged_text}) {
      const auto found = ids.find(*text);
      if (found == ids.end()) {
        return absl::InvalidArgumentError(absl::StrCat("merges: token is not in the vocabulary: \"",
                                                       Printable(*text), "\" merge=", rank));
      }
      parts[i++] = found->second;
    }
    if (special[parts[2]]) {
      return absl::InvalidArgumentError(absl::StrCat("merges: plain text makes a control token: \"",
                                                     Printable(merged_text), "\" merge=", rank));
    }
    const PairMerge merge{static_cast<int32_t>(rank), parts[2]};
    if (!table.merges_.emplace(Key(parts[0], parts[1]), merge).second) {
      return absl::InvalidArgumentError(absl::StrCat("merges: pair is there twice: \"",
                                                     Printable(left_text), "\" \"",
                                                     Printable(right_text), "\" merge=", rank));
    }
  }
  return table;
}

absl::StatusOr<MergeTable> MergeTable::FromIds(const std::vector<absl::string_view>& bytes_of_token,
                                               const std::vector<bool>& special) {
  absl::flat_hash_map<absl::string_view, int32_t> ids;
  ids.reserve(bytes_of_token.size());
  for (size_t id = 0; id < bytes_of_token.size(); ++id) {
    if (special[id] || bytes_of_token[id].empty()) continue;
    ids.emplace(bytes_of_token[id], static_cast<int32_t>(id));
  }
  MergeTable table;
  for (const auto& [bytes, id] : ids) {
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids.find(bytes.substr(0, cut));
      const auto right = ids.find(bytes.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      table.merges_.emplace(Key(left->second, right->second), PairMerge{id, id});
      if (static_cast<int64_t>(table.merges_.size()) > kMaxMerges) {
        return absl::InvalidArgumentError(
            absl::StrCat("vocabulary: too many pairs of tokens make a third: limit=", kMaxMerges));
      }
    }
  }
  return table;
}

}  // namespace cairn
