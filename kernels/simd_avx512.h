// Vectors of 16 lanes for AVX-512 (F, BW, VL, DQ).
//
// Only for cpu_avx512.cc: everything lives in a namespace of its own, so that the linker can never
// take this code for a machine without AVX-512. Lane for lane the same arithmetic as simd_avx2.h.
// Thread: any. Errors: none.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace cairn::avx512 {

// Attention: query rows that share a load, and vectors that the registers hold at once.
inline constexpr int kWideStrip = 12;
constexpr int StripColumns(int rows) {
  int columns = 4;
  while (columns > 1 && columns * (rows + 1) > 30) --columns;
  return columns;
}
constexpr bool HoldsFactors(int) { return false; }
[[gnu::always_inline]] inline void EndColumn() {}  // the compiler has registers enough

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
using Register = F32x16;
inline constexpr int kRegisterLanes = 16;
[[gnu::always_inline]] inline Register& RegisterOf(F32x16& a, int) { return a; }

template <class V>
V Set1(float x);
template <>
inline F32x16 Set1<F32x16>(float x) {
  return {_mm512_set1_ps(x)};
}

// One load for all its uses, where the compiler would put one into each of them.
[[gnu::always_inline]] inline F32x16 Broadcast(const float* p) {
  __m512 v = _mm512_set1_ps(*p);
  asm("" : "+v"(v));
  return {v};
}
inline F32x16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Register LoadRegister(const float* p) { return Load(p); }
inline void Store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
inline F32x16 Add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 Sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 Mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 Div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 Max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }  // b if either is NaN
inline F32x16 Min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }  // b if either is NaN
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x16 Abs(F32x16 a) { return {_mm512_abs_ps(a.v)}; }
inline F32x16 Round(F32x16 a) { return {_mm512_roundscale_ps(a.v, 8)}; }  // nearest, ties to even
inline F32x16 TimesPowerOfTwo(F32x16 a, F32x16 n) {  // the result must be a normal number
  const __m512i shift = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), shift))};
}
// 0 in the lanes whose x is below `limit` or NaN.
inline F32x16 ZeroWhereBelow(F32x16 x, float limit, F32x16 a) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(limit), _CMP_GE_OQ), a.v)};
}
inline __mmask16 LanesBelow(int n) {
  return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}
// Lanes n and above become `fill`.
inline F32x16 FillTail(F32x16 a, int n, float fill) {
  return {_mm512_mask_mov_ps(_mm512_set1_ps(fill), LanesBelow(n), a.v)};
}
// Lanes below n become `fill`.
inline F32x16 FillHead(F32x16 a, int n, float fill) {
  return {_mm512_mask_mov_ps(a.v, LanesBelow(n), _mm512_set1_ps(fill))};
}
// The first n floats; the other lanes are 0 and their memory is not touched.
inline F32x16 LoadFirst(const float* p, int n) { return {_mm512_maskz_loadu_ps(LanesBelow(n), p)}; }
// Writes lanes 0 .. n - 1 only.
inline void StoreFirst(float* p, int n, F32x16 a) { _mm512_mask_storeu_ps(p, LanesBelow(n), a.v); }
inline __m256 UpperHalf(F32x16 a) { return _mm512_extractf32x8_ps(a.v, 1); }
inline __m256 LowerHalf(F32x16 a) { return _mm512_castps512_ps256(a.v); }

// (a0, a0, a2, a2, ...), (a1, a1, a3, a3, ...) and (a1, a0, a3, a2, ...).
inline F32x16 EvenTwice(F32x16 a) { return {_mm512_moveldup_ps(a.v)}; }
inline F32x16 OddTwice(F32x16 a) { return {_mm512_movehdup_ps(a.v)}; }
inline F32x16 SwapPairs(F32x16 a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
inline F32x16 NegateEven(F32x16 a) {
  const __m512 sign = _mm512_castsi512_ps(_mm512_set1_epi64(0x80000000));
  return {_mm512_xor_ps(a.v, sign)};
}
inline F32x16 Negate(F32x16 a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
// The 16 even and the 16 odd elements of 32 in a row.
inline F32x16 EvenOf(F32x16 a, F32x16 b) {
  const __m512i index =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return {_mm512_permutex2var_ps(a.v, index, b.v)};
}
inline F32x16 OddOf(F32x16 a, F32x16 b) {
  const __m512i index =
      _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_permutex2var_ps(a.v, index, b.v)};
}

inline F32x16 LoadHalf(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Register LoadHalfRegister(const uint16_t* p) { return LoadHalf(p); }
inline void StoreHalf(uint16_t* p, F32x16 a) {  // nearest, ties to even
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

inline F32x16 LoadBf16(const uint16_t* p) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline Register LoadBf16Register(const uint16_t* p) { return LoadBf16(p); }
// The upper 16 bits after rounding to nearest, ties to even; a NaN stays a (quiet) NaN.
inline void StoreBf16(uint16_t* p, F32x16 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet)));
}

// 16 8-bit floats (kF8E4M3, no NaN), each divided by 256: the fields of an f16 with another bias,
// their sign extended into the two bits above the exponent, of which one is not wanted.
inline F32x16 LoadFloat8(const std::byte* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i halves =
      _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xbfff)));
  return {_mm512_cvtph_ps(halves)};
}

// 16 little-endian 32-bit integers, and the steps that take small fields out of them.
inline I32x16 LoadInt(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
inline I32x16 LoadInt8(const std::byte* p) {  // 16 signed bytes
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
// Bits [shift, shift + width) of each lane, unsigned.
template <int kShift, int kWidth>
inline I32x16 Field(I32x16 a) {
  return {_mm512_and_si512(_mm512_srli_epi32(a.v, kShift), _mm512_set1_epi32((1 << kWidth) - 1))};
}
// Byte kByte of each lane, signed.
template <int kByte>
inline I32x16 SignedByte(I32x16 a) {
  return {_mm512_srai_epi32(_mm512_slli_epi32(a.v, 24 - 8 * kByte), 24)};
}
template <int kShift>
inline I32x16 ShiftLeft(I32x16 a) {
  return {_mm512_slli_epi32(a.v, kShift)};
}
inline I32x16 ShiftRight(I32x16 a, int shift) {
  return {_mm512_srl_epi32(a.v, _mm_cvtsi32_si128(shift))};
}
// Bit kFrom of each lane as bit kTo, the others 0.
template <int kFrom, int kTo>
inline I32x16 MovedBit(I32x16 a) {
  if constexpr (kFrom < kTo) a = ShiftLeft<kTo - kFrom>(a);
  if constexpr (kFrom > kTo) a = {_mm512_srli_epi32(a.v, kFrom - kTo)};
  return {_mm512_and_si512(a.v, _mm512_set1_epi32(1 << kTo))};
}
inline I32x16 Or(I32x16 a, I32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
inline F32x16 ToFloat(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }

// The largest of the bit patterns of |a|, |b|: a NaN counts as larger than any number.
inline float MaxMagnitude(F32x16 a, F32x16 b) {
  const __m512i sixteen =
      _mm512_max_epi32(_mm512_castps_si512(Abs(a).v), _mm512_castps_si512(Abs(b).v));
  const __m256i eight =
      _mm256_max_epi32(_mm512_castsi512_si256(sixteen), _mm512_extracti64x4_epi64(sixteen, 1));
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

// Rounds to int8 (nearest, ties to even; beyond the range: the nearest end, NaN: -128) and returns
// the sum of the 16 values.
inline int StoreInt8(int8_t* p, F32x16 a) {
  const __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
  __m128i four = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtsi128_si32(four);
}

}  // namespace cairn::avx512
