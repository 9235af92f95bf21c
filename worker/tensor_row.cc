#include "worker/tensor_row.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "kernels/dequantise.h"
#include "model/utf8.h"

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

absl::Status CheckFinite(const Tensor& tensor, std::span<const float> values) {
  const auto found = std::find_if_not(values.begin(), values.end(),
                                      [](float value) { return std::isfinite(value); });
  if (found == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", Printable(tensor.name),
      " has a value that is not finite: index=", found - values.begin(), " value=", *found));
}

void ReadRowScales(const Tensor& tensor, int64_t row, std::vector<float>* out) {
  out->clear();
  if (tensor.scales == nullptr) return;
  out->resize(static_cast<size_t>(tensor.scales->shape.back()));
  ReadRow(*tensor.scales, row / kFloat8Block, out->data());
}

}  // namespace cairn
