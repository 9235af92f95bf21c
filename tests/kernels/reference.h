// The slow truth of every op but attention and sampling: plain loops, in double or, where a
// contract fixes the order of operations, in float with every step spelled out.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "kernels/activations.h"
#include "kernels/half.h"
#include "kernels/matmul.h"

namespace cairn::reference {

inline std::vector<float> Uniform(int64_t n, float magnitude, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-magnitude, magnitude);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(random);
  return values;
}

// Rows of random values in file order: every bit pattern of the quants, scales of sane size.
struct WeightRows {
  DType dtype = DType::kF32;
  int64_t num_rows = 0, k = 0;
  std::vector<std::byte> bytes;
  std::vector<float> scales = {};  // kF8E4M3: [ceil(num_rows / 128)][ceil(k / 128)]

  int64_t row_bytes() const { return RowBytes(dtype, k); }
  const std::byte* row(int64_t index) const { return bytes.data() + index * row_bytes(); }
  const float* row_scales(int64_t index) const {
    return scales.data() + index / kFloat8Block * ((k + kFloat8Block - 1) / kFloat8Block);
  }
};

inline void PutHalf(float value, std::byte* out) {
  const uint16_t half = FloatToHalf(value);
  std::memcpy(out, &half, 2);
}

inline WeightRows RandomWeights(DType dtype, int64_t num_rows, int64_t k, uint32_t seed) {
  WeightRows weights = {dtype, num_rows, k, {}};
  weights.bytes.resize(num_rows * weights.row_bytes());
  std::mt19937 random(seed);
  for (std::byte& byte : weights.bytes) byte = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> uniform(-1, 1);
  const DTypeInfo& info = Info(dtype);
  for (std::byte* block = weights.bytes.data(); block < weights.bytes.data() + weights.bytes.size();
       block += info.block_bytes) {
    const float value = uniform(random);
    switch (dtype) {
      case DType::kF32:
        std::memcpy(block, &value, 4);
        break;
      case DType::kF16:
        PutHalf(value, block);
        break;
      case DType::kF8E4M3:
        if ((*block & std::byte{0x7f}) == std::byte{0x7f}) *block = std::byte{0x80};  // no NaN
        break;
      case DType::kBF16: {
        const auto bf16 = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
        std::memcpy(block, &bf16, 2);
        break;
      }
      case DType::kQ8_0:
      case DType::kQ4_0:
      case DType::kQ5_0:
        PutHalf(value / 64, block);
        break;
      case DType::kQ4_K:
      case DType::kQ5_K:
        PutHalf(value / 256, block);
        PutHalf(uniform(random) / 64, block + 2);
        break;
      case DType::kQ4_1:
      case DType::kQ5_1:
        PutHalf(value / 8, block);
        PutHalf(uniform(random), block + 2);
        break;
      case DType::kQ6_K:
        PutHalf(value / 2048, block + 208);
        break;
    }
  }
  if (dtype == DType::kF8E4M3) {
    weights.scales = Uniform(
        (num_rows + kFloat8Block - 1) / kFloat8Block * ((k + kFloat8Block - 1) / kFloat8Block),
        0.01f, seed);
  }
  return weights;
}

// The meaning of a code by the OCP specification of 8-bit floats.
inline double Float8Value(int code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 7 - 3);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// A weight as value = scale * quant + min; quant holds kQ6_K's int8 scale too. Plain types:
// quant 1.
struct Weight {
  float scale = 0;
  int quant = 0;
  float min = 0;
  double value() const { return static_cast<double>(scale) * quant + min; }
};

inline float HalfAt(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  return HalfToFloat(half);
}

