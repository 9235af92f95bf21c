// The names that most files give to the weights of the graph, by role.
//
// Thread: any; constants.
#pragma once

#include <string_view>

#include "model/model_config.h"

namespace cairn {

struct NamedRole {
  WeightRole role;
  std::string_view name;
};

// Every GGUF file.
TensorNames GgufTensorNames();
// Safetensors, as the transformers library names them.
TensorNames SafetensorsTensorNames();

}  // namespace cairn
