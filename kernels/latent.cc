#include "kernels/latent.h"

#include <cstring>

#include "base/log.h"
#include "kernels/cpu_kernels.h"

namespace cairn {
namespace {

constexpr int kMaxLatentDim = 1 << 14;  // 64 KiB of stack

void CheckArgs(const LatentAppendArgs& args) {
  const KvLayer& kv = args.kv;
  CHECK(kv.layout == KvLayout::kLatent);
  CHECK(kv.dtype == DType::kF32 || kv.dtype == DType::kF16 || kv.dtype == DType::kBF16)
      << Info(kv.dtype).name;
  CHECK(args.latent_dim > 0 && args.rope_dim > 0 && args.rope_dim % 2 == 0) << args.rope_dim;
  CHECK_LE(args.latent_dim, kMaxLatentDim);
  CHECK_LE(args.latent_dim + args.rope_dim, kv.head_dim);
}

}  // namespace

void LatentAppend(const Context& context, const LatentAppendArgs& args) {
  CheckArgs(args);
  const CpuKernels& cpu = context.cpu();
  const KvLayer& kv = args.kv;
  const int width = args.latent_dim + args.rope_dim;
  const int64_t element_bytes = Info(kv.dtype).block_bytes;
  alignas(64) float normed[kMaxLatentDim];
  const Range rows = context.Share(args.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* values = args.latents + row * args.stride;
    cpu.rms_norm({.x = values,
                  .weight = args.norm,
                  .dim = args.latent_dim,
                  .eps = args.norm_eps,
                  .out_f32 = reinterpret_cast<std::byte*>(normed)});
    float* turned = values + args.latent_dim;
    cpu.rotate({.pairs = args.pairs,
                .angles = args.angles + row * args.rope_dim,
                .num_pairs = args.rope_dim / 2,
                .values = turned});
    std::byte* slot = kv.keys(0, args.blocks[row]) +
                      args.positions[row] % kv.block_tokens * kv.head_dim * element_bytes;
    cpu.round_to(kv.dtype, normed, args.latent_dim, slot);
    cpu.round_to(kv.dtype, turned, args.rope_dim, slot + args.latent_dim * element_bytes);
    std::memset(slot + width * element_bytes, 0, (kv.head_dim - width) * element_bytes);
  }
}

void LatentQueries(const Context& context, const LatentQueriesArgs& args) {
  const CpuKernels& cpu = context.cpu();
  const int64_t head_blocks = BlocksFor(args.nope_dim);
  CHECK_EQ(args.nope.num_blocks, head_blocks * args.num_heads);
  const Range units = context.Share(args.num_rows * args.num_heads);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t row = unit / args.num_heads, head = unit % args.num_heads;
    float* query = args.queries + row * args.query_stride + head * (args.nope_dim + args.rope_dim);
    float* turned = query + args.nope_dim;
    cpu.rotate({.pairs = args.pairs,
                .angles = args.angles + row * args.rope_dim,
                .num_pairs = args.rope_dim / 2,
                .values = turned});
    if (args.scale != 1) cpu.scale(args.scale, args.nope_dim + args.rope_dim, query);
    cpu.store_activations(query, args.nope_dim, args.nope.Slot(row, head * head_blocks));
    float* absorbed = args.absorbed + row * args.absorbed_stride +
                      head * (args.latent_dim + args.rope_dim) + args.latent_dim;
    std::memcpy(absorbed, turned, args.rope_dim * sizeof(float));
  }
}

}  // namespace cairn
