// Rows of a checkpoint's tensors as the kernels take them: joins model/checkpoint.h and
// kernels/dequantise.h. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/checkpoint.h"

namespace cairn {

// The bytes of a row of a matrix, which has a dtype.
const std::byte* RowData(const Tensor& tensor, int64_t row);

// The row as float32, [columns].
void ReadRow(const Tensor& tensor, int64_t row, float* out);

// The row's scales where the tensor has them, one for every kFloat8Block of columns; else none.
void ReadRowScales(const Tensor& tensor, int64_t row, std::vector<float>* out);

}  // namespace cairn
