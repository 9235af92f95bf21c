// Rows of any DType as float32: embedding look-ups, and the reference meaning of each type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace cairn {

// out[i] = element i of the row, of kF8E4M3 without its scale, n a multiple of the type's
// block_elements. `row` needs no alignment. Thread: any.
void DequantiseRow(DType dtype, const std::byte* row, int64_t n, float* out);

// values[i] *= scales[i / kFloat8Block]. Thread: any.
void ScaleFloat8Row(const float* scales, int64_t n, float* values);

}  // namespace cairn
