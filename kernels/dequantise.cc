#include "kernels/dequantise.h"

#include <cstring>

#include "base/log.h"
#include "kernels/half.h"
#include "kernels/k_quant_scale.h"

namespace cairn {
namespace {

template <class T>
T Read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}
float ReadHalf(const std::byte* p) { return HalfToFloat(Read<uint16_t>(p)); }
int Low(std::byte b) { return static_cast<int>(b) & 15; }
int High(std::byte b) { return static_cast<int>(b) >> 4; }

// Scale, then 32 signed bytes.
void BlockQ8_0(const std::byte* block, float* out) {
  const float scale = ReadHalf(block);
  for (int i = 0; i < 32; ++i)
    out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Scale, then 16 bytes: low nibbles are the first half. w = scale * (q - 8).
void BlockQ4_0(const std::byte* block, float* out) {
  const float scale = ReadHalf(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(Low(block[2 + i]) - 8);
    out[i + 16] = scale * static_cast<float>(High(block[2 + i]) - 8);
  }
}

// Scale, minimum, then 16 bytes as in Q4_0. w = scale * q + min; the product is exact.
void BlockQ4_1(const std::byte* block, float* out) {
  const float scale = ReadHalf(block), min = ReadHalf(block + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(Low(block[4 + i])) + min;
    out[i + 16] = scale * static_cast<float>(High(block[4 + i])) + min;
  }
}

// The fifth bits of 32 quants as one number, then 16 bytes as in Q4_0: quant i.
int FiveBits(const std::byte* quants, int i) {
  const std::byte low = quants[4 + i % 16];
  const uint32_t fifth = Read<uint32_t>(quants) >> i & 1;
  return (i < 16 ? Low(low) : High(low)) | static_cast<int>(fifth << 4);
}

// Scale, then quants. w = scale * (q - 16).
void BlockQ5_0(const std::byte* block, float* out) {
  const float scale = ReadHalf(block);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(FiveBits(block + 2, i) - 16);
}

// Scale, minimum, then quants. w = scale * q + min; the product is exact.
void BlockQ5_1(const std::byte* block, float* out) {
  const float scale = ReadHalf(block), min = ReadHalf(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(FiveBits(block + 4, i)) + min;
}

// One part of 32 values: `low` their nibbles, lower or upper ones, `fifth` bytes with bit `part`
// for each or null. w = (scale * sub-scale) * q - min * sub-minimum; all products are exact.
void PartOfKQuants(const std::byte* block, int part, const std::byte* low, const std::byte* fifth,
                   float* out) {
  const KQuantScale sub = KQuantScaleOf(block, part);
  const float scale = ReadHalf(block) * static_cast<float>(sub.scale);
  const float min = ReadHalf(block + kKQuantMinimumAt) * static_cast<float>(sub.min);
  for (int i = 0; i < 32; ++i) {
    const int nibble = part % 2 == 0 ? Low(low[i]) : High(low[i]);
    const int top = fifth == nullptr ? 0 : static_cast<int>(fifth[i]) >> part & 1;
    out[i] = scale * static_cast<float>(nibble | top << 4) - min;
  }
}

// Two scales and eight parts' (k_quant_scale.h), then 128 bytes of nibbles: 32 bytes for the two
// parts of 64 values.
void BlockQ4_K(const std::byte* block, float* out) {
  for (int part = 0; part < 8; ++part) {
    const std::byte* low = block + kKQuantHeaderBytes + 32 * (part / 2);
    PartOfKQuants(block, part, low, nullptr, out + 32 * part);
  }
}

// As Q4_K, with 32 bytes of fifth bits in front of the nibbles.
void BlockQ5_K(const std::byte* block, float* out) {
  const std::byte* fifth = block + kKQuantHeaderBytes;
  for (int part = 0; part < 8; ++part)
    PartOfKQuants(block, part, fifth + 32 + 32 * (part / 2), fifth, out + 32 * part);
}

// 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 int8 scales (one per 16 values), an
// f16 scale of the scales. w = (scale * sub-scale) * (q - 32); the first product is exact.
void BlockQ6_K(const std::byte* block, float* out) {
  const std::byte* scales = block + 192;
  const float scale = ReadHalf(block + 208);
  for (int part = 0; part < 8; ++part) {  // of 32 values
    const std::byte* low = block + 64 * (part / 4) + 32 * (part % 2);
    const std::byte* high = block + 128 + 32 * (part / 4);
    for (int i = 0; i < 32; ++i) {
      const int nibble = part % 4 < 2 ? Low(low[i]) : High(low[i]);
      const int top = (static_cast<int>(high[i]) >> (2 * (part % 4))) & 3;
      const float sub_scale = static_cast<float>(static_cast<int8_t>(scales[2 * part + i / 16]));
      out[32 * part + i] = scale * sub_scale * static_cast<float>((nibble | (top << 4)) - 32);
    }
  }
}

struct BlockDecoder {
  DType dtype;
  void (*decode)(const std::byte* block, float* out);
};
constexpr BlockDecoder kBlockDecoders[] = {
    {DType::kQ8_0, BlockQ8_0}, {DType::kQ4_0, BlockQ4_0}, {DType::kQ4_1, BlockQ4_1},
    {DType::kQ5_0, BlockQ5_0}, {DType::kQ5_1, BlockQ5_1}, {DType::kQ4_K, BlockQ4_K},
    {DType::kQ5_K, BlockQ5_K}, {DType::kQ6_K, BlockQ6_K},
};

void DequantiseBlocks(DType dtype, const std::byte* row, int64_t n, float* out) {
  const DTypeInfo& info = Info(dtype);
  CHECK_EQ(n % info.block_elements, 0) << info.name;
  for (const BlockDecoder& decoder : kBlockDecoders) {
    if (decoder.dtype != dtype) continue;
    for (int64_t i = 0; i < n; i += info.block_elements, row += info.block_bytes)
      decoder.decode(row, out + i);
    return;
  }
  CHECK(false) << info.name;
}

}  // namespace

void DequantiseRow(DType dtype, const std::byte* row, int64_t n, float* out) {
  CHECK_GE(n, 0);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) out[i] = ReadHalf(row + 2 * i);
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) out[i] = Bf16ToFloat(Read<uint16_t>(row + 2 * i));
      return;
    case DType::kF8E4M3:
      for (int64_t i = 0; i < n; ++i) out[i] = Float8ToFloat(static_cast<uint8_t>(row[i]));
      return;
    default:
      return DequantiseBlocks(dtype, row, n, out);
  }
}

void ScaleFloat8Row(const float* scales, int64_t n, float* values) {
  for (int64_t i = 0; i < n; ++i) values[i] *= scales[i / kFloat8Block];
}

}  // namespace cairn
