// The scales inside a block of kQ4_K and kQ5_K: a 6-bit scale and a 6-bit minimum for every 32 of
// its 256 values, and what the two are multiplied by.
//
// For code outside the vector kernels (packing, dequantising rows). Thread: any. Errors: none.
// Source: the GGUF specification (ggml-quants).
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

inline constexpr int kSuperBlock = 256;        // values of a block of any K type
inline constexpr int kKQuantMinimumAt = 2;     // an f16 behind the f16 that multiplies the scales
inline constexpr int kKQuantHeaderBytes = 16;  // the two, then 12 bytes of scales and minimums

struct KQuantScale {
  uint8_t scale = 0, min = 0;  // 0..63
};

// Of the values [32 * part, 32 * part + 32) of a block. The 12 bytes hold parts 0-3 in the low 6
// bits of bytes 0-3 (scale) and 4-7 (minimum); parts 4-7 have their low 4 bits in the halves of
// bytes 8-11 and their upper 2 in the upper 2 of the bytes before.
inline KQuantScale KQuantScaleOf(const std::byte* block, int part) {
  const auto byte = [&](int i) { return static_cast<unsigned>(block[4 + i]); };
  const auto six = [](unsigned bits) { return static_cast<uint8_t>(bits & 63); };
  if (part < 4) return {six(byte(part)), six(byte(part + 4))};
  return {six((byte(part + 4) & 15) | (byte(part - 4) >> 6 << 4)),
          six((byte(part + 4) >> 4) | (byte(part) >> 6 << 4))};
}

}  // namespace cairn
