#include "kernels/gated_activation.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "machine.h"
#include "reference.h"

namespace cairn {
namespace {

class GatedActivationTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, GatedActivationTest, testing::ValuesIn(IsasOfThisMachine()),
                         IsaTestName);

// One row of one block.
template <class Block>
Block GateOne(Isa isa, Gate kind, const std::vector<float>& gate, const std::vector<float>& up) {
  Block block;
  const bool int8 = sizeof(Block) == sizeof(ActivationBlock);
  NewTeam(1, isa)->Run([&](const Context& context) {
    GatedActivation(context, {.gate_kind = kind,
                              .gate = gate.data(),
                              .up = up.data(),
                              .num_rows = 1,
                              .n = static_cast<int>(gate.size()),
                              .out = {int8 ? ActivationFormat::kInt8 : ActivationFormat::kF32,
                                      reinterpret_cast<std::byte*>(&block), 1}});
  });
  return block;
}
struct FloatBlock {
  float values[kQuantBlock];
};

double Truth(Gate kind, double gate, double up) {
  return (kind == Gate::kSilu ? reference::Silu(gate) : reference::GeluTanh(gate)) * up;
}

TEST_P(GatedActivationTest, IsTheGateTimesUp) {
  for (const Gate kind : {Gate::kSilu, Gate::kGeluTanh}) {
    for (int n = 1; n <= kQuantBlock; ++n) {
      const auto gate = reference::Uniform(n, 8, n), up = reference::Uniform(n, 3, 50 + n);
      const auto block = GateOne<FloatBlock>(GetParam(), kind, gate, up);
      for (int i = 0; i < n; ++i) {
        const double truth = Truth(kind, gate[i], up[i]);
        // 2u of the gelu is rounded before its exponential: a relative error of |2u| ulps.
        ASSERT_NEAR(block.values[i], truth, 1e-7 + 4e-6 * std::fabs(truth))
            << "n " << n << " gate " << gate[i];
      }
      for (int i = n; i < kQuantBlock; ++i) ASSERT_EQ(block.values[i], 0) << n;
    }
  }
}

TEST_P(GatedActivationTest, FarFromZeroItIsTheIdentityOrZero) {
  for (const Gate kind : {Gate::kSilu, Gate::kGeluTanh}) {
    const std::vector<float> gate = {-1e30f, -1000, -100, -88.5f, 88.5f, 100, 1000, 1e12f};
    const auto block =
        GateOne<FloatBlock>(GetParam(), kind, gate, std::vector<float>(gate.size(), 1));
    for (size_t i = 0; i < gate.size(); ++i) {
      ASSERT_NEAR(block.values[i], gate[i] > 0 ? gate[i] : 0, 1e-7) << gate[i];
    }
  }
}

TEST_P(GatedActivationTest, Int8IsTheQuantisedFloatOutput) {
  for (const int n : {1, 20, 32}) {
    const auto gate = reference::Uniform(n, 8, n), up = reference::Uniform(n, 3, 50 + n);
    const auto plain = GateOne<FloatBlock>(GetParam(), Gate::kSilu, gate, up);
    const auto block = GateOne<ActivationBlock>(GetParam(), Gate::kSilu, gate, up);
    const ActivationBlock expected = reference::Quantise(plain.values);
    EXPECT_EQ(std::memcmp(&block, &expected, sizeof(block)), 0) << n;
  }
}

TEST_P(GatedActivationTest, Int16WritesBothTermsOfItsBlock) {
  constexpr int kRows = 3, kBlocks = 2;
  const auto gate = reference::Uniform(kRows * kQuantBlock, 8, 5);
  const auto up = reference::Uniform(kRows * kQuantBlock, 3, 6);
  std::vector<ActivationBlock> blocks(kRows * 2 * kBlocks);
  const Activations out = {ActivationFormat::kInt16, reinterpret_cast<std::byte*>(blocks.data()),
                           kBlocks};
  NewTeam(1, GetParam())->Run([&](const Context& context) {
    GatedActivation(context, {.gate = gate.data(),
                              .up = up.data(),
                              .stride = kQuantBlock,
                              .num_rows = kRows,
                              .out = out,
                              .out_block = 1});
  });
  for (int row = 0; row < kRows; ++row) {
    const auto at = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + row * kQuantBlock,
                                all.begin() + (row + 1) * kQuantBlock);
    };
    const auto plain = GateOne<FloatBlock>(GetParam(), Gate::kSilu, at(gate), at(up));
    const ActivationBlock first = reference::Quantise(plain.values);
    const ActivationBlock second = reference::QuantiseRest(plain.values, first);
    EXPECT_EQ(std::memcmp(&reference::BlockOf(out, row, 0, 1), &first, sizeof first), 0) << row;
    EXPECT_EQ(std::memcmp(&reference::BlockOf(out, row, 1, 1), &second, sizeof second), 0) << row;
    for (int term = 0; term < 2; ++term)
      EXPECT_EQ(reference::BlockOf(out, row, term, 0).scale, 0) << row;
  }
}

