#include "kernels/dequantise.h"

#include <cmath>
#include <string>
#include <vector>

#include "golden_tensors.h"
#include "gtest/gtest.h"
#include "reference.h"

namespace cairn {
namespace {

constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                               DType::kQ4_0, DType::kQ4_1, DType::kQ6_K, DType::kQ5_0,
                               DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kF8E4M3};

TEST(DequantiseTest, DecodesEveryTypeAsItsReferencePackageDoes) {
  const GoldenTensors golden("techniques/gguf_blocks");
  ASSERT_TRUE(golden.ok());
  for (const DType dtype : kAllTypes) {
    if (dtype == DType::kF32 || dtype == DType::kF8E4M3) continue;  // not there
    const std::string name(Info(dtype).name);
    const auto raw = golden.Values<uint8_t>(name + ".raw");
    const auto expected = golden.Values(name + ".values");
    ASSERT_FALSE(expected.empty()) << name;
    std::vector<float> values(expected.size());
    DequantiseRow(dtype, reinterpret_cast<const std::byte*>(raw.data()),
                  static_cast<int64_t>(values.size()), values.data());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], expected[i]) << name << " element " << i;
  }
}

TEST(DequantiseTest, EqualsTheElementwiseMeaningOnRandomBytes) {
  for (const DType dtype : kAllTypes) {
    const auto weights = reference::RandomWeights(dtype, 3, 512, 17);
    std::vector<float> values(512);
    for (int64_t row = 0; row < 3; ++row) {
      DequantiseRow(dtype, weights.row(row), 512, values.data());
      for (int64_t k = 0; k < 512; ++k) {
        const auto expected =
            static_cast<float>(reference::WeightAt(dtype, weights.row(row), k).value());
        ASSERT_EQ(values[k], expected) << Info(dtype).name << " row " << row << " k " << k;
      }
    }
  }
}

TEST(DequantiseTest, EveryCodeOfAnEightBitFloatHasItsValue) {
  std::vector<std::byte> codes(256);
  for (int code = 0; code < 256; ++code) codes[code] = static_cast<std::byte>(code);
  std::vector<float> values(256);
  DequantiseRow(DType::kF8E4M3, codes.data(), 256, values.data());
  for (int code = 0; code < 256; ++code) {
    const double expected = reference::Float8Value(code);
    if (code % 128 == 127) {
      EXPECT_TRUE(std::isnan(values[code])) << code;
    } else {
      EXPECT_EQ(values[code], expected) << code;
      EXPECT_EQ(std::signbit(values[code]), code >= 128) << code;
    }
  }
  EXPECT_EQ(values[0x7e], 448);
  EXPECT_EQ(values[0x81], -1.0 / 512);
  EXPECT_EQ(values[0x38], 1);
}

TEST(DequantiseTest, ScalesOfEightBitFloatsServe128Columns) {
  const auto weights = reference::RandomWeights(DType::kF8E4M3, 130, 300, 18);
  ASSERT_EQ(weights.scales.size(), 6u);
  std::vector<float> values(300);
  for (const int64_t row : {0, 127, 128, 129}) {
    DequantiseRow(DType::kF8E4M3, weights.row(row), 300, values.data());
    ScaleFloat8Row(weights.row_scales(row), 300, values.data());
    for (int64_t k = 0; k < 300; ++k) {
      const double scale = weights.scales[row / 128 * 3 + k / 128];
      const double code = reference::Float8Value(static_cast<int>(weights.row(row)[k]));
      ASSERT_EQ(values[k], static_cast<float>(scale * code)) << row << " " << k;
    }
  }
}

TEST(DequantiseTest, ReadsRowsOfAnyAlignment) {
  for (const DType dtype : kAllTypes) {
    const auto weights = reference::RandomWeights(dtype, 1, 256, 5);
    std::vector<std::byte> shifted(weights.bytes.size() + 1);
    std::copy(weights.bytes.begin(), weights.bytes.end(), shifted.begin() + 1);
    std::vector<float> aligned(256), odd(256);
    DequantiseRow(dtype, weights.bytes.data(), 256, aligned.data());
    DequantiseRow(dtype, shifted.data() + 1, 256, odd.data());
    EXPECT_EQ(aligned, odd) << Info(dtype).name;
  }
}

TEST(DequantiseTest, AnEmptyRowWritesNothing) {
  float untouched = 7;
  DequantiseRow(DType::kQ6_K, nullptr, 0, &untouched);
  EXPECT_EQ(untouched, 7);
}

TEST(DequantiseDeathTest, PartOfABlockIsABug) {
  std::byte row[18] = {};
  float out[32];
  EXPECT_DEATH(DequantiseRow(DType::kQ4_0, row, 16, out), "CHECK failed");
}

}  // namespace
}  // namespace cairn
