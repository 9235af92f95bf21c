// Vectors of 16 lanes as two halves of 8, for AVX2 + FMA + F16C.
//
// Only for cpu_avx2.cc; lane for lane the same arithmetic as simd_avx512.h, so that kernels written
// once on these functions give the same bits on both. Thread: any. Errors: none.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace cairn::avx2 {

// Attention: query rows that share a load, and vectors of keys or values side by side: as many as
// the registers hold sums for, for the pipeline of the fused multiply-add wants eight.
inline constexpr int kWideStrip = 6;
constexpr int StripColumns(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
// Whether the factors of the rows stay in registers while keys or values pass one register at a
// time; else the keys or values stay, and the factors pass.
constexpr bool HoldsFactors(int rows) { return rows <= 3; }
// Keeps the compiler from holding what comes next too: no register is left.
[[gnu::always_inline]] inline void EndColumn() { asm volatile("" : : : "memory"); }

struct F32x8 {
  __m256 v;
};
struct F32x16 {
  F32x8 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
using Register = F32x8;
inline constexpr int kRegisterLanes = 8;
[[gnu::always_inline]] inline Register& RegisterOf(F32x16& a, int i) {
  return i == 0 ? a.lo : a.hi;
}

template <class V>
V Set1(float x);
template <>
inline F32x8 Set1<F32x8>(float x) {
  return {_mm256_set1_ps(x)};
}
template <>
inline F32x16 Set1<F32x16>(float x) {
  return {{_mm256_set1_ps(x)}, {_mm256_set1_ps(x)}};
}

inline Register LoadRegister(const float* p) { return {_mm256_loadu_ps(p)}; }
inline F32x16 Broadcast(const float* p) { return Set1<F32x16>(*p); }
inline F32x16 Load(const float* p) { return {LoadRegister(p), LoadRegister(p + 8)}; }
inline void Store(float* p, F32x8 a) { _mm256_storeu_ps(p, a.v); }
inline void Store(float* p, F32x16 a) { Store(p, a.lo), Store(p + 8, a.hi); }

inline F32x8 Add(F32x8 a, F32x8 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline F32x8 Sub(F32x8 a, F32x8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline F32x8 Mul(F32x8 a, F32x8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline F32x8 Div(F32x8 a, F32x8 b) { return {_mm256_div_ps(a.v, b.v)}; }
inline F32x8 Max(F32x8 a, F32x8 b) { return {_mm256_max_ps(a.v, b.v)}; }  // b if either is NaN
inline F32x8 Min(F32x8 a, F32x8 b) { return {_mm256_min_ps(a.v, b.v)}; }  // b if either is NaN
inline F32x8 Fma(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x8 Abs(F32x8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline F32x8 Round(F32x8 a) { return {_mm256_round_ps(a.v, 8)}; }  // nearest, ties to even
inline F32x8 TimesPowerOfTwo(F32x8 a, F32x8 n) {  // the result must be a normal number
  const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n.v), 23);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.v), shift))};
}
// 0 in the lanes whose x is below `limit` or NaN.
inline F32x8 ZeroWhereBelow(F32x8 x, float limit, F32x8 a) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.v, _mm256_set1_ps(limit), _CMP_GE_OQ), a.v)};
}
inline __m256i LanesBelow(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline F32x8 FillTail(F32x8 a, int n, float fill) {
  return {_mm256_blendv_ps(_mm256_set1_ps(fill), a.v, _mm256_castsi256_ps(LanesBelow(n)))};
}

inline F32x16 Add(F32x16 a, F32x16 b) { return {Add(a.lo, b.lo), Add(a.hi, b.hi)}; }
inline F32x16 Sub(F32x16 a, F32x16 b) { return {Sub(a.lo, b.lo), Sub(a.hi, b.hi)}; }
inline F32x16 Mul(F32x16 a, F32x16 b) { return {Mul(a.lo, b.lo), Mul(a.hi, b.hi)}; }
inline F32x16 Div(F32x16 a, F32x16 b) { return {Div(a.lo, b.lo), Div(a.hi, b.hi)}; }
inline F32x16 Max(F32x16 a, F32x16 b) { return {Max(a.lo, b.lo), Max(a.hi, b.hi)}; }
inline F32x16 Min(F32x16 a, F32x16 b) { return {Min(a.lo, b.lo), Min(a.hi, b.hi)}; }
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {Fma(a.lo, b.lo, c.lo), Fma(a.hi, b.hi, c.hi)};
}
inline F32x16 Abs(F32x16 a) { return {Abs(a.lo), Abs(a.hi)}; }
inline F32x16 Round(F32x16 a) { return {Round(a.lo), Round(a.hi)}; }
inline F32x16 TimesPowerOfTwo(F32x16 a, F32x16 n) {
  return {TimesPowerOfTwo(a.lo, n.lo), TimesPowerOfTwo(a.hi, n.hi)};
}
inline F32x16 ZeroWhereBelow(F32x16 x, float limit, F32x16 a) {
  return {ZeroWhereBelow(x.lo, limit, a.lo), ZeroWhereBelow(x.hi, limit, a.hi)};
}
// Lanes n and above become `fill`.
inline F32x16 FillTail(F32x16 a, int n, float fill) {
  return {FillTail(a.lo, n, fill), FillTail(a.hi, n - 8, fill)};
}
// Lanes below n become `fill`.
inline F32x8 FillHead(F32x8 a, int n, float fill) {
  return {_mm256_blendv_ps(a.v, _mm256_set1_ps(fill), _mm256_castsi256_ps(LanesBelow(n)))};
}
inline F32x16 FillHead(F32x16 a, int n, float fill) {
  return {FillHead(a.lo, n, fill), FillHead(a.hi, n - 8, fill)};
}
// The first n floats; the other lanes are 0 and their memory is not touched.
inline F32x16 LoadFirst(const float* p, int n) {
  if (n >= 16) return Load(p);
  return {{_mm256_maskload_ps(p, LanesBelow(n))}, {_mm256_maskload_ps(p + 8, LanesBelow(n - 8))}};
}
// Writes lanes 0 .. n - 1 only.
inline void StoreFirst(float* p, int n, F32x16 a) {
  if (n >= 16) return Store(p, a);
  _mm256_maskstore_ps(p, LanesBelow(n), a.lo.v);
  _mm256_maskstore_ps(p + 8, LanesBelow(n - 8), a.hi.v);
}
inline __m256 UpperHalf(F32x16 a) { return a.hi.v; }
inline __m256 LowerHalf(F32x16 a) { return a.lo.v; }

