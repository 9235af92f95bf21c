#include "model/float8_scales.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/json_text.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using nlohmann::json;

constexpr char kTypeName[] = "F8_E4M3";
constexpr char kScalesSuffix[] = "_scale_inv";

absl::Status CheckField(const json& config, const char* field, const json& known,
                        const json& otherwise) {
  const auto found = config.find(field);
  const json& value = found == config.end() ? otherwise : *found;
  if (value == known) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("quantization_config.", field,
                                               " is not supported: value=", ShortJson(value),
                                               " known=", ShortJson(known)));
}

absl::Status CheckScales(const Tensor& matrix, const Tensor& scales) {
  const auto blocks = [](int64_t n) { return n / kFloat8Block + (n % kFloat8Block != 0 ? 1 : 0); };
  const std::vector<int64_t> shape = {blocks(matrix.shape[0]), blocks(matrix.shape[1])};
  if (scales.shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", Printable(scales.name), " does not fit its weight: expected=", ShapeText(shape),
        " actual=", ShapeText(scales.shape), " weight=", ShapeText(matrix.shape)));
  }
  if (scales.dtype == DType::kF32 || scales.dtype == DType::kBF16) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "tensor ", Printable(scales.name),
      " is of a type that scales cannot have: type=", scales.type_name, " known=F32, BF16"));
}

}  // namespace

absl::Status CheckQuantization(const json& quantization_config) {
  if (!quantization_config.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("quantization_config is not an object: value=",
                                                   ShortJson(quantization_config)));
  }
  const json format = "e4m3";
  RETURN_IF_ERROR(CheckField(quantization_config, "quant_method", "fp8", nullptr));
  RETURN_IF_ERROR(CheckField(quantization_config, "fmt", format, format));
  return CheckField(quantization_config, "weight_block_size", {kFloat8Block, kFloat8Block},
                    nullptr);
}

absl::Status LinkFloat8Scales(std::span<Tensor> tensors) {
  for (Tensor& tensor : tensors) {
    if (tensor.type_name != kTypeName || tensor.shape.size() != 2) continue;
    const std::string name = absl::StrCat(tensor.name, kScalesSuffix);
    const auto scales =
        std::lower_bound(tensors.begin(), tensors.end(), name,
                         [](const Tensor& a, const std::string& b) { return a.name < b; });
    if (scales == tensors.end() || scales->name != name) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Printable(name), " is missing: the scales of a weight of type ", kTypeName));
    }
    RETURN_IF_ERROR(CheckScales(tensor, *scales));
    tensor.dtype = DType::kF8E4M3;
    tensor.scales = &*scales;
  }
  return absl::OkStatus();
}

}  // namespace cairn
