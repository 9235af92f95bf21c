// Rows in the formats that the products after a norm read.
#pragma once

#include "kernels/activations.h"

namespace cairn {

struct Normed {
  Activations f32, int8;

  const Activations& As(ActivationFormat format) const {
    return format == ActivationFormat::kInt8 ? int8 : f32;
  }
};

}  // namespace cairn
