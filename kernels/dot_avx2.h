// Exact dot products of a packed block with 32 quantised activations, for AVX2: 16 output
// rows as two vectors of 8.
// Only for cpu_avx2.cc.
#pragma once

#include <immintrin.h>

#include "kernels/activations.h"
#include "kernels/packed_block.h"
#include "kernels/simd_avx2.h"

namespace cairn::avx2 {

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
inline F32x16 LoadScales(const std::byte* p) {
  return LoadHalf(reinterpret_cast<const uint16_t*>(p));
}

// Keeps the compiler from loading the next groups before these sums: it would run out of registers.
[[gnu::always_inline]] inline void Settle(I32x16& sums) {
  asm volatile("" : "+x"(sums.lo), "+x"(sums.hi) : : "memory");
}

// One 32-block of 16 weight rows. Weights are unpacked group by group for all activation rows of a
// strip at once, and each broadcast of activations serves both vectors.
template <DType kType>
class WeightBlock {
 public:
  explicit WeightBlock(const std::byte* block) : block_(block) {}

  F32x16 Scale() const { return LoadScales(block_ + ScalesAt(kType)); }
  F32x16 Min() const { return LoadScales(block_ + kMinimumsAt); }

  // The dot products with R activation blocks, `stride` blocks apart.
  template <int R>
  [[gnu::always_inline]] void Dots(const ActivationBlock* x, int64_t stride,
                                   F32x16 (&out)[R]) const {
    I32x16 sums[R];
    if constexpr (kType == DType::kQ8_0)
      AddSigned(x, stride, sums);
    else if constexpr (kType == DType::kQ6_K)
      AddSubScaled(x, stride, sums);
    else
      AddNibbles(x, stride, sums);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if constexpr (kType == DType::kQ4_0) {
        const __m256i shift = _mm256_set1_epi32(8 * x[r * stride].sum);
        sums[r] = {_mm256_sub_epi32(sums[r].lo, shift), _mm256_sub_epi32(sums[r].hi, shift)};
      }
      out[r] = ToFloat(sums[r]);
    }
  }

 private:
  // The 4 bytes of each row in vector pair `g` of the block.
  [[gnu::always_inline]] I32x16 LoadGroup(int64_t offset) const {
    return {LoadBytes(block_ + offset), LoadBytes(block_ + offset + 32)};
  }
  // The low or the high nibbles.
  [[gnu::always_inline]] static I32x16 Nibbles(I32x16 raw, bool high) {
    const __m256i mask = _mm256_set1_epi8(0x0f);
    if (high) raw = {_mm256_srli_epi16(raw.lo, 4), _mm256_srli_epi16(raw.hi, 4)};
    return {_mm256_and_si256(raw.lo, mask), _mm256_and_si256(raw.hi, mask)};
  }

