// Tells two models apart by their headers, without reading a weight.
// Thread: any.
#pragma once

#include <string>

#include "model/checkpoint.h"
#include "model/model_config.h"

namespace cairn {

// A hash over the configuration and the names, types and shapes of all tensors, as 64 hexadecimal
// digits. Programs that open one model's files on several hosts compare it before anything is
// loaded; models that differ only in the values of their weights have the same digest.
std::string ModelDigest(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace cairn