inline Weight WeightAt(DType dtype, const std::byte* row, int64_t k) {
  const auto byte = [](const std::byte* p) { return static_cast<int>(*p); };
  const DTypeInfo& info = Info(dtype);
  const std::byte* block = row + k / info.block_elements * info.block_bytes;
  const int i = static_cast<int>(k % info.block_elements);
  switch (dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, block, 4);
      return {value, 1, 0};
    }
    case DType::kF16:
      return {HalfAt(block), 1, 0};
    case DType::kF8E4M3:  // without its scale
      return {static_cast<float>(Float8Value(byte(block))), 1, 0};
    case DType::kBF16: {
      uint16_t bf16;
      std::memcpy(&bf16, block, 2);
      return {Bf16ToFloat(bf16), 1, 0};
    }
    case DType::kQ8_0:
      return {HalfAt(block), static_cast<int8_t>(block[2 + i]), 0};
    case DType::kQ4_0:
      return {HalfAt(block), ((byte(block + 2 + i % 16) >> (i / 16 * 4)) & 15) - 8, 0};
    case DType::kQ4_1:
      return {HalfAt(block), (byte(block + 4 + i % 16) >> (i / 16 * 4)) & 15, HalfAt(block + 2)};
    case DType::kQ5_0:
    case DType::kQ5_1: {
      const bool has_min = dtype == DType::kQ5_1;
      const std::byte* quants = block + (has_min ? 4 : 2);
      const int quant = (byte(quants + 4 + i % 16) >> (i / 16 * 4) & 15) |
                        (byte(quants + i / 8) >> (i % 8) & 1) << 4;
      return {HalfAt(block), has_min ? quant : quant - 16, has_min ? HalfAt(block + 2) : 0};
    }
    case DType::kQ4_K:
    case DType::kQ5_K: {
      // The 12 bytes of scales as the specification draws them: bits of scale and minimum j.
      const int j = i / 32;
      const auto scales = [&](int at) { return byte(block + 4 + at); };
      const int sub = j < 4 ? scales(j) % 64 : scales(j + 4) % 16 + scales(j - 4) / 64 * 16;
      const int sub_min = j < 4 ? scales(j + 4) % 64 : scales(j + 4) / 16 + scales(j) / 64 * 16;
      const bool five = dtype == DType::kQ5_K;
      const std::byte* low = block + (five ? 48 : 16) + i / 64 * 32 + i % 32;
      const int top = five ? byte(block + 16 + i % 32) >> j & 1 : 0;
      return {HalfAt(block) * static_cast<float>(sub),
              (j % 2 == 0 ? byte(low) % 16 : byte(low) / 16) + 16 * top,
              -HalfAt(block + 2) * static_cast<float>(sub_min)};
    }
    case DType::kQ6_K: {
      // Halves of 128; in each, element e has its low bits in byte e % 64 and its upper two bits
      // in byte e % 32.
      const int half = i / 128, e = i % 128;
      const int low = (byte(block + 64 * half + e % 64) >> (e / 64 * 4)) & 15;
      const int high = (byte(block + 128 + 32 * half + e % 32) >> (e / 32 * 2)) & 3;
      const int sub_scale = static_cast<int8_t>(block[192 + i / 16]);
      return {HalfAt(block + 208), sub_scale * ((low | high << 4) - 32), 0};
    }
  }
  return {};
}

inline Weight WeightAt(const WeightRows& weights, int64_t n, int64_t k) {
  Weight weight = WeightAt(weights.dtype, weights.row(n), k);
  if (weights.dtype == DType::kF8E4M3) weight.scale *= weights.row_scales(n)[k / kFloat8Block];
  return weight;
}

inline ActivationBlock Quantise(const float* values) {
  float max = 0;
  for (int i = 0; i < kQuantBlock; ++i) max = std::max(max, std::fabs(values[i]));
  ActivationBlock block = {};
  const float inverse = max > 1e-30f ? 127.0f / max : 0.0f;
  for (int i = 0; i < kQuantBlock; ++i) {
    block.values[i] = static_cast<int8_t>(std::nearbyint(values[i] * inverse));
    block.sum += block.values[i];
    if (i < 16) block.low_sum += block.values[i];
  }
  block.scale = max / 127.0f;
  block.scaled_sum = block.scale * static_cast<float>(block.sum);
  return block;
}

// The second term of 16 bits: what the first leaves.
inline ActivationBlock QuantiseRest(const float* values, const ActivationBlock& first) {
  float rest[kQuantBlock];
  for (int i = 0; i < kQuantBlock; ++i)
    rest[i] = std::fma(-first.scale, static_cast<float>(first.values[i]), values[i]);
  return Quantise(rest);
}

// Block `b` of a term of an integer row.
inline const ActivationBlock& BlockOf(const Activations& x, int64_t row, int term, int64_t b) {
  return reinterpret_cast<const ActivationBlock*>(x.row(row))[term * x.num_blocks + b];
}

