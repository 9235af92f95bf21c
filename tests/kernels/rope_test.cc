#include "kernels/rope.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "golden_tensors.h"
#include "gtest/gtest.h"
#include "machine.h"
#include "reference.h"

namespace cairn {
namespace {

// A pool of one layer, every byte of which is 0xff (a NaN in every type) until written.
struct Pool {
  KvLayer kv;
  std::vector<std::byte> bytes;

  Pool(DType dtype, int block_tokens, int head_dim, int num_kv_heads, int num_blocks) {
    kv = {.dtype = dtype,
          .block_tokens = block_tokens,
          .head_dim = (head_dim + 15) / 16 * 16,
          .num_kv_heads = num_kv_heads};
    kv.block_stride = 2 * kv.extent_bytes();
    kv.head_stride = kv.block_stride * num_blocks;
    bytes.assign(kv.head_stride * num_kv_heads, std::byte{0xff});
    kv.base = bytes.data();
  }
  float Decode(const std::byte* extent, int64_t index) const {
    const auto* element = extent + index * Info(kv.dtype).block_bytes;
    return static_cast<float>(reference::WeightAt(kv.dtype, element, 0).value());
  }
  float Key(int head, int32_t block, int d, int slot) const {
    return Decode(kv.keys(head, block), int64_t{d} * kv.block_tokens + slot);
  }
  float Value(int head, int32_t block, int d, int slot) const {
    return Decode(kv.values(head, block), int64_t{slot} * kv.head_dim + d);
  }
};

float Rounded(DType dtype, float value) {
  if (dtype == DType::kF32) return value;
  if (dtype == DType::kF16) return HalfToFloat(FloatToHalf(value));
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u);
}

// Rows at arbitrary positions, each in a block of its own.
struct Step {
  int num_heads = 3, num_kv_heads = 2, head_dim = 24, rotary_dim = 24;
  RopePairs pairs = RopePairs::kInterleaved;
  float query_scale = 0.25f;
  std::vector<float> query_norm, key_norm;  // empty: none
  std::vector<int32_t> positions, blocks;
  std::vector<float> qkv, angles;

  int64_t stride() const { return (num_heads + 2 * num_kv_heads) * head_dim + 5; }

  void Fill(const std::vector<int32_t>& at) {
    positions = at;
    blocks.clear();
    for (size_t i = 0; i < at.size(); ++i) blocks.push_back(static_cast<int32_t>(i) * 2 + 1);
    qkv = reference::Uniform(stride() * static_cast<int64_t>(at.size()), 2, 77);
    std::vector<double> frequencies(rotary_dim / 2);
    for (int i = 0; i < rotary_dim / 2; ++i)
      frequencies[i] = std::pow(10000.0, -2.0 * i / rotary_dim);
    angles.resize(at.size() * rotary_dim);
    RopeAngles(positions.data(), frequencies.data(), rotary_dim / 2, 1.0,
               {0, static_cast<int64_t>(at.size())}, angles.data());
  }
  RopeAppendArgs Args(const KvLayer& kv) {
    return {.kv = kv,
            .qkv = qkv.data(),
            .qkv_stride = stride(),
            .num_heads = num_heads,
            .head_dim = head_dim,
            .rotary_dim = rotary_dim,
            .pairs = pairs,
            .query_norm = query_norm.empty() ? nullptr : query_norm.data(),
            .key_norm = key_norm.empty() ? nullptr : key_norm.data(),
            .norm_eps = 1e-5f,
            .query_scale = query_scale,
            .angles = angles.data(),
            .positions = positions.data(),
            .blocks = blocks.data(),
            .num_rows = static_cast<int64_t>(positions.size())};
  }
};

void Append(Isa isa, int threads, Step& step, const KvLayer& kv) {
  NewTeam(threads, isa)->Run([&](const Context& context) { RopeAppend(context, step.Args(kv)); });
}

class RopeTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, RopeTest, testing::ValuesIn(IsasOfThisMachine()), IsaTestName);

