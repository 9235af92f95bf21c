#include "kernels/rope.h"

#include <cmath>
#include <cstring>

#include "base/log.h"
#include "kernels/cpu_kernels.h"

namespace cairn {
namespace {

constexpr int kMaxHeadDim = 1024;

// Column `slot` of keys [D][S] and row `slot` of values [S][D]; elements past D_true are zero.
template <class Element>
void StoreToken(const RopeAppendArgs& args, const Element* key, const Element* value, int slot,
                std::byte* keys, std::byte* values) {
  auto* key_column = reinterpret_cast<Element*>(keys) + slot;
  const int64_t stride = args.kv.block_tokens;
  for (int d = 0; d < args.head_dim; ++d) key_column[d * stride] = key[d];
  for (int d = args.head_dim; d < args.kv.head_dim; ++d) key_column[d * stride] = 0;
  auto* value_row = reinterpret_cast<Element*>(values) + int64_t{slot} * args.kv.head_dim;
  std::memcpy(value_row, value, sizeof(Element) * args.head_dim);
  std::memset(value_row + args.head_dim, 0, sizeof(Element) * (args.kv.head_dim - args.head_dim));
}

void AppendToken(const CpuKernels& cpu, const RopeAppendArgs& args, int64_t row, int kv_head,
                 const float* key, const float* value) {
  const int slot = args.positions[row] % args.kv.block_tokens;
  std::byte* keys = args.kv.keys(kv_head, args.blocks[row]);
  std::byte* values = args.kv.values(kv_head, args.blocks[row]);
  if (args.kv.dtype == DType::kF32) {
    StoreToken(args, key, value, slot, keys, values);
    return;
  }
  uint16_t rounded_key[kMaxHeadDim], rounded_value[kMaxHeadDim];
  cpu.round_to(args.kv.dtype, key, args.head_dim, rounded_key);
  cpu.round_to(args.kv.dtype, value, args.head_dim, rounded_value);
  StoreToken(args, rounded_key, rounded_value, slot, keys, values);
}

void Normalise(const CpuKernels& cpu, const RopeAppendArgs& args, const float* norm,
               float* values) {
  alignas(64) float normed[kMaxHeadDim];
  cpu.rms_norm({.x = values,
                .weight = norm,
                .dim = args.head_dim,
                .eps = args.norm_eps,
                .out_f32 = reinterpret_cast<std::byte*>(normed)});
  std::memcpy(values, normed, sizeof(float) * args.head_dim);
}

void CheckArgs(const RopeAppendArgs& args) {
  const KvLayer& kv = args.kv;
  CHECK(kv.dtype == DType::kF32 || kv.dtype == DType::kF16 || kv.dtype == DType::kBF16)
      << Info(kv.dtype).name;
  CHECK(args.head_dim > 0 && args.head_dim <= kv.head_dim && kv.head_dim <= kMaxHeadDim)
      << args.head_dim << " " << kv.head_dim;
  CHECK(args.rotary_dim >= 0 && args.rotary_dim <= args.head_dim && args.rotary_dim % 2 == 0)
      << args.rotary_dim;
  CHECK_GT(kv.block_tokens, 0);
}

}  // namespace

void RopeAngles(const int32_t* positions, const double* inverse_frequency, int64_t num_frequencies,
                double scale, Range rows, float* angles) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* out = angles + row * num_frequencies * 2;
    for (int64_t i = 0; i < num_frequencies; ++i) {
      const double angle = positions[row] * inverse_frequency[i];
      out[2 * i] = static_cast<float>(std::cos(angle) * scale);
      out[2 * i + 1] = static_cast<float>(std::sin(angle) * scale);
    }
  }
}

void RopeAppend(const Context& context, const RopeAppendArgs& args) {
  CheckArgs(args);
  const int num_kv_heads = args.kv.num_kv_heads;
  const int64_t heads_per_row = args.num_heads + num_kv_heads;
  const Range units = context.Share(args.num_rows * heads_per_row);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t row = unit / heads_per_row;
    const int head = static_cast<int>(unit % heads_per_row);
    float* values = args.qkv + row * args.qkv_stride + int64_t{head} * args.head_dim;
    const float* norm = head < args.num_heads ? args.query_norm : args.key_norm;
    if (norm != nullptr) Normalise(context.cpu(), args, norm, values);
    context.cpu().rotate({.pairs = args.pairs,
                          .angles = args.angles + row * args.rotary_dim,
                          .num_pairs = args.rotary_dim / 2,
                          .values = values});
    if (head < args.num_heads) {
      if (args.query_scale != 1) context.cpu().scale(args.query_scale, args.head_dim, values);
      continue;
    }
    AppendToken(context.cpu(), args, row, head - args.num_heads, values,
                values + int64_t{num_kv_heads} * args.head_dim);
  }
}

}  // namespace cairn
