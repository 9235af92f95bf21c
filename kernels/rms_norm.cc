#include "kernels/rms_norm.h"

#include "base/log.h"
#include "kernels/cpu_kernels.h"

namespace cairn {

void RmsNorm(const Context& context, const RmsNormArgs& args, Range rows) {
  CHECK_GT(args.dim, 0);
  const auto row_of = [](const Activations& out, ActivationFormat format, int64_t dim,
                         int64_t row) -> std::byte* {
    if (out.data == nullptr) return nullptr;
    CHECK(out.format == format) << "output has the other format";
    CHECK_EQ(out.num_blocks, BlocksFor(dim));
    return out.row(row);
  };
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t from = args.row_index == nullptr ? row : args.row_index[row];
    context.cpu().rms_norm(
        {.x = args.x + from * args.x_stride,
         .weight = args.weight,
         .dim = args.dim,
         .eps = args.eps,
         .out_f32 = row_of(args.out_f32, ActivationFormat::kF32, args.dim, row),
         .out_int8 = row_of(args.out_int8, ActivationFormat::kInt8, args.dim, row)});
  }
}

}  // namespace cairn
