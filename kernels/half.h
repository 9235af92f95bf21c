// Single small floats as float32, exactly, and back.
//
// For code outside the vector kernels (packing, dequantising rows). Not for cpu_avx512.cc.
// Thread: any. Errors: none.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <limits>

namespace cairn {

inline float HalfToFloat(uint16_t half) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

inline uint16_t FloatToHalf(float value) {  // nearest, ties to even
  const __m128i half = _mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<uint16_t>(_mm_extract_epi16(half, 0));
}

inline float Bf16ToFloat(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

inline constexpr int kFloat8Nan = 0x7f;  // without the sign

// The same fields stand in an f16 with the bias 15 instead of 7.
inline float Float8ToFloat(uint8_t code) {  // E4M3 without infinities
  if ((code & 0x7f) == kFloat8Nan) return std::numeric_limits<float>::quiet_NaN();
  return 256 * HalfToFloat(static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7f) << 7));
}

}  // namespace cairn
