// The matrix product for AVX-512 F, BW, VL, DQ and VNNI; compiled with those flags.
#include "kernels/cpu_kernels.h"
#include "kernels/dot_avx512.h"
#include "kernels/packed_block.h"
#include "kernels/simd_avx512.h"

#define CAIRN_ISA avx512
#include "kernels/matmul.inc"
