#include "kernels/rms_norm.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu_kernels.h"
#include "machine.h"
#include "reference.h"

namespace cairn {
namespace {

constexpr float kEps = 1e-5f;

// Both outputs of some rows.
struct Normed {
  int64_t num_blocks = 0;
  std::vector<float> f32;
  std::vector<ActivationBlock> int8;
};

Normed Norm(Isa isa, const std::vector<float>& x, int64_t stride, const std::vector<float>& weight,
            int64_t num_rows, const int32_t* row_index = nullptr) {
  const auto dim = static_cast<int64_t>(weight.size());
  Normed out = {BlocksFor(dim), {}, {}};
  out.f32.assign(num_rows * out.num_blocks * kQuantBlock, 99);
  out.int8.resize(num_rows * out.num_blocks);
  const RmsNormArgs args = {
      .x = x.data(),
      .x_stride = stride,
      .row_index = row_index,
      .weight = weight.data(),
      .dim = dim,
      .eps = kEps,
      .out_f32 = {ActivationFormat::kF32, reinterpret_cast<std::byte*>(out.f32.data()),
                  out.num_blocks},
      .out_quantised = {ActivationFormat::kInt8, reinterpret_cast<std::byte*>(out.int8.data()),
                        out.num_blocks}};
  NewTeam(1, isa)->Run([&](const Context& context) { RmsNorm(context, args, {0, num_rows}); });
  return out;
}

class RmsNormTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, RmsNormTest, testing::ValuesIn(IsasOfThisMachine()), IsaTestName);

TEST_P(RmsNormTest, IsTheMeanSquareFormulaInItsFixedOrder) {
  for (const int64_t dim : {1, 15, 16, 17, 31, 32, 33, 64, 576, 4099}) {
    const auto x = reference::Uniform(dim, 3, static_cast<uint32_t>(dim));
    const auto weight = reference::Uniform(dim, 2, 7);
    const Normed normed = Norm(GetParam(), x, dim, weight, 1);
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + kEps);
    const auto exact = reference::RmsNorm(x.data(), weight.data(), dim, kEps);
    for (int64_t i = 0; i < dim; ++i) {
      ASSERT_NEAR(normed.f32[i], x[i] * scale * weight[i], 2e-6) << dim << " element " << i;
      ASSERT_EQ(normed.f32[i], exact[i]) << dim << " element " << i;
    }
    for (size_t i = dim; i < normed.f32.size(); ++i) ASSERT_EQ(normed.f32[i], 0) << dim;
  }
}

TEST_P(RmsNormTest, Int8IsTheQuantisedFloatOutput) {
  for (const int64_t dim : {5, 32, 50, 576}) {
    const Normed normed =
        Norm(GetParam(), reference::Uniform(dim, 3, 1), dim, reference::Uniform(dim, 2, 2), 1);
    for (int64_t b = 0; b < normed.num_blocks; ++b) {
      const ActivationBlock expected = reference::Quantise(&normed.f32[b * kQuantBlock]);
      ASSERT_EQ(std::memcmp(&expected, &normed.int8[b], sizeof(expected)), 0)
          << dim << " block " << b;
    }
  }
}

TEST_P(RmsNormTest, ReadsTheRowsItIsToldTo) {
  const auto x = reference::Uniform(5 * 40, 1, 3);
  const auto weight = reference::Uniform(33, 1, 4);
  const std::vector<int32_t> rows = {4, 0, 2};
  const Normed picked = Norm(GetParam(), x, 40, weight, 3, rows.data());
  const Normed all = Norm(GetParam(), x, 40, weight, 5);
  for (size_t i = 0; i < rows.size(); ++i)
    for (int64_t k = 0; k < 64; ++k)
      ASSERT_EQ(picked.f32[static_cast<int64_t>(i) * 64 + k], all.f32[rows[i] * 64 + k]);
}

TEST_P(RmsNormTest, ARowOfZerosStaysZero) {
  const std::vector<float> x(48, 0.0f), weight(48, 1.0f);
  const Normed normed = Norm(GetParam(), x, 48, weight, 1);
  EXPECT_EQ(normed.f32, std::vector<float>(64, 0.0f));
  EXPECT_EQ(normed.int8[0].scale, 0);
  EXPECT_EQ(normed.int8[0].sum, 0);
}

TEST_P(RmsNormTest, ANanMakesEveryBlockOfItsRowNan) {
  auto x = reference::Uniform(64, 1, 5);
  x[40] = std::numeric_limits<float>::quiet_NaN();
  const Normed normed = Norm(GetParam(), x, 64, std::vector<float>(64, 1.0f), 1);
  for (const ActivationBlock& block : normed.int8) EXPECT_TRUE(std::isnan(block.scale));
  for (const float value : normed.f32) EXPECT_TRUE(std::isnan(value));
}