  // 8 products of pairs stay below 8 * 2 * 15 * 128 = 30720: 16 bits hold the whole block.
  template <int R>
  [[gnu::always_inline]] void AddNibbles(const ActivationBlock* x, int64_t stride,
                                         I32x16 (&sums)[R]) const {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const I32x16 raw = LoadGroup(64 * g);
#pragma GCC unroll 2
      for (int high = 0; high < 2; ++high) {
        const I32x16 quants = Nibbles(raw, high != 0);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const __m256i values = Broadcast4(x[r * stride], g + 4 * high);
          const __m256i lo = _mm256_maddubs_epi16(quants.lo, values);
          const __m256i hi = _mm256_maddubs_epi16(quants.hi, values);
          if (g + high == 0)
            sums[r] = {lo, hi};
          else
            sums[r] = {_mm256_add_epi16(sums[r].lo, lo), _mm256_add_epi16(sums[r].hi, hi)};
          Settle(sums[r]);
        }
      }
    }
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      sums[r] = {_mm256_madd_epi16(sums[r].lo, ones), _mm256_madd_epi16(sums[r].hi, ones)};
  }

  // |w| <= 128 and |x| <= 127: a pair stays below 2 * 128 * 127 = 32512.
  template <int R>
  [[gnu::always_inline]] void AddSigned(const ActivationBlock* x, int64_t stride,
                                        I32x16 (&sums)[R]) const {
    const __m256i ones = _mm256_set1_epi16(1);
    const auto quads = [&](__m256i weights, __m256i magnitudes, __m256i values) {
      const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(values, weights));
      return _mm256_madd_epi16(pairs, ones);
    };
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const I32x16 weights = LoadGroup(64 * g);
      const I32x16 magnitudes = {_mm256_abs_epi8(weights.lo), _mm256_abs_epi8(weights.hi)};
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m256i values = Broadcast4(x[r * stride], g);
        const __m256i lo = quads(weights.lo, magnitudes.lo, values);
        const __m256i hi = quads(weights.hi, magnitudes.hi, values);
        if (g == 0)
          sums[r] = {lo, hi};
        else
          sums[r] = {_mm256_add_epi32(sums[r].lo, lo), _mm256_add_epi32(sums[r].hi, hi)};
        Settle(sums[r]);
      }
    }
  }

  // w = q - 32 with q in 0..63: two pairs stay below 2 * 2 * 63 * 128 = 32256. The whole dot
  // product stays below 32 * 32 * 127 * 128 < 2^24, so that its conversion to float is exact.
  template <int R>
  [[gnu::always_inline]] void AddSubScaled(const ActivationBlock* x, int64_t stride,
                                           I32x16 (&sums)[R]) const {
    const I32x16 scales = {SubScales(0), SubScales(8)};
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const ActivationBlock& row = x[r * stride];
      const uint32_t halves = (static_cast<uint32_t>(row.low_sum) & 0xffffu) |
                              (static_cast<uint32_t>(row.sum - row.low_sum) << 16);
      const __m256i both = _mm256_set1_epi32(static_cast<int32_t>(halves));
      const auto start = [&](__m256i scale) {
        const __m256i shift = _mm256_slli_epi32(_mm256_madd_epi16(scale, both), 5);
        return _mm256_sub_epi32(_mm256_setzero_si256(), shift);
      };
      sums[r] = {start(scales.lo), start(scales.hi)};
    }
#pragma GCC unroll 4
    for (int g = 0; g < 8; g += 2) {
      const I32x16 first = SixBits(g), second = SixBits(g + 1);
      const __m256i lo_scale = SubScale(scales.lo, g >= 4), hi_scale = SubScale(scales.hi, g >= 4);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m256i a = Broadcast4(x[r * stride], g), b = Broadcast4(x[r * stride], g + 1);
        const __m256i lo =
            _mm256_add_epi16(_mm256_maddubs_epi16(first.lo, a), _mm256_maddubs_epi16(second.lo, b));
        const __m256i hi =
            _mm256_add_epi16(_mm256_maddubs_epi16(first.hi, a), _mm256_maddubs_epi16(second.hi, b));
        sums[r] = {_mm256_add_epi32(sums[r].lo, _mm256_madd_epi16(lo, lo_scale)),
                   _mm256_add_epi32(sums[r].hi, _mm256_madd_epi16(hi, hi_scale))};
        Settle(sums[r]);
      }
    }
  }

  // kQ6_K: both scales of 8 rows as 16-bit numbers, and one of them twice.
  __m256i SubScales(int first_row) const {
    const auto load = [&](int half) {
      const std::byte* at = block_ + kSubScalesAt + half * kTileRows + first_row;
      return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
    };
    return _mm256_blend_epi16(load(0), _mm256_slli_epi32(load(1), 16), 0xaa);
  }
  [[gnu::always_inline]] static __m256i SubScale(__m256i scales, bool second) {
    return second ? _mm256_blend_epi16(_mm256_srli_epi32(scales, 16), scales, 0xaa)
                  : _mm256_blend_epi16(scales, _mm256_slli_epi32(scales, 16), 0xaa);
  }

  // kQ6_K: the quants of k = 4g .. 4g+3.
  [[gnu::always_inline]] I32x16 SixBits(int g) const {
    const I32x16 low = Nibbles(LoadGroup(64 * (g % 4)), g >= 4);
    const I32x16 bits = LoadGroup(kHighBitsAt + 64 * (g % 2));
    const auto join = [&](__m256i nibbles, __m256i fields) {
      const int field = g / 2;
      const __m256i moved = field == 0   ? _mm256_slli_epi16(fields, 4)
                            : field == 1 ? _mm256_slli_epi16(fields, 2)
                            : field == 2 ? fields
                                         : _mm256_srli_epi16(fields, 2);
      return _mm256_or_si256(nibbles, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
    };
    return {join(low.lo, bits.lo), join(low.hi, bits.hi)};
  }

  const std::byte* block_;
};

}  // namespace cairn::avx2
