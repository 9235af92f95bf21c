#include "kernels/rms_norm.h"

#include "base/log.h"
#include "kernels/cpu_kernels.h"

namespace cairn {

void RmsNorm(const Context& context, const RmsNormArgs& args, Range rows) {
  CHECK_GT(args.dim, 0);
  const auto slot_of = [&](const Activations& out, bool quantised, int64_t row) -> ActivationSlot {
    if (out.data == nullptr) return {};
    CHECK_EQ(out.format != ActivationFormat::kF32, quantised) << "output has the other format";
    CHECK_EQ(out.num_blocks, BlocksFor(args.dim));
    return out.Slot(row, 0);
  };
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t from = args.row_index == nullptr ? row : args.row_index[row];
    context.cpu().rms_norm({.x = args.x + from * args.x_stride,
                            .weight = args.weight,
                            .dim = args.dim,
                            .eps = args.eps,
                            .out_f32 = slot_of(args.out_f32, false, row).data,
                            .out_quantised = slot_of(args.out_quantised, true, row)});
  }
}

}  // namespace cairn
