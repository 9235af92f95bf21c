// How the rows of a step that decodes leave are shared among the prompts in prefill.
//
// Most go to the oldest prompt, then the next, so that each ends as soon as it can and none waits
// for ever. 1 / kShortestShare goes to whom fewest tokens are left, so that a short prompt is
// answered soon although a long one came before it. A row that one part cannot use goes to the
// other.
// Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cairn {

inline constexpr int32_t kShortestShare = 4;

// `pending`: tokens left of each prompt, oldest first. Gives the rows of each: no more than are
// pending, and together min(num_rows, all that is pending).
std::vector<int32_t> SharePrefillRows(std::span<const int32_t> pending, int32_t num_rows);

}  // namespace cairn
