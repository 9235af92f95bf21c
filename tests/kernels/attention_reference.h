// Causal attention as plain double loops: the slow truth.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace cairn {

// One query row and the tokens [first_token, end_token) that it sees.
struct ReferenceQuery {
  const float* queries = nullptr;  // [num_heads][head_dim], already scaled
  const float* keys = nullptr;     // [tokens][num_kv_heads][head_dim]
  const float* values = nullptr;   // the same
  int64_t first_token = 0, end_token = 0;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int value_dim = 0;     // leading elements of a value that count
  double score_cap = 0;  // 0: none
};

// Returns [num_heads][value_dim].
inline std::vector<double> ReferenceAttention(const ReferenceQuery& query) {
  const int head_dim = query.head_dim, value_dim = query.value_dim;
  std::vector<double> out(static_cast<size_t>(query.num_heads) * value_dim);
  std::vector<double> scores(static_cast<size_t>(query.end_token));
  for (int h = 0; h < query.num_heads; ++h) {
    const int kv_head = h / (query.num_heads / query.num_kv_heads);
    const auto offset = [&](int64_t token) {
      return (token * query.num_kv_heads + kv_head) * int64_t{head_dim};
    };
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t t = query.first_token; t < query.end_token; ++t) {
      double score = 0;
      for (int d = 0; d < head_dim; ++d)
        score += static_cast<double>(query.queries[h * head_dim + d]) *
                 static_cast<double>(query.keys[offset(t) + d]);
      if (query.score_cap > 0) score = query.score_cap * std::tanh(score / query.score_cap);
      scores[static_cast<size_t>(t)] = score;
      max = std::max(max, score);
    }
    double* row = out.data() + static_cast<size_t>(h) * value_dim;
    for (int64_t t = query.first_token; t < query.end_token; ++t) {
      const double weight = std::exp(scores[static_cast<size_t>(t)] - max);
      sum += weight;
      for (int d = 0; d < value_dim; ++d)
        row[d] += weight * static_cast<double>(query.values[offset(t) + d]);
    }
    for (int d = 0; d < value_dim; ++d) row[d] /= sum;
  }
  return out;
}

}  // namespace cairn
