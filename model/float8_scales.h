// 8-bit weights of safetensors directories: matrices of type F8_E4M3, each with a second tensor
// "<name>_scale_inv" that has a scale for every block of 128 x 128.
// Thread: any.
#pragma once

#include <span>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "model/checkpoint.h"

namespace cairn {

// Whether weights of a model with this `quantization_config` in its config.json can be computed
// with. Errors: Unimplemented naming the field, its value and what is known.
absl::Status CheckQuantization(const nlohmann::json& quantization_config);

// Gives each matrix of type F8_E4M3 its dtype and its scales. `tensors` are sorted by name.
// Errors: InvalidArgument naming the tensor whose scales are missing or of another shape;
// Unimplemented for scales of a type that is not known.
absl::Status LinkFloat8Scales(std::span<Tensor> tensors);

}  // namespace cairn
