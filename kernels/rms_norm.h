// RMSNorm of rows, written as activations of the products that follow.
#pragma once

#include "kernels/activations.h"
#include "kernels/context.h"

namespace cairn {

// y = x / sqrt(mean(x^2) + eps) * weight. The sum of squares runs over 16 virtual lanes (element i
// in lane i mod 16) that are added in a fixed tree, on every instruction set.
struct RmsNormArgs {
  const float* x = nullptr;  // row r at x + row_index(r) * x_stride, dim floats
  int64_t x_stride = 0;
  const int32_t* row_index = nullptr;  // null: row r itself
  const float* weight = nullptr;       // [dim]
  int64_t dim = 0;
  float eps = 0;
  Activations out_f32 = {};  // either may have null data
  Activations out_quantised = {};
};

// Normalises rows [rows.begin, rows.end): the caller divides rows among threads (a few rows are
// cheaper computed by every thread for itself than waited for). Does not Sync.
void RmsNorm(const Context& context, const RmsNormArgs& args, Range rows);

}  // namespace cairn
