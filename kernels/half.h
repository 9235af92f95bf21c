// Single 16-bit floats as float32, exactly, and back.
//
// For code outside the vector kernels (packing, dequantising rows). Not for cpu_avx512.cc.
// Thread: any. Errors: none.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>

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

}  // namespace cairn
