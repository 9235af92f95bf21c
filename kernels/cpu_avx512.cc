// The kernels for AVX-512 F, BW, VL, DQ and VNNI; compiled with those flags.
#include "kernels/cpu_kernels.h"
#include "kernels/simd_avx512.h"

#define CAIRN_ISA avx512
#include "kernels/vector_math.inc"

#include "kernels/row_ops.inc"

#include "kernels/attention.inc"
#include "kernels/sampling.inc"

namespace cairn::avx512 {

const CpuKernels& Kernels() {
  static constexpr CpuKernels kKernels = {
      .name = "avx512",
      .matmul = Matmul,
      .store_activations = StoreActivations,
      .rms_norm = RmsNorm,
      .gate = GateBlock,
      .add = AddVectors,
      .scale = Scale,
      .rotate = Rotate,
      .round_to = RoundTo,
      .pack_queries = PackQueries,
      .attend_tile = AttendTile,
      .transpose_tokens = TransposeTokens,
      .cap = Cap,
      .merge_attention = MergeAttention,
      .finish_attention = FinishAttention,
      .chunk_maxima = ChunkMaxima,
      .chunk_sums = ChunkSums,
      .logit_weights = LogitWeights,
  };
  return kKernels;
}

}  // namespace cairn::avx512
