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
// Whether a strip's float sums wait in memory while the integer sums of a block fill the registers:
// what the compiler would put there instead is read far more often.
inline constexpr bool kFloatSumsInMemory = true;

inline __m256i Broadcast4(const ActivationBlock& x, int group) {
  int32_t four;
  __builtin_memcpy(&four, x.values + 4 * group, 4);
  return _mm256_set1_epi32(four);
}
inline __m256i LoadBytes(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Keeps the compiler from loading the next groups before these sums: it would run out of registers.
[[gnu::always_inline]] inline void Settle(__m256i& sum) {
  asm volatile("" : "+x"(sum) : : "memory");
}
[[gnu::always_inline]] inline void Settle(I32x16& sums) {
  asm volatile("" : "+x"(sums.lo), "+x"(sums.hi) : : "memory");
}

// One 32-block of 16 weight rows. Weights are unpacked group by group for all activation rows of a
// strip at once, and each broadcast of activations serves both vectors.
template <DType kType>
class WeightBlock {
 public:
  explicit WeightBlock(const std::byte* block) : block_(block) {}

  // The dot products with R activation blocks, `stride` bytes apart.
  template <int R>
  [[gnu::always_inline]] void Dots(const std::byte* x, int64_t stride, F32x16 (&out)[R]) const {
    I32x16 sums[R];
    if constexpr (kType == DType::kQ8_0)
      AddSigned(x, stride, sums);
    else if constexpr (kType == DType::kQ6_K)
      AddSubScaled(x, stride, sums);
    else if constexpr (HasFifthBit(kType))
      AddFiveBits(x, stride, sums);
    else
      AddNibbles(x, stride, sums);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if constexpr (kType == DType::kQ4_0 || kType == DType::kQ5_0) {
        constexpr int kZero = kType == DType::kQ4_0 ? 8 : 16;
        const __m256i shift = _mm256_set1_epi32(kZero * BlockAt(x, r * stride).sum);
        sums[r] = {_mm256_sub_epi32(sums[r].lo, shift), _mm256_sub_epi32(sums[r].hi, shift)};
      }
      out[r] = ToFloat(sums[r]);
    }
  }

 private:
  // The low or the high nibbles.
  [[gnu::always_inline]] static __m256i Nibbles(__m256i raw, bool high) {
    if (high) raw = _mm256_srli_epi16(raw, 4);
    return _mm256_and_si256(raw, _mm256_set1_epi8(0x0f));
  }

  // 8 products of pairs stay below 8 * 2 * 15 * 128 = 30720: 16 bits hold the whole block.
  template <int R>
  [[gnu::always_inline]] void AddNibbles(const std::byte* x, int64_t stride,
                                         I32x16 (&sums)[R]) const {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
#pragma GCC unroll 2
      for (int high = 0; high < 2; ++high) {
        // Loaded once more for the high nibbles: a register less.
        const std::byte* at = block_ + 64 * g;
        const I32x16 quants = {Nibbles(LoadBytes(at), high != 0),
                               Nibbles(LoadBytes(at + 32), high != 0)};
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const __m256i values = Broadcast4(BlockAt(x, r * stride), g + 4 * high);
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

  // 4 products of pairs stay below 4 * 2 * 31 * 128 = 31744: 16 bits hold half a block.
  template <int R>
  [[gnu::always_inline]] void AddFiveBits(const std::byte* x, int64_t stride,
                                          I32x16 (&sums)[R]) const {
    I32x16 first[R];
    AddHalf<false>(x, stride, first);
    AddHalf<true>(x, stride, sums);
    const __m256i ones = _mm256_set1_epi16(1);
    const auto add = [&](__m256i a, __m256i b) {
      return _mm256_add_epi32(_mm256_madd_epi16(a, ones), _mm256_madd_epi16(b, ones));
    };
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      sums[r] = {add(first[r].lo, sums[r].lo), add(first[r].hi, sums[r].hi)};
  }

  // k = 0 .. 15 or 16 .. 31 in sums of 16 bits.
  template <bool kSecond, int R>
  [[gnu::always_inline]] void AddHalf(const std::byte* x, int64_t stride, I32x16 (&sums)[R]) const {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const std::byte* at = block_ + 64 * g;
      const int group = kSecond ? g + 4 : g;
      const I32x16 quants = {
          _mm256_or_si256(Nibbles(LoadBytes(at), kSecond), FifthBits(group, 0)),
          _mm256_or_si256(Nibbles(LoadBytes(at + 32), kSecond), FifthBits(group, 32))};
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m256i values = Broadcast4(BlockAt(x, r * stride), group);
        const __m256i lo = _mm256_maddubs_epi16(quants.lo, values);
        const __m256i hi = _mm256_maddubs_epi16(quants.hi, values);
        if (g == 0)
          sums[r] = {lo, hi};
        else
          sums[r] = {_mm256_add_epi16(sums[r].lo, lo), _mm256_add_epi16(sums[r].hi, hi)};
        Settle(sums[r]);
      }
    }
  }

  // Of k = 4 group .. 4 group + 3, in 32 of their bytes.
  [[gnu::always_inline]] __m256i FifthBits(int group, int first_byte) const {
    const __m256i raw = LoadBytes(block_ + kHighBitsAt + first_byte);
    const int bit = 4 * (group % 2) + group / 2;
    const __m256i moved =
        bit < 4 ? _mm256_slli_epi16(raw, 4 - bit) : _mm256_srli_epi16(raw, bit - 4);
    return _mm256_and_si256(moved, _mm256_set1_epi8(0x10));
  }

  // |w| <= 128 and |x| <= 127: a pair stays below 2 * 128 * 127 = 32512.
  template <int R>
  [[gnu::always_inline]] void AddSigned(const std::byte* x, int64_t stride,
                                        I32x16 (&sums)[R]) const {
    const __m256i ones = _mm256_set1_epi16(1);
    const auto quads = [&](const std::byte* weights, __m256i magnitudes, __m256i values) {
      const __m256i moved = _mm256_sign_epi8(values, LoadBytes(weights));
      return _mm256_madd_epi16(_mm256_maddubs_epi16(magnitudes, moved), ones);
    };
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const std::byte* at = block_ + 64 * g;
      const I32x16 magnitudes = {_mm256_abs_epi8(LoadBytes(at)),
                                 _mm256_abs_epi8(LoadBytes(at + 32))};
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m256i values = Broadcast4(BlockAt(x, r * stride), g);
        const __m256i lo = quads(at, magnitudes.lo, values);
        const __m256i hi = quads(at + 32, magnitudes.hi, values);
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
  [[gnu::always_inline]] void AddSubScaled(const std::byte* x, int64_t stride,
                                           I32x16 (&sums)[R]) const {
    __m256i lo[R], hi[R];
    AddSubScaledRows<R>(x, stride, 0, lo);
    AddSubScaledRows<R>(x, stride, 8, hi);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r] = {lo[r], hi[r]};
  }

  // Of 8 output rows from `first_row` on: the sums of 16 beside their quants and scales are more
  // than there are registers.
  template <int R>
  [[gnu::always_inline]] void AddSubScaledRows(const std::byte* x, int64_t stride, int first_row,
                                               __m256i (&sums)[R]) const {
    const __m256i scales = SubScales(first_row);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const ActivationBlock& row = BlockAt(x, r * stride);
      const uint32_t halves = (static_cast<uint32_t>(row.low_sum) & 0xffffu) |
                              (static_cast<uint32_t>(row.sum - row.low_sum) << 16);
      const __m256i both = _mm256_set1_epi32(static_cast<int32_t>(halves));
      const __m256i shift = _mm256_slli_epi32(_mm256_madd_epi16(scales, both), 5);
      sums[r] = _mm256_sub_epi32(_mm256_setzero_si256(), shift);
    }
#pragma GCC unroll 4
    for (int g = 0; g < 8; g += 2) {
      const __m256i first = SixBits(g, first_row), second = SixBits(g + 1, first_row);
      const __m256i scale = SubScale(scales, g >= 4);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const ActivationBlock& row = BlockAt(x, r * stride);
        const __m256i pairs =
            _mm256_add_epi16(_mm256_maddubs_epi16(first, Broadcast4(row, g)),
                             _mm256_maddubs_epi16(second, Broadcast4(row, g + 1)));
        sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs, scale));
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

  // kQ6_K: the quants of k = 4g .. 4g+3 of 8 rows.
  [[gnu::always_inline]] __m256i SixBits(int g, int first_row) const {
    const std::byte* group = block_ + 4 * first_row;
    const __m256i nibbles = Nibbles(LoadBytes(group + 64 * (g % 4)), g >= 4);
    const __m256i fields = LoadBytes(group + kHighBitsAt + 64 * (g % 2));
    const int field = g / 2;
    const __m256i moved = field == 0   ? _mm256_slli_epi16(fields, 4)
                          : field == 1 ? _mm256_slli_epi16(fields, 2)
                          : field == 2 ? fields
                                       : _mm256_srli_epi16(fields, 2);
    return _mm256_or_si256(nibbles, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
  }

  const std::byte* block_;
};

}  // namespace cairn::avx2
