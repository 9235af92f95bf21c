// Rows in the formats that the products after a norm read.
#pragma once

#include "kernels/activations.h"

namespace cairn {

struct Normed {
  Activations f32, quantised;

  const Activations& As(ActivationFormat format) const {
    return format == ActivationFormat::kF32 ? f32 : quantised;
  }
};

}  // namespace cairn
