#include "worker/tensor_row.h"

#include "base/dtype.h"
#include "kernels/dequantise.h"

namespace cairn {

const std::byte* RowData(const Tensor& tensor, int64_t row) {
  return tensor.data.data() + row * RowBytes(*tensor.dtype, tensor.shape.back());
}

void ReadRow(const Tensor& tensor, int64_t row, float* out) {
  const int64_t columns = tensor.shape.back();
  DequantiseRow(*tensor.dtype, RowData(tensor, row), columns, out);
  if (tensor.scales == nullptr) return;
  std::vector<float> scales;
  ReadRowScales(tensor, row, &scales);
  ScaleFloat8Row(scales.data(), columns, out);
}

void ReadRowScales(const Tensor& tensor, int64_t row, std::vector<float>* out) {
  out->clear();
  if (tensor.scales == nullptr) return;
  out->resize(static_cast<size_t>(tensor.scales->shape.back()));
  ReadRow(*tensor.scales, row / kFloat8Block, out->data());
}

}  // namespace cairn
