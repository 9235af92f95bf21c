// Rows of any DType as float32: embedding look-ups, and the reference meaning of each type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace cairn {

// out[i] = element i of the row, n a multiple of the type's block_elements. `row` needs no
// alignment. Thread: any.
void DequantiseRow(DType dtype, const std::byte* row, int64_t n, float* out);

}  // namespace cairn
