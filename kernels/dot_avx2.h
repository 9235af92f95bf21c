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

// Keeps the compiler from loading the next groups before this sum: it would run out of registers.
[[gnu::always_inline]] inline void Settle(__m256i& sum) {
  asm volatile("" : "+x"(sum) : : "memory");
}

// One 32-block of 8 weight rows: lanes first_lane.. of the tile. Weights are unpacked group by
// group for all activation rows of a strip at once: the 16 registers hold a strip's sums and one
// group.
template <DType kType>
class WeightBlock {
 public:
  WeightBlock(const std::byte* block, int first_lane) : block_(block), first_lane_(first_lane) {}

  Lanes Scale() const { return LoadScales(block_ + ScalesAt(kType), first_lane_); }
  Lanes Min() const { return LoadScales(block_ + kMinimumsAt, first_lane_); }

  // The dot products with R activation blocks, `stride` blocks apart.
  template <int R>
  [[gnu::always_inline]] void Dots(const ActivationBlock* x, int64_t stride,
                                   Lanes (&out)[R]) const {
    __m256i sums[R];
    if constexpr (kType == DType::kQ8_0)
      AddSigned(x, stride, sums);
    else if constexpr (kType == DType::kQ6_K)
      AddSubScaled(x, stride, sums);
    else
      AddNibbles(x, stride, sums);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if constexpr (kType == DType::kQ4_0)
        sums[r] = _mm256_sub_epi32(sums[r], _mm256_set1_epi32(8 * x[r * stride].sum));
      out[r] = {_mm256_cvtepi32_ps(sums[r])};
    }
  }

 private:
  // The 4 bytes of each lane in vector `g` of the block.
  __m256i Load(int g) const { return LoadBytes(block_ + 4 * first_lane_ + 64 * g); }

  // 8 products of pairs stay below 8 * 2 * 15 * 128 = 30720: 16 bits hold the whole block.
  template <int R>
  [[gnu::always_inline]] void AddNibbles(const ActivationBlock* x, int64_t stride,
                                         __m256i (&sums)[R]) const {
    const __m256i mask = _mm256_set1_epi8(0x0f);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const __m256i raw = Load(g);
      const __m256i low = _mm256_and_si256(raw, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), mask);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const ActivationBlock& row = x[r * stride];
        const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, Broadcast4(row, g)),
                                               _mm256_maddubs_epi16(high, Broadcast4(row, g + 4)));
        sums[r] = g == 0 ? pairs : _mm256_add_epi16(sums[r], pairs);
        Settle(sums[r]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r] = _mm256_madd_epi16(sums[r], _mm256_set1_epi16(1));
  }

  // |w| <= 128 and |x| <= 127: a pair stays below 2 * 128 * 127 = 32512.
  template <int R>
  [[gnu::always_inline]] void AddSigned(const ActivationBlock* x, int64_t stride,
                                        __m256i (&sums)[R]) const {
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m256i weights = Load(g);
      const __m256i magnitudes = _mm256_abs_epi8(weights);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m256i signs = _mm256_sign_epi8(Broadcast4(x[r * stride], g), weights);
        const __m256i quads = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitudes, signs), ones);
        sums[r] = g == 0 ? quads : _mm256_add_epi32(sums[r], quads);
        Settle(sums[r]);
      }
    }
  }

  // w = q - 32 with q in 0..63: two pairs stay below 2 * 2 * 63 * 128 = 32256. The whole dot
  // product stays below 32 * 32 * 127 * 128 < 2^24, so that its conversion to float is exact.
  template <int R>
  [[gnu::always_inline]] void AddSubScaled(const ActivationBlock* x, int64_t stride,
                                           __m256i (&sums)[R]) const {
    const __m256i scales = SubScales();
    const __m256i low = _mm256_blend_epi16(scales, _mm256_slli_epi32(scales, 16), 0xaa);
    const __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(scales, 16), scales, 0xaa);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const ActivationBlock& row = x[r * stride];
      const uint32_t halves = (static_cast<uint32_t>(row.low_sum) & 0xffffu) |
                              (static_cast<uint32_t>(row.sum - row.low_sum) << 16);
      const __m256i shift =
          _mm256_madd_epi16(scales, _mm256_set1_epi32(static_cast<int32_t>(halves)));
      sums[r] = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(shift, 5));
    }
#pragma GCC unroll 4
    for (int g = 0; g < 8; g += 2) {
      const __m256i first = SixBits(g), second = SixBits(g + 1);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const ActivationBlock& row = x[r * stride];
        const __m256i pairs =
            _mm256_add_epi16(_mm256_maddubs_epi16(first, Broadcast4(row, g)),
                             _mm256_maddubs_epi16(second, Broadcast4(row, g + 1)));
        sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs, g < 4 ? low : high));
      }
    }
  }

  // kQ6_K: both scales of a row as 16-bit numbers.
  __m256i SubScales() const {
    const auto load = [&](int half) {
      const std::byte* at = block_ + kSubScalesAt + half * kTileRows + first_lane_;
      return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
    };
    return _mm256_blend_epi16(load(0), _mm256_slli_epi32(load(1), 16), 0xaa);
  }

  // kQ6_K: the quants of k = 4g .. 4g+3.
  [[gnu::always_inline]] __m256i SixBits(int g) const {
    const __m256i raw = Load(g % 4);
    const __m256i low =
        _mm256_and_si256(g < 4 ? raw : _mm256_srli_epi16(raw, 4), _mm256_set1_epi8(0x0f));
    const __m256i bits = LoadBytes(block_ + 4 * first_lane_ + kHighBitsAt + 64 * (g % 2));
    const int field = g / 2;
    const __m256i moved = field == 0   ? _mm256_slli_epi16(bits, 4)
                          : field == 1 ? _mm256_slli_epi16(bits, 2)
                          : field == 2 ? bits
                                       : _mm256_srli_epi16(bits, 2);
    return _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
  }

  const std::byte* block_;
  int first_lane_;
};

}  // namespace cairn::avx2
