// Causal attention as plain double loops: the slow truth.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace cairn {

// One query row: queries[num_heads][head_dim], already scaled, against the first num_tokens tokens
// of keys and values [tokens][num_kv_heads][head_dim]. Returns [num_heads][head_dim].
inline std::vector<double> ReferenceAttention(const float* queries, const float* keys,
                                              const float* values, int64_t num_tokens,
                                              int num_heads, int num_kv_heads, int head_dim) {
  std::vector<double> out(static_cast<size_t>(num_heads) * head_dim);
  std::vector<double> scores(static_cast<size_t>(num_tokens));
  for (int h = 0; h < num_heads; ++h) {
    const int kv_head = h / (num_heads / num_kv_heads);
    const auto offset = [&](int64_t token) {
      return (token * num_kv_heads + kv_head) * int64_t{head_dim};
    };
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t t = 0; t < num_tokens; ++t) {
      double score = 0;
      for (int d = 0; d < head_dim; ++d)
        score += static_cast<double>(queries[h * head_dim + d]) *
                 static_cast<double>(keys[offset(t) + d]);
      scores[static_cast<size_t>(t)] = score;
      max = std::max(max, score);
    }
    double* row = out.data() + static_cast<size_t>(h) * head_dim;
    for (int64_t t = 0; t < num_tokens; ++t) {
      const double weight = std::exp(scores[static_cast<size_t>(t)] - max);
      sum += weight;
      for (int d = 0; d < head_dim; ++d)
        row[d] += weight * static_cast<double>(values[offset(t) + d]);
    }
    for (int d = 0; d < head_dim; ++d) row[d] /= sum;
  }
  return out;
}

}  // namespace cairn