TEST(RmsNormDeathTest, AnOutputOfAnotherWidthIsABug) {
  const auto team = NewTeam(1, Isa::kAvx2);
  const std::vector<float> x(64), weight(64);
  std::vector<float> out(64);
  const Activations narrow = {ActivationFormat::kF32, reinterpret_cast<std::byte*>(out.data()), 1};
  EXPECT_DEATH(team->Run([&](const Context& context) {
    RmsNorm(context, {.x = x.data(), .weight = weight.data(), .dim = 64, .out_f32 = narrow},
            {0, 1});
  }),
               "CHECK failed");
}

// ---- activations: what every op writes ----

class ActivationsTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, ActivationsTest, testing::ValuesIn(IsasOfThisMachine()),
                         IsaTestName);

ActivationBlock QuantiseOne(Isa isa, const std::vector<float>& values) {
  ActivationBlock block;
  StoreActivations(CpuKernelsFor(isa), values.data(), static_cast<int64_t>(values.size()),
                   {ActivationFormat::kInt8, reinterpret_cast<std::byte*>(&block), 0});
  return block;
}

TEST_P(ActivationsTest, QuantisesToTheNearestOf255Steps) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto values =
        reference::Uniform(kQuantBlock, std::pow(10.0f, static_cast<float>(seed % 30) - 15), seed);
    const ActivationBlock block = QuantiseOne(GetParam(), values);
    const ActivationBlock expected = reference::Quantise(values.data());
    ASSERT_EQ(std::memcmp(&block, &expected, sizeof(block)), 0) << seed;
    for (int i = 0; i < kQuantBlock; ++i)
      ASSERT_NEAR(block.scale * block.values[i], values[i], block.scale * 0.50001f) << seed;
  }
}

// A value far above its neighbours costs them what 8 bits hold, not what 16 do.
TEST_P(ActivationsTest, TheSecondTermOf16BitsIsWhatTheFirstLeaves) {
  constexpr int kBlocks = 3;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<float> values = reference::Uniform(kBlocks * kQuantBlock, 1, seed);
    values[40] = 300;
    std::vector<ActivationBlock> bytes(2 * 2 * kBlocks);
    const Activations rows = {ActivationFormat::kInt16, reinterpret_cast<std::byte*>(bytes.data()),
                              kBlocks};
    StoreActivations(CpuKernelsFor(GetParam()), values.data(), kBlocks * kQuantBlock,
                     rows.Slot(1, 0));
    for (int b = 0; b < kBlocks; ++b) {
      const ActivationBlock first = reference::Quantise(values.data() + b * kQuantBlock);
      const auto second = reference::QuantiseRest(values.data() + b * kQuantBlock, first);
      ASSERT_EQ(std::memcmp(&reference::BlockOf(rows, 1, 0, b), &first, sizeof first), 0) << b;
      ASSERT_EQ(std::memcmp(&reference::BlockOf(rows, 1, 1, b), &second, sizeof second), 0) << b;
      for (int i = 0; i < kQuantBlock; ++i)
        ASSERT_NEAR(reference::ActivationAt(rows, 1, b * kQuantBlock + i),
                    values[b * kQuantBlock + i], first.scale / 254 * 0.51);
    }
  }
}

TEST_P(ActivationsTest, PadsAShardWithZeros) {
  for (int n = 1; n < kQuantBlock; ++n) {
    const auto values = reference::Uniform(n, 1, 9);  // nothing behind it: ASan watches the reads
    const ActivationBlock block = QuantiseOne(GetParam(), values);
    for (int i = n; i < kQuantBlock; ++i) ASSERT_EQ(block.values[i], 0) << n;
    float plain[kQuantBlock];
    StoreActivations(CpuKernelsFor(GetParam()), values.data(), n,
                     {ActivationFormat::kF32, reinterpret_cast<std::byte*>(plain), 0});
    for (int i = 0; i < kQuantBlock; ++i) ASSERT_EQ(plain[i], i < n ? values[i] : 0) << n;
  }
}

TEST_P(ActivationsTest, TinyValuesRoundToZeroNotToGarbage) {
  const ActivationBlock block = QuantiseOne(GetParam(), std::vector<float>(kQuantBlock, 1e-40f));
  EXPECT_EQ(block.sum, 0);
  for (const int8_t value : block.values) EXPECT_EQ(value, 0);
}

TEST_P(ActivationsTest, ANanAnywhereMakesTheScaleNan) {
  for (int at = 0; at < kQuantBlock; ++at) {
    auto values = reference::Uniform(kQuantBlock, 1, 11);
    values[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(QuantiseOne(GetParam(), values).scale)) << at;
    values[at] = -std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(QuantiseOne(GetParam(), values).scale)) << at;
  }
}

}  // namespace
}  // namespace cairn
