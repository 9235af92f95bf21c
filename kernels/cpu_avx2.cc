// The kernels for AVX2, FMA and F16C: the floor that all code is compiled for.
#include "kernels/cpu_kernels.h"
#include "kernels/simd_avx2.h"

#define CAIRN_ISA avx2
#include "kernels/vector_math.inc"

#include "kernels/row_ops.inc"

#include "kernels/attention.inc"
#include "kernels/sampling.inc"

namespace cairn::avx2 {

const CpuKernels& Kernels() {
  static constexpr CpuKernels kKernels = {
      .name = "avx2",
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

}  // namespace cairn::avx2
