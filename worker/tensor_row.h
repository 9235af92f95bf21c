// Rows of a checkpoint's tensors as the kernels take them: joins model/checkpoint.h and
// kernels/dequantise.h. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "model/checkpoint.h"

namespace cairn {

// The bytes of a row of a matrix, which has a dtype.
const std::byte* RowData(const Tensor& tensor, int64_t row);

// The row as float32, [columns].
void ReadRow(const Tensor& tensor, int64_t row, float* out);

// Errors: InvalidArgument naming the tensor, and the first of `values` that is not finite.
absl::Status CheckFinite(const Tensor& tensor, std::span<const float> values);

// The row's scales where the tensor has them, one for every kFloat8Block of columns; else none.
void ReadRowScales(const Tensor& tensor, int64_t row, std::vector<float>* out);

}  // namespace cairn