// (a0, a0, a2, a2, ...), (a1, a1, a3, a3, ...) and (a1, a0, a3, a2, ...).
inline F32x16 EvenTwice(F32x16 a) {
  return {{_mm256_moveldup_ps(a.lo.v)}, {_mm256_moveldup_ps(a.hi.v)}};
}
inline F32x16 OddTwice(F32x16 a) {
  return {{_mm256_movehdup_ps(a.lo.v)}, {_mm256_movehdup_ps(a.hi.v)}};
}
inline F32x16 SwapPairs(F32x16 a) {
  return {{_mm256_permute_ps(a.lo.v, 0xb1)}, {_mm256_permute_ps(a.hi.v, 0xb1)}};
}
inline F32x16 NegateEven(F32x16 a) {
  const __m256 sign = _mm256_setr_ps(-0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f, 0);
  return {{_mm256_xor_ps(a.lo.v, sign)}, {_mm256_xor_ps(a.hi.v, sign)}};
}
inline F32x16 Negate(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {{_mm256_xor_ps(a.lo.v, sign)}, {_mm256_xor_ps(a.hi.v, sign)}};
}
// The 16 even and the 16 odd elements of 32 in a row.
inline __m256 Join8(__m256 a, __m256 b, bool odd) {
  const __m256 mixed = odd ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88);
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
}
inline F32x16 EvenOf(F32x16 a, F32x16 b) {
  return {{Join8(a.lo.v, a.hi.v, false)}, {Join8(b.lo.v, b.hi.v, false)}};
}
inline F32x16 OddOf(F32x16 a, F32x16 b) {
  return {{Join8(a.lo.v, a.hi.v, true)}, {Join8(b.lo.v, b.hi.v, true)}};
}

