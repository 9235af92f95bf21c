// Rows in the formats that the products after a norm read.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/activations.h"

namespace cairn {

struct Normed {
  Activations f32, quantised;  // the latter empty if nothing reads it

  const Activations& As(ActivationFormat format) const {
    return format == ActivationFormat::kF32 ? f32 : quantised;
  }
};

// The same with its memory.
class NormedRows {
 public:
  // `activations`: what quantised weights read. `what` names the use in errors.
  // Errors: ResourceExhausted.
  absl::Status Allocate(int64_t num_rows, int64_t dim, ActivationFormat activations,
                        std::string_view what);
  const Normed& rows() const { return rows_; }

 private:
  HostBuffer f32_, quantised_;
  Normed rows_;
};

}  // namespace cairn
