// The matrix product for AVX2, FMA and F16C.
#include "kernels/cpu_kernels.h"
#include "kernels/dot_avx2.h"
#include "kernels/packed_block.h"
#include "kernels/simd_avx2.h"

#define CAIRN_ISA avx2
#include "kernels/matmul.inc"
