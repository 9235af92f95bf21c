// Exact dot products of a packed block with 32 quantised activations, for AVX2: 8 output rows.
// Only for cpu_avx2.cc.
#pragma once

#include <immintrin.h>

#include "kernels/activations.h"
#include "kernels/packed_block.h"
#include "kernels/simd_avx2.h"

namespace cairn::avx2 {

inline constexpr int kDotLanes = 8;  // output rows per dot product
using Lanes = F32x8;
inline Lanes LoadLanes(const float* p) { return Load8(p); }

// Heights of register tiles: rows of activations, and tiles of weights beside each other.
inline constexpr int kInt8Strip = 4;
inline constexpr int kPlainStrip = 6;
inline constexpr int kDequantStrip = 4;
inline constexpr int kFloatTiles = 1;

inline __m256i Broadcast4(const ActivationBlock& x, int group) {
  int32_t four;
  __builtin_memcpy(&four, x.values + 4 * group, 4);
  return _mm256_set1_epi32(four);
}
inline __m256i LoadBytes(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Lanes LoadScales(const std::byte* p, int first_lane) {
  return LoadHalf8(reinterpret_cast<const uint16_t*>(p) + first_lane);
}

// One 32-block of 8 weight rows: lanes first_lane.. of the tile, unpacked to bytes.
template <DType kType>
struct WeightBlock {
  __m256i quants[8];
  __m256i sub_scales;  // kQ6_K: both scales of a row as 16-bit numbers
  Lanes scale, min;

  WeightBlock(const std::byte* block, int first_lane) {
    const std::byte* bytes = block + 4 * first_lane;
    if constexpr (kType == DType::kQ8_0) {
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) quants[g] = LoadBytes(bytes + 64 * g);
    } else {
      const __m256i mask = _mm256_set1_epi8(0x0f);
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        const __m256i raw = LoadBytes(bytes + 64 * g);
        quants[g] = _mm256_and_si256(raw, mask);
        quants[g + 4] = _mm256_and_si256(_mm256_srli_epi16(raw, 4), mask);
      }
    }
    if constexpr (kType == DType::kQ6_K) AddHighBits(bytes), LoadSubScales(block, first_lane);
    scale = LoadScales(block + ScalesAt(kType), first_lane);
    if constexpr (kType == DType::kQ4_1) min = LoadScales(block + kMinimumsAt, first_lane);
  }

  void AddHighBits(const std::byte* bytes) {
    const __m256i mask = _mm256_set1_epi8(0x30);
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      const __m256i raw = LoadBytes(bytes + kHighBitsAt + 64 * u);
      const __m256i fields[4] = {_mm256_slli_epi16(raw, 4), _mm256_slli_epi16(raw, 2), raw,
                                 _mm256_srli_epi16(raw, 2)};
#pragma GCC unroll 4
      for (int f = 0; f < 4; ++f)
        quants[2 * f + u] = _mm256_or_si256(quants[2 * f + u], _mm256_and_si256(fields[f], mask));
    }
  }

  void LoadSubScales(const std::byte* block, int first_lane) {
    const auto load = [&](int half) {
      const std::byte* at = block + kSubScalesAt + half * kTileRows + first_lane;
      return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
    };
    sub_scales = _mm256_blend_epi16(load(0), _mm256_slli_epi32(load(1), 16), 0xaa);
  }

  Lanes Dot(const ActivationBlock& x) const {
    if constexpr (kType == DType::kQ8_0) return {_mm256_cvtepi32_ps(DotSigned(x))};
    if constexpr (kType == DType::kQ6_K) return {_mm256_cvtepi32_ps(DotSubScaled(x))};
    const __m256i dot = DotNibbles(x);
    if constexpr (kType == DType::kQ4_1) return {_mm256_cvtepi32_ps(dot)};
    return {_mm256_cvtepi32_ps(_mm256_sub_epi32(dot, _mm256_set1_epi32(8 * x.sum)))};
  }

  // 8 products of pairs stay below 8 * 2 * 15 * 128 = 30720: 16 bits hold the whole block.
  __m256i DotNibbles(const ActivationBlock& x) const {
    __m256i sum = _mm256_maddubs_epi16(quants[0], Broadcast4(x, 0));
#pragma GCC unroll 8
    for (int g = 1; g < 8; ++g)
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(quants[g], Broadcast4(x, g)));
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
  }

  // |w| <= 128 and |x| <= 127: a pair stays below 2 * 128 * 127 = 32512.
  __m256i DotSigned(const ActivationBlock& x) const {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(quants[g]),
                                                 _mm256_sign_epi8(Broadcast4(x, g), quants[g]));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
  }

  // w = q - 32 with q in 0..63: two pairs stay below 2 * 2 * 63 * 128 = 32256. The whole dot
  // product stays below 32 * 32 * 127 * 128 < 2^24, so that its conversion to float is exact.
  __m256i DotSubScaled(const ActivationBlock& x) const {
    const auto pairs = [&](int g) {
      return _mm256_add_epi16(_mm256_maddubs_epi16(quants[g], Broadcast4(x, g)),
                              _mm256_maddubs_epi16(quants[g + 1], Broadcast4(x, g + 1)));
    };
    const __m256i low = _mm256_blend_epi16(sub_scales, _mm256_slli_epi32(sub_scales, 16), 0xaa);
    const __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(sub_scales, 16), sub_scales, 0xaa);
    const __m256i low_dot =
        _mm256_add_epi32(_mm256_madd_epi16(pairs(0), low), _mm256_madd_epi16(pairs(2), low));
    const __m256i high_dot =
        _mm256_add_epi32(_mm256_madd_epi16(pairs(4), high), _mm256_madd_epi16(pairs(6), high));
    const uint32_t sums = (static_cast<uint32_t>(x.low_sum) & 0xffffu) |
                          (static_cast<uint32_t>(x.sum - x.low_sum) << 16);
    const __m256i shift =
        _mm256_madd_epi16(sub_scales, _mm256_set1_epi32(static_cast<int32_t>(sums)));
    return _mm256_sub_epi32(_mm256_add_epi32(low_dot, high_dot), _mm256_slli_epi32(shift, 5));
  }
};

}  // namespace cairn::avx2
