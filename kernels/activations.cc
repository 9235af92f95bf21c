#include "kernels/activations.h"

#include "base/log.h"
#include "kernels/cpu_kernels.h"

namespace cairn {

void StoreActivations(const CpuKernels& cpu, const float* values, int64_t n,
                      const ActivationSlot& out) {
  CHECK_GE(n, 0);
  cpu.store_activations(values, n, out);
}

}  // namespace cairn
