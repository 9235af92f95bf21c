#include "worker/prefill_share.h"

#include <algorithm>
#include <numeric>

namespace cairn {

std::vector<int32_t> SharePrefillRows(std::span<const int32_t> pending, int32_t num_rows) {
  std::vector<int32_t> rows(pending.size(), 0);
  const auto left = [&](size_t i) { return pending[i] - rows[i]; };
  const auto give = [&](size_t i, int32_t* from) {
    const int32_t given = std::min(*from, left(i));
    rows[i] += given;
    *from -= given;
  };
  // The oldest gets a row, however few there are.
  const int32_t for_shortest =
      std::max(0, std::min(num_rows - 1, (num_rows + kShortestShare - 1) / kShortestShare));
  int32_t for_oldest = num_rows - for_shortest;
  for (size_t i = 0; i < pending.size(); ++i) give(i, &for_oldest);
  int32_t rest = for_oldest + for_shortest;
  std::vector<size_t> by_length(pending.size());
  std::iota(by_length.begin(), by_length.end(), size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](size_t a, size_t b) { return left(a) < left(b); });
  for (const size_t i : by_length) give(i, &rest);
  return rows;
}

}  // namespace cairn