TEST_P(RopeTest, TurnsAsTheReferencePackageDoes) {
  const GoldenTensors golden("techniques/rope");
  ASSERT_TRUE(golden.ok());
  for (const auto& [name, parameters] : golden.cases().items()) {
    const auto x = golden.Values(name + ".x"), expected = golden.Values(name + ".out");
    const auto positions = golden.Values<int32_t>(name + ".pos");
    Step step;
    step.num_heads = 2;  // [n, 3, D]: two heads of queries and one of keys
    step.num_kv_heads = 1;
    step.head_dim = step.rotary_dim = parameters["D"].get<int>();
    step.pairs =
        parameters["interleaved"].get<bool>() ? RopePairs::kInterleaved : RopePairs::kHalfSplit;
    step.query_scale = 1;
    step.Fill(positions);
    std::vector<double> frequencies(step.head_dim / 2);
    for (size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] = std::pow(parameters["theta"].get<double>(),
                                -2.0 * static_cast<double>(i) / step.head_dim);
    const auto num_rows = static_cast<int64_t>(positions.size());
    RopeAngles(positions.data(), frequencies.data(), step.head_dim / 2, 1.0, {0, num_rows},
               step.angles.data());
    for (int64_t row = 0; row < num_rows; ++row)
      std::copy_n(x.begin() + row * 3 * step.head_dim, 3 * step.head_dim,
                  step.qkv.begin() + row * step.stride());
    Pool pool(DType::kF32, 16, step.head_dim, 1, 2 * static_cast<int>(num_rows) + 1);
    Append(GetParam(), 1, step, pool.kv);
    for (int64_t row = 0; row < num_rows; ++row) {
      for (int i = 0; i < 3 * step.head_dim; ++i) {
        const float truth = expected[row * 3 * step.head_dim + i];
        ASSERT_NEAR(step.qkv[row * step.stride() + i], truth, 1e-6 * std::fmax(1, std::fabs(truth)))
            << name << " position " << positions[row] << " element " << i;
      }
      for (int d = 0; d < step.head_dim; ++d)
        ASSERT_EQ(pool.Key(0, step.blocks[row], d, positions[row] % 16),
                  step.qkv[row * step.stride() + 2 * step.head_dim + d]);
    }
  }
}

TEST_P(RopeTest, StoresKeysByColumnAndValuesByRowInEveryTypeAndBlockSize) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int block_tokens : {16, 32, 64, 128, 256}) {
      Step step;
      step.Fill({0, 1, 15, 16, 255, 1000});
      const Step before = step;
      Pool pool(dtype, block_tokens, step.head_dim, step.num_kv_heads, 12);
      Append(GetParam(), 1, step, pool.kv);
      for (size_t row = 0; row < step.positions.size(); ++row) {
        const int slot = step.positions[row] % block_tokens;
        const float* turned = &step.qkv[row * step.stride()];
        const float* original = &before.qkv[row * step.stride()];
        for (int head = 0; head < step.num_kv_heads; ++head) {
          const int key_at = (step.num_heads + head) * step.head_dim;
          const int value_at = key_at + step.num_kv_heads * step.head_dim;
          for (int d = 0; d < pool.kv.head_dim; ++d) {
            const bool padding = d >= step.head_dim;
            ASSERT_EQ(pool.Key(head, step.blocks[row], d, slot),
                      padding ? 0 : Rounded(dtype, turned[key_at + d]));
            ASSERT_EQ(pool.Value(head, step.blocks[row], d, slot),
                      padding ? 0 : Rounded(dtype, original[value_at + d]));
          }
        }
      }
    }
  }
}

TEST_P(RopeTest, TouchesNoOtherToken) {
  Step step;
  step.Fill({5, 20});
  Pool pool(DType::kF16, 16, step.head_dim, step.num_kv_heads, 4);
  Append(GetParam(), 1, step, pool.kv);
  int64_t written = 0;
  for (size_t i = 0; i < pool.bytes.size(); i += 2)
    written += pool.bytes[i] != std::byte{0xff} || pool.bytes[i + 1] != std::byte{0xff};
  EXPECT_EQ(written, 2 * 2 * 2 * pool.kv.head_dim);  // rows, heads, key and value
}

TEST_P(RopeTest, FollowsTheOrderOfItsContractBitForBit) {
  for (const bool interleaved : {true, false}) {
    for (const int head_dim : {2, 10, 24, 32, 64, 80, 128}) {
      for (const int rotary_dim : {head_dim, head_dim / 2 / 2 * 2, 0}) {
        Step step;
        step.head_dim = head_dim;
        step.rotary_dim = rotary_dim;
        step.pairs = interleaved ? RopePairs::kInterleaved : RopePairs::kHalfSplit;
        step.Fill({3, 77});
        std::vector<float> expected = step.qkv;
        for (size_t row = 0; row < 2; ++row) {
          for (int head = 0; head < step.num_heads + step.num_kv_heads; ++head) {
            float* values = &expected[row * step.stride() + head * head_dim];
            reference::Rotate(step.angles.data() + row * rotary_dim, rotary_dim, interleaved,
                              values);
            if (head >= step.num_heads) continue;
            for (int d = 0; d < head_dim; ++d) values[d] *= step.query_scale;
          }
        }
        Pool pool(DType::kF16, 16, head_dim, step.num_kv_heads, 4);
        Append(GetParam(), 1, step, pool.kv);
        ASSERT_EQ(step.qkv, expected) << head_dim << " rotary " << rotary_dim << interleaved;
      }
    }
  }
}

