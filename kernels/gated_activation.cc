#include "kernels/gated_activation.h"

#include "base/log.h"
#include "kernels/cpu_kernels.h"

namespace cairn {

void GatedActivation(const Context& context, const GatedActivationArgs& args) {
  CHECK(args.n > 0 && args.n <= kQuantBlock) << args.n;
  CHECK(args.out_block >= 0 && args.out_block < args.out.num_blocks) << args.out_block;
  for (int64_t row = 0; row < args.num_rows; ++row) {
    context.cpu().gate({.kind = args.gate_kind,
                        .gate = args.gate + row * args.stride,
                        .up = args.up + row * args.stride,
                        .n = args.n,
                        .out = args.out.Slot(row, args.out_block)});
  }
}

void AddRows(const Context& context, const float* a, const float* b, int64_t n, float* out) {
  CHECK_GE(n, 0);
  if (n > 0) context.cpu().add(a, b, n, out);
}

void ScaleRow(const Context& context, float factor, int64_t n, float* values) {
  context.cpu().scale(factor, n, values);
}

void CapRow(const Context& context, float cap, int64_t n, float* values) {
  context.cpu().cap(cap, n, values);
}

}  // namespace cairn