TEST_P(GatedActivationTest, WritesItsBlockOfEveryRowAndNothingElse) {
  constexpr int kRows = 5, kBlocks = 3, kStride = 70;
  const auto gate = reference::Uniform(kRows * kStride, 4, 1);
  const auto up = reference::Uniform(kRows * kStride, 4, 2);
  std::vector<float> out(kRows * kBlocks * kQuantBlock, 99);
  NewTeam(1, GetParam())->Run([&](const Context& context) {
    GatedActivation(context, {.gate = gate.data(),
                              .up = up.data(),
                              .stride = kStride,
                              .num_rows = kRows,
                              .out = {ActivationFormat::kF32,
                                      reinterpret_cast<std::byte*>(out.data()), kBlocks},
                              .out_block = 1});
  });
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kBlocks * kQuantBlock; ++i) {
      const float value = out[row * kBlocks * kQuantBlock + i];
      const int column = i - kQuantBlock;
      if (column < 0 || column >= kQuantBlock) {
        ASSERT_EQ(value, 99);
        continue;
      }
      const int at = row * kStride + column;
      ASSERT_NEAR(value, Truth(Gate::kSilu, gate[at], up[at]), 1e-5);
    }
  }
}

TEST_P(GatedActivationTest, ANanComesOutAsANan) {
  std::vector<float> gate(kQuantBlock, 1), up(kQuantBlock, 1);
  gate[3] = std::numeric_limits<float>::quiet_NaN();
  up[7] = std::numeric_limits<float>::quiet_NaN();
  for (const Gate kind : {Gate::kSilu, Gate::kGeluTanh}) {
    const auto block = GateOne<FloatBlock>(GetParam(), kind, gate, up);
    for (int i = 0; i < kQuantBlock; ++i)
      EXPECT_EQ(std::isnan(block.values[i]), i == 3 || i == 7) << i;
  }
}

TEST_P(GatedActivationTest, AddRowsAddsEachElementOnce) {
  for (const int64_t n : {0, 1, 15, 16, 17, 100, 1000}) {
    const auto a = reference::Uniform(n, 1, 1), b = reference::Uniform(n, 1, 2);
    std::vector<float> sum(n), in_place = a;
    NewTeam(1, GetParam())->Run([&](const Context& context) {
      AddRows(context, a.data(), b.data(), n, sum.data());
      AddRows(context, in_place.data(), b.data(), n, in_place.data());
    });
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], a[i] + b[i]);
    ASSERT_EQ(sum, in_place);
  }
}

TEST_P(GatedActivationTest, ScaleRowMultipliesEachElementOnce) {
  for (const int64_t n : {0, 1, 15, 16, 17, 100, 1000}) {
    const auto before = reference::Uniform(n + 1, 1, 3);  // one more than is scaled
    std::vector<float> values = before;
    NewTeam(1, GetParam())->Run([&](const Context& context) {
      ScaleRow(context, 0.3f, n, values.data());
    });
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(values[i], 0.3f * before[i]);
    ASSERT_EQ(values[n], before[n]);
  }
}

TEST_P(GatedActivationTest, CapRowBendsEachElementOnce) {
  for (const float cap : {0.5f, 1.0f, 30.0f, 50.0f}) {
    for (const int64_t n : {0, 1, 15, 16, 17, 1000}) {
      const auto before = reference::Uniform(n + 1, 5 * cap, 4);
      std::vector<float> values = before;
      NewTeam(1, GetParam())->Run([&](const Context& context) {
        CapRow(context, cap, n, values.data());
      });
      const auto c = static_cast<double>(cap);
      for (int64_t i = 0; i < n; ++i)
        ASSERT_NEAR(values[i], c * std::tanh(static_cast<double>(before[i]) / c), 3e-7 * c);
      ASSERT_EQ(values[n], before[n]);
    }
  }
}

// The bound of vector_math.h, over everything a float can be.
TEST_P(GatedActivationTest, TanhIsExactTo3e7Everywhere) {
  std::vector<float> x;
  for (float at = -20; at <= 20; at += 0.00037f) x.push_back(at);
  for (float at = 1e-40f; at < 1e38f; at *= 1.7f) x.insert(x.end(), {at, -at});
  x.insert(x.end(), {0.0f, -0.0f, std::numeric_limits<float>::infinity(),
                     -std::numeric_limits<float>::infinity()});
  std::vector<float> values = x;
  NewTeam(1, GetParam())->Run([&](const Context& context) {
    CapRow(context, 1, static_cast<int64_t>(values.size()), values.data());
  });
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error =
        std::fabs(static_cast<double>(values[i]) - std::tanh(static_cast<double>(x[i])));
    if (!(error <= worst)) worst = error;
    ASSERT_LE(std::fabs(values[i]), 1) << x[i];
  }
  EXPECT_LE(worst, 3e-7);
}

TEST_P(GatedActivationTest, ACappedNanStaysOne) {
  float value = std::numeric_limits<float>::quiet_NaN();
  NewTeam(1, GetParam())->Run([&](const Context& context) { CapRow(context, 30, 1, &value); });
  EXPECT_TRUE(std::isnan(value)) << value;
}

TEST(GatedActivationDeathTest, MoreThanABlockIsABug) {
  const std::vector<float> values(33, 1);
  EXPECT_DEATH(GateOne<FloatBlock>(Isa::kAvx2, Gate::kSilu, values, values), "CHECK failed");
}

}  // namespace
}  // namespace cairn