inline Register LoadHalfRegister(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline F32x16 LoadHalf(const uint16_t* p) { return {LoadHalfRegister(p), LoadHalfRegister(p + 8)}; }
inline void StoreHalf(uint16_t* p, F32x16 a) {  // nearest, ties to even
  auto* out = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(out, _mm256_cvtps_ph(a.lo.v, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(out + 1, _mm256_cvtps_ph(a.hi.v, _MM_FROUND_TO_NEAREST_INT));
}

inline Register LoadBf16Register(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}
inline F32x16 LoadBf16(const uint16_t* p) { return {LoadBf16Register(p), LoadBf16Register(p + 8)}; }
// The upper 16 bits after rounding to nearest, ties to even; a NaN stays a (quiet) NaN.
inline __m256i RoundToBf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}
inline void StoreBf16(uint16_t* p, F32x16 a) {
  const __m256i words = _mm256_packus_epi32(RoundToBf16(a.lo.v), RoundToBf16(a.hi.v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xd8));
}

// 16 8-bit floats (kF8E4M3, no NaN), each divided by 256: the fields of an f16 with another bias,
// their sign extended into the two bits above the exponent, of which one is not wanted.
inline F32x16 LoadFloat8(const std::byte* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i halves =
      _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xbfff)));
  return {{_mm256_cvtph_ps(_mm256_castsi256_si128(halves))},
          {_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))}};
}

// 16 little-endian 32-bit integers, and the steps that take small fields out of them.
inline I32x16 LoadInt(const std::byte* p) {
  const auto* from = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}
inline I32x16 LoadInt8(const std::byte* p) {  // 16 signed bytes
  const auto eight = [](const std::byte* from) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  };
  return {eight(p), eight(p + 8)};
}
// Bits [shift, shift + width) of each lane, unsigned.
template <int kShift, int kWidth>
inline I32x16 Field(I32x16 a) {
  const __m256i mask = _mm256_set1_epi32((1 << kWidth) - 1);
  return {_mm256_and_si256(_mm256_srli_epi32(a.lo, kShift), mask),
          _mm256_and_si256(_mm256_srli_epi32(a.hi, kShift), mask)};
}
// Byte kByte of each lane, signed.
template <int kByte>
inline I32x16 SignedByte(I32x16 a) {
  return {_mm256_srai_epi32(_mm256_slli_epi32(a.lo, 24 - 8 * kByte), 24),
          _mm256_srai_epi32(_mm256_slli_epi32(a.hi, 24 - 8 * kByte), 24)};
}
template <int kShift>
inline I32x16 ShiftLeft(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, kShift), _mm256_slli_epi32(a.hi, kShift)};
}
inline I32x16 ShiftRight(I32x16 a, int shift) {
  const __m128i count = _mm_cvtsi32_si128(shift);
  return {_mm256_srl_epi32(a.lo, count), _mm256_srl_epi32(a.hi, count)};
}
// Bit kFrom of each lane as bit kTo, the others 0.
template <int kFrom, int kTo>
inline I32x16 MovedBit(I32x16 a) {
  const __m256i mask = _mm256_set1_epi32(1 << kTo);
  if constexpr (kFrom < kTo) a = ShiftLeft<kTo - kFrom>(a);
  if constexpr (kFrom > kTo)
    a = {_mm256_srli_epi32(a.lo, kFrom - kTo), _mm256_srli_epi32(a.hi, kFrom - kTo)};
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
inline I32x16 Or(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline F32x16 ToFloat(I32x16 a) { return {{_mm256_cvtepi32_ps(a.lo)}, {_mm256_cvtepi32_ps(a.hi)}}; }

// The largest of the bit patterns of |a|, |b|: a NaN counts as larger than any number.
inline float MaxMagnitude(F32x16 a, F32x16 b) {
  const auto bits = [](F32x8 x) { return _mm256_castps_si256(Abs(x).v); };
  const __m256i eight = _mm256_max_epi32(_mm256_max_epi32(bits(a.lo), bits(a.hi)),
                                         _mm256_max_epi32(bits(b.lo), bits(b.hi)));
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

// Rounds to int8 (nearest, ties to even; beyond the range: the nearest end, NaN: -128) and returns
// the sum of the 16 values.
inline int StoreInt8(int8_t* p, F32x16 a) {
  const __m256i lo = _mm256_cvtps_epi32(a.lo.v), hi = _mm256_cvtps_epi32(a.hi.v);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
  __m128i four = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtsi128_si32(four);
}

}  // namespace cairn::avx2
