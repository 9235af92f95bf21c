#include "kernels/dequantise.h"

#include <cstring>

#include "base/log.h"
#include "kernels/half.h"

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

template <class Decode>
void ForEachBlock(DType dtype, const std::byte* row, int64_t n, float* out, const Decode& decode) {
  const DTypeInfo& info = Info(dtype);
  CHECK_EQ(n % info.block_elements, 0) << info.name;
  for (int64_t i = 0; i < n; i += info.block_elements, row += info.block_bytes)
    decode(row, out + i);
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
    case DType::kQ8_0:
      return ForEachBlock(dtype, row, n, out, BlockQ8_0);
    case DType::kQ4_0:
      return ForEachBlock(dtype, row, n, out, BlockQ4_0);
    case DType::kQ4_1:
      return ForEachBlock(dtype, row, n, out, BlockQ4_1);
    case DType::kQ6_K:
      return ForEachBlock(dtype, row, n, out, BlockQ6_K);
  }
}

}  // namespace cairn
