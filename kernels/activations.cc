#include "kernels/activations.h"

#include "base/log.h"
#include "kernels/cpu_kernels.h"

namespace cairn {

void StoreActivations(const CpuKernels& cpu, ActivationFormat format, const float* values,
                      int64_t n, std::byte* out) {
  CHECK_GE(n, 0);
  cpu.store_activations(format, values, n, out);
}

}  // namespace cairn