// Each head alone, before it turns; values stay. Bit for bit rms_norm.h's order.
TEST_P(RopeTest, NormalisesHeadsBeforeTheyTurn) {
  for (const int head_dim : {2, 10, 24, 64, 128, 256}) {
    for (const int which : {0, 1, 2, 3}) {  // bit 0: queries, bit 1: keys
      Step step;
      step.head_dim = step.rotary_dim = head_dim;
      if (which & 1) step.query_norm = reference::Uniform(head_dim, 2, 5);
      if (which & 2) step.key_norm = reference::Uniform(head_dim, 2, 6);
      step.Fill({3, 77});
      std::vector<float> expected = step.qkv;
      for (size_t row = 0; row < 2; ++row) {
        for (int head = 0; head < step.num_heads + step.num_kv_heads; ++head) {
          const bool is_query = head < step.num_heads;
          float* values = &expected[row * step.stride() + head * head_dim];
          const std::vector<float>& norm = is_query ? step.query_norm : step.key_norm;
          if (!norm.empty()) {
            const auto normed = reference::RmsNorm(values, norm.data(), head_dim, 1e-5f);
            std::copy(normed.begin(), normed.end(), values);
          }
          reference::Rotate(step.angles.data() + row * head_dim, head_dim, true, values);
          for (int d = 0; d < (is_query ? head_dim : 0); ++d) values[d] *= step.query_scale;
        }
      }
      Pool pool(DType::kF32, 16, head_dim, step.num_kv_heads, 4);
      Append(GetParam(), 2, step, pool.kv);
      ASSERT_EQ(step.qkv, expected) << head_dim << " norms " << which;
      for (int d = 0; d < head_dim; ++d)
        ASSERT_EQ(pool.Key(1, step.blocks[1], d, 77 % 16),
                  expected[step.stride() + (step.num_heads + 1) * head_dim + d]);
    }
  }
}

TEST_P(RopeTest, ThreadsChangeNoBit) {
  Step alone;
  alone.Fill({0, 9, 18, 27, 36, 45, 54});
  const Step before = alone;
  Pool pool(DType::kBF16, 16, alone.head_dim, alone.num_kv_heads, 14);
  Append(GetParam(), 1, alone, pool.kv);
  for (const int threads : {2, 3}) {
    Step together = before;
    Pool other(DType::kBF16, 16, alone.head_dim, alone.num_kv_heads, 14);
    Append(GetParam(), threads, together, other.kv);
    EXPECT_EQ(together.qkv, alone.qkv);
    EXPECT_EQ(other.bytes, pool.bytes);
  }
}

TEST_P(RopeTest, ANanStaysANanInEveryType) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Step step;
    step.Fill({0});
    std::vector<float> nans(step.qkv.size(), std::bit_cast<float>(0x7fffffffu));
    step.qkv = nans;
    Pool pool(dtype, 16, step.head_dim, step.num_kv_heads, 2);
    Append(GetParam(), 1, step, pool.kv);
    EXPECT_TRUE(std::isnan(pool.Key(0, 1, 0, 0))) << Info(dtype).name;
    EXPECT_TRUE(std::isnan(pool.Value(1, 1, 3, 0))) << Info(dtype).name;
  }
}

TEST(RopeAnglesTest, StayExactAtLargePositions) {
  const std::vector<int32_t> positions = {0, 131071};
  const std::vector<double> frequencies = {1.0, 0.001};
  std::vector<float> angles(8);
  RopeAngles(positions.data(), frequencies.data(), 2, 1.5, {0, 2}, angles.data());
  EXPECT_EQ(angles[0], 1.5f);
  EXPECT_EQ(angles[1], 0.0f);
  EXPECT_EQ(angles[4], static_cast<float>(1.5 * std::cos(131071.0)));
  EXPECT_EQ(angles[7], static_cast<float>(1.5 * std::sin(131071.0 * 0.001)));
}

TEST(RopeDeathTest, BugsOfTheCallerEndTheProcess) {
  Step step;
  step.Fill({0});
  Pool pool(DType::kF16, 16, step.head_dim, step.num_kv_heads, 2);
  pool.kv.dtype = DType::kQ8_0;
  EXPECT_DEATH(Append(Isa::kAvx2, 1, step, pool.kv), "Q8_0");
  pool.kv.dtype = DType::kF16;
  step.rotary_dim = 26;
  EXPECT_DEATH(Append(Isa::kAvx2, 1, step, pool.kv), "CHECK failed");
}

}  // namespace
}  // namespace cairn