// The value of activation k of a row as the product sees it.
inline double ActivationAt(const Activations& x, int64_t row, int64_t k) {
  if (x.format == ActivationFormat::kF32) return reinterpret_cast<const float*>(x.row(row))[k];
  double value = 0;
  for (int term = 0; term < NumTerms(x.format); ++term) {
    const ActivationBlock& block = BlockOf(x, row, term, k / kQuantBlock);
    value += static_cast<double>(block.scale) * block.values[k % kQuantBlock];
  }
  return value;
}

// Weights [out row n][k] and activations given element by element; returns the sum and, for
// tolerances, the sum of absolute products.
struct DoubleSum {
  double sum = 0, magnitude = 0;
};
inline DoubleSum Dot(const WeightRows& weights, int64_t n, const Activations& x, int64_t row) {
  DoubleSum result;
  for (int64_t k = 0; k < weights.k; ++k) {
    const double product = WeightAt(weights, n, k).value() * ActivationAt(x, row, k);
    result.sum += product;
    result.magnitude += std::fabs(product);
  }
  return result;
}

// One term of SumBlocks.
inline float SumTerm(const WeightRows& weights, int64_t n, const Activations& x, int64_t row,
                     int term, int64_t begin, int64_t end) {
  float acc = 0;
  for (int64_t b = begin; b < end; ++b) {
    if (x.format == ActivationFormat::kF32) {
      for (int64_t k = b * kQuantBlock; k < (b + 1) * kQuantBlock; ++k) {
        const Weight w = WeightAt(weights, n, k);
        const auto value = static_cast<float>(w.value());  // double holds it exactly
        acc = std::fma(value, static_cast<float>(ActivationAt(x, row, k)), acc);
      }
      continue;
    }
    const ActivationBlock& block = BlockOf(x, row, term, b);
    int dot = 0;
    Weight w;
    for (int i = 0; i < kQuantBlock; ++i) {
      w = WeightAt(weights, n, b * kQuantBlock + i);
      dot += w.quant * block.values[i];
    }
    acc = std::fma(w.scale * block.scale, static_cast<float>(dot), acc);
    const bool has_min = weights.dtype == DType::kQ4_1 || weights.dtype == DType::kQ5_1 ||
                         weights.dtype == DType::kQ4_K || weights.dtype == DType::kQ5_K;
    if (has_min) acc = std::fma(w.min, block.scaled_sum, acc);
  }
  return acc;
}

// Blocks [begin, end) of one output element exactly in the order of matmul.h: a leaf.
inline float SumBlocks(const WeightRows& weights, int64_t n, const Activations& x, int64_t row,
                       int64_t begin, int64_t end) {
  const float sum = SumTerm(weights, n, x, row, 0, begin, end);
  if (NumTerms(x.format) == 1) return sum;
  return sum + SumTerm(weights, n, x, row, 1, begin, end);
}

inline float SumTree(const WeightRows& weights, int64_t n, const Activations& x, int64_t row,
                     const std::vector<int32_t>& leaf_begin, int lo, int hi) {
  if (hi - lo == 1) return SumBlocks(weights, n, x, row, leaf_begin[lo], leaf_begin[hi]);
  const int middle = TreeMiddle(lo, hi);
  const float left = SumTree(weights, n, x, row, leaf_begin, lo, middle);
  return left + SumTree(weights, n, x, row, leaf_begin, middle, hi);
}

// 16 lanes, then i with i+8, i+4, i+2, i+1.
inline float AddLanes(const float (&lanes)[16]) {
  float sums[16];
  std::copy(std::begin(lanes), std::end(lanes), sums);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  return sums[0];
}

inline std::vector<float> RmsNorm(const float* x, const float* weight, int64_t n, float eps) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  const float scale = 1.0f / std::sqrt(AddLanes(lanes) / static_cast<float>(n) + eps);
  std::vector<float> out(n);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
  return out;
}

inline double Silu(double gate) { return gate / (1 + std::exp(-gate)); }
inline double GeluTanh(double gate) {
  return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate)));
}

// Turns one head in place.
inline void Rotate(const float* angles, int rotary_dim, bool interleaved, float* head) {
  for (int i = 0; i < rotary_dim / 2; ++i) {
    float& a = interleaved ? head[2 * i] : head[i];
    float& b = interleaved ? head[2 * i + 1] : head[i + rotary_dim / 2];
    const float cos = angles[2 * i], sin = angles[2 * i + 1], old = a;
    a = std::fma(old, cos, -(b * sin));
    b = std::fma(old, sin, b * cos);
  }
}

}  // namespace cairn::reference
