// Exact dot products of a packed block with 32 quantised activations, for AVX-512 VNNI: 16 output
// rows. Only for cpu_avx512.cc.
#pragma once

#include <immintrin.h>

#include "kernels/activations.h"
#include "kernels/packed_block.h"
#include "kernels/simd_avx512.h"

namespace cairn::avx512 {

// Heights of register tiles: rows of activations, and tiles of weights beside each other.
inline constexpr int kInt8Strip = 8;
inline constexpr int kPlainStrip = 8;
inline constexpr int kDequantStrip = 8;
inline constexpr int kFloatTiles = 2;
// A strip's float sums stay in registers.
inline constexpr bool kFloatSumsInMemory = false;

inline __m512i Broadcast4(const ActivationBlock& x, int group) {
  int32_t four;
  __builtin_memcpy(&four, x.values + 4 * group, 4);
  return _mm512_set1_epi32(four);
}
inline __m512i LoadBytes(const std::byte* p) { return _mm512_loadu_si512(p); }

// One 32-block of 16 weight rows, unpacked to unsigned bytes.
template <DType kType>
struct WeightBlock {
  __m512i quants[8];
  __m512i sub_scales[2];  // kQ6_K
  const std::byte* block;

  explicit WeightBlock(const std::byte* packed) : block(packed) {
    if constexpr (kType == DType::kQ8_0) {
      const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) quants[g] = _mm512_xor_si512(LoadBytes(block + 64 * g), flip);
    } else {
      const __m512i mask = _mm512_set1_epi8(0x0f);
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        const __m512i raw = LoadBytes(block + 64 * g);
        quants[g] = _mm512_and_si512(raw, mask);
        quants[g + 4] = _mm512_and_si512(_mm512_srli_epi16(raw, 4), mask);
      }
    }
    if constexpr (HasFifthBit(kType)) AddFifthBits();
    if constexpr (kType == DType::kQ6_K) {
      AddHighBits();
      for (int half = 0; half < 2; ++half)
        sub_scales[half] = LoadInt8(block + kSubScalesAt + half * kTileRows).v;
    }
  }

  // The dot products with R activation blocks, `stride` bytes apart.
  template <int R>
  [[gnu::always_inline]] void Dots(const std::byte* x, int64_t stride, F32x16 (&out)[R]) const {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) out[r] = Dot(BlockAt(x, r * stride));
  }

  void AddFifthBits() {
    const __m512i mask = _mm512_set1_epi8(0x10);
    const __m512i raw = LoadBytes(block + kHighBitsAt);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const int bit = 4 * (g % 2) + g / 2;
      const __m512i moved =
          bit < 4 ? _mm512_slli_epi16(raw, 4 - bit) : _mm512_srli_epi16(raw, bit - 4);
      quants[g] = _mm512_or_si512(quants[g], _mm512_and_si512(moved, mask));
    }
  }

  void AddHighBits() {
    const __m512i mask = _mm512_set1_epi8(0x30);
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      const __m512i raw = LoadBytes(block + kHighBitsAt + 64 * u);
      const __m512i fields[4] = {_mm512_slli_epi16(raw, 4), _mm512_slli_epi16(raw, 2), raw,
                                 _mm512_srli_epi16(raw, 2)};
#pragma GCC unroll 4
      for (int f = 0; f < 4; ++f)
        quants[2 * f + u] = _mm512_or_si512(quants[2 * f + u], _mm512_and_si512(fields[f], mask));
    }
  }

  // 8 groups of 4 products onto `start`, in two chains.
  __m512i Sum8(const ActivationBlock& x, int32_t start) const {
    __m512i even = _mm512_set1_epi32(start);
    __m512i odd = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int g = 0; g < 8; g += 2) {
      even = _mm512_dpbusd_epi32(even, quants[g], Broadcast4(x, g));
      odd = _mm512_dpbusd_epi32(odd, quants[g + 1], Broadcast4(x, g + 1));
    }
    return _mm512_add_epi32(even, odd);
  }

  // Groups first .. first + 3 onto `start`.
  __m512i Sum4(const ActivationBlock& x, int first, int32_t start) const {
    __m512i sum = _mm512_set1_epi32(start);
#pragma GCC unroll 4
    for (int g = first; g < first + 4; ++g)
      sum = _mm512_dpbusd_epi32(sum, quants[g], Broadcast4(x, g));
    return sum;
  }

  // The weights were made unsigned by adding 128, 8, 16 or 32; the start value takes that back.
  // kQ6_K stays below 2^24 (dot_avx2.h), so every conversion to float is exact.
  F32x16 Dot(const ActivationBlock& x) const {
    if constexpr (kType == DType::kQ6_K) {
      const __m512i low = Sum4(x, 0, -32 * x.low_sum);
      const __m512i high = Sum4(x, 4, -32 * (x.sum - x.low_sum));
      return {_mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_mullo_epi32(low, sub_scales[0]),
                                                  _mm512_mullo_epi32(high, sub_scales[1])))};
    }
    if constexpr (kType == DType::kQ8_0) return {_mm512_cvtepi32_ps(Sum8(x, -128 * x.sum))};
    if constexpr (kType == DType::kQ4_0) return {_mm512_cvtepi32_ps(Sum8(x, -8 * x.sum))};
    if constexpr (kType == DType::kQ5_0) return {_mm512_cvtepi32_ps(Sum8(x, -16 * x.sum))};
    return {_mm512_cvtepi32_ps(Sum8(x, 0))};
  }
};

}  // namespace cairn::avx512
