#include "worker/row_norms.h"

#include "kernels/gated_activation.h"
#include "kernels/rms_norm.h"

namespace cairn {
namespace {

// Up to this many rows every thread normalises for itself: cheaper than to wait for each other.
constexpr int64_t kRowsNormedAlone = 4;

}  // namespace

absl::Status RowNorms::Allocate(int64_t max_rows, int64_t dim, float eps,
                                ActivationFormat activations, int num_threads) {
  dim_ = dim;
  eps_ = eps;
  RETURN_IF_ERROR(shared_.Allocate(max_rows, dim, activations, "activations"));
  alone_.resize(num_threads);
  for (NormedRows& rows : alone_)
    RETURN_IF_ERROR(rows.Allocate(kRowsNormedAlone, dim, activations, "scratch"));
  return absl::OkStatus();
}

const Normed& RowNorms::Normalise(const Context& context, const float* x, int64_t stride,
                                  const std::vector<float>& weight, const int32_t* row_index,
                                  int64_t num_rows) {
  const bool alone = num_rows <= kRowsNormedAlone;
  const Normed& out = (alone ? alone_[context.thread()] : shared_).rows();
  RmsNorm(context,
          {.x = x,
           .x_stride = stride,
           .row_index = row_index,
           .weight = weight.data(),
           .dim = dim_,
           .eps = eps_,
           .out_f32 = out.f32,
           .out_quantised = out.quantised},
          alone ? Range{0, num_rows} : context.Share(num_rows));
  if (!alone) context.Sync();
  return out;
}

void RowNorms::AddNormalised(const Context& context, const float* sum, int64_t stride,
                             const std::vector<float>& weight, int64_t num_rows, float* x) {
  const Range rows = context.Share(num_rows);
  RmsNorm(context,
          {.x = sum,
           .x_stride = stride,
           .weight = weight.data(),
           .dim = dim_,
           .eps = eps_,
           .out_f32 = shared_.rows().f32},
          rows);
  for (int64_t row = rows.begin; row < rows.end; ++row)
    AddRows(context, x + row * stride, reinterpret_cast<const float*>(shared_.rows().f32.row(row)),
            dim_, x + row * stride);
  context.Sync();
}

}  // namespace cairn
