#include "kernels/attention.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu_kernels.h"
#include "tests/kernels/attention_pool.h"
#include "tests/kernels/attention_reference.h"
#include "tests/kernels/golden_tensors.h"
#include "tests/kernels/machine.h"
#include "tests/kernels/reference.h"

namespace cairn {
namespace {

using Row = OutputRow;

// The floats of a kF32 row without the padding of its heads.
std::vector<float> Unpadded(const Row& row, const AttentionShape& shape) {
  std::vector<float> out;
  const int64_t stride = BlocksFor(shape.value_dim()) * kQuantBlock;
  for (int h = 0; h < shape.num_heads; ++h) {
    std::vector<float> head(static_cast<size_t>(shape.value_dim()));
    std::memcpy(head.data(), row.data() + h * stride * 4, head.size() * sizeof(float));
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}

double WorstError(const Row& row, const AttentionTokens& tokens, int position,
                  const AttentionSetup& setup = {}) {
  const AttentionShape& shape = tokens.shape;
  const std::vector<double> want = ReferenceAttention(
      {.queries = tokens.queries.data() + int64_t{position} * shape.num_heads * shape.head_dim,
       .keys = tokens.keys.data(),
       .values = tokens.seen_values().data(),
       .first_token = setup.window > 0 ? std::max(0, position + 1 - setup.window) : 0,
       .end_token = position + 1,
       .num_heads = shape.num_heads,
       .num_kv_heads = shape.num_kv_heads,
       .head_dim = shape.head_dim,
       .value_dim = shape.value_dim(),
       .score_cap = setup.score_cap});
  const std::vector<float> got = Unpadded(row, shape);
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    if (!(error <= worst)) worst = error;  // a NaN is worse than anything
  }
  return worst;
}

TEST(PagedAttentionTest, MeetsGoldenDataOfAnotherEngine) {
  const GoldenTensors golden("techniques/attention");
  ASSERT_TRUE(golden.ok());
  int checked = 0;
  for (const auto& [name, c] : golden.cases().items()) {
    if (c["sink"] != 0) continue;
    SCOPED_TRACE(name);
    const int num_tokens = c["Tk"], num_rows = c["Tq"], value_dim = c["Dv"];
    const AttentionShape shape = {c["Hq"], c["Hk"], c["D"]};
    AttentionTokens tokens = {.shape = shape, .num_tokens = num_tokens};
    tokens.keys = golden.Values(name + ".k");
    const std::vector<float> q = golden.Values(name + ".q"), v = golden.Values(name + ".v");
    tokens.values.resize(tokens.keys.size());
    for (size_t i = 0; i < v.size(); ++i)  // values narrower than keys: zeros behind them
      tokens.values[i / value_dim * shape.head_dim + i % value_dim] = v[i];
    const size_t width = q.size() / static_cast<size_t>(num_rows);
    tokens.queries.resize(width * static_cast<size_t>(num_tokens));
    const bool causal = c["causal"];
    const int offset = causal ? c["query_offset"].get<int>() : 0;
    for (size_t i = 0; i < q.size(); ++i)
      tokens.queries[offset * width + i] = q[i] * c["scale"].get<float>();
    const StoredTokens stored(tokens, DType::kF32, 16);
    const AttentionSetup setup = {.window = c["window"], .score_cap = c["softcap"]};

    std::vector<Row> rows;
    if (causal) {
      rows = Attend(stored.pool.layer(), std::vector{stored.rows(offset, num_rows)}, setup);
    } else {  // every query as if it stood at the last position
      for (int r = 0; r < num_rows; ++r) {
        AttentionTokens last = tokens;
        std::copy_n(q.begin() + r * width, width, last.queries.end() - width);
        for (size_t i = 0; i < width; ++i)
          (&*last.queries.end() - width)[i] *= c["scale"].get<float>();
        rows.push_back(Attend(stored.pool.layer(),
                              std::vector{AttentionRows{&last, &stored.table, num_tokens - 1, 1}},
                              setup)[0]);
      }
    }
    const std::vector<float> want = golden.Values(name + ".out");
    double worst = 0;
    for (int r = 0; r < num_rows; ++r) {
      const std::vector<float> got = Unpadded(rows[static_cast<size_t>(r)], shape);
      for (int h = 0; h < shape.num_heads; ++h)
        for (int d = 0; d < value_dim; ++d)
          worst =
              std::max<double>(worst, std::abs(got[h * shape.head_dim + d] -
                                               want[(r * shape.num_heads + h) * value_dim + d]));
    }
    EXPECT_LE(worst, c["tol_abs"].get<double>());
    ++checked;
  }
  EXPECT_EQ(checked, 15);
}

struct ReferenceCase {
  int num_heads, num_kv_heads, head_dim, num_tokens;
};

class PagedAttentionReferenceTest : public testing::TestWithParam<ReferenceCase> {};

TEST_P(PagedAttentionReferenceTest, MatchesDoubleOnEveryTypeAndBlockSize) {
  const ReferenceCase& c = GetParam();
  const AttentionShape shape = {c.num_heads, c.num_kv_heads, c.head_dim};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int block_tokens : {16, 64}) {
      const StoredTokens stored(AttentionTokens::Random(shape, c.num_tokens, dtype, 1), dtype,
                                block_tokens);
      const std::vector<Row> rows = stored.All({.num_threads = 2});
      const int step = 1 + c.num_tokens / (kSanitized ? 5 : 23);
      for (int position = 0; position < c.num_tokens; position += step)
        ASSERT_LE(WorstError(rows[static_cast<size_t>(position)], stored.tokens, position), 4e-6)
            << Info(dtype).name << " position " << position;
    }
  }
}

std::vector<ReferenceCase> ReferenceCases() {
  std::vector<ReferenceCase> out;
  for (int group = 1; group <= 9; ++group) out.push_back({2 * group, 2, 32, 273});
  for (const int head_dim : {16, 32, 48, 64, 80, 96, 128, 256})
    out.push_back({6, 2, head_dim, 300});
  for (const int head_dim : {1, 20, 24, 33, 72, 100}) out.push_back({3, 1, head_dim, 270});
  for (const int num_tokens : {1, 2, 15, 16, 17, 255, 256, 257, 513})
    out.push_back({9, 3, 64, num_tokens});
  out.push_back({32, 1, 16, 40});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttentionReferenceTest, testing::ValuesIn(ReferenceCases()),
                         [](const auto& test) {
                           const ReferenceCase& c = test.param;
                           return "H" + std::to_string(c.num_heads) + "K" +
                                  std::to_string(c.num_kv_heads) + "D" +
                                  std::to_string(c.head_dim) + "T" + std::to_string(c.num_tokens);
                         });

TEST(PagedAttentionTest, WindowsAndCapsMatchDoubleOnEveryTypeAndBlockSize) {
  const AttentionShape shape = {6, 2, 32};
  constexpr int kTokens = 1100;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int block_tokens : {16, 64, 256}) {
      const StoredTokens stored(AttentionTokens::Random(shape, kTokens, dtype, 1), dtype,
                                block_tokens);
      for (const int window : {0, 1, 15, 16, 17, 32, 255, 256, 257, 1000, 5000}) {
        for (const float cap : {0.0f, 3.0f, 50.0f}) {
          if (window == 0 && cap == 0) continue;
          if (kSanitized && (window + block_tokens) % 3 != 0) continue;
          const AttentionSetup setup = {.num_threads = 2, .window = window, .score_cap = cap};
          SCOPED_TRACE(testing::Message() << Info(dtype).name << " block " << block_tokens
                                          << " window " << window << " cap " << cap);
          // A score is off by 3e-7 of the cap, which moves every weight by as much.
          const double tolerance = 4e-6 + 3e-7 * static_cast<double>(cap);
          const std::vector<Row> rows = stored.All(setup);
          for (int position = 0; position < kTokens; position += 45 + position % 3)
            ASSERT_LE(WorstError(rows[position], stored.tokens, position, setup), tolerance)
                << position;
          // Positions whose window crosses two tiles, by threads that divide the context.
          const std::vector<Row> few =
              Attend(stored.pool.layer(), std::vector{stored.rows(760, 9)}, setup);
          for (int r = 0; r < 9; ++r) ASSERT_EQ(few[r], rows[760 + r]) << r;
        }
      }
    }
  }
}

TEST(PagedAttentionTest, LatentVectorsMatchDoubleOnEveryTypeAndBlockSize) {
  const AttentionShape shapes[] = {{1, 1, 24, 16},   {4, 1, 24, 16},  {16, 1, 80, 64},
                                   {3, 1, 576, 512}, {16, 1, 96, 96}, {128, 1, 80, 64}};
  for (const AttentionShape& shape : shapes) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int block_tokens : {16, 64, 256}) {
        const int num_tokens = shape.num_heads * shape.head_dim > 4000 ? 290 : 530;
        const StoredTokens stored(AttentionTokens::Random(shape, num_tokens, dtype, 2), dtype,
                                  block_tokens);
        SCOPED_TRACE(testing::Message() << shape.num_heads << " heads of " << shape.head_dim << " "
                                        << Info(dtype).name << " block " << block_tokens);
        const std::vector<Row> rows = stored.All({.num_threads = 2});
        const int step = 1 + num_tokens / (kSanitized ? 3 : 11);
        for (int position = 0; position < num_tokens; position += step)
          ASSERT_LE(WorstError(rows[position], stored.tokens, position), 4e-6) << position;
      }
    }
  }
}

// What lies before every window is freed while the request runs: the table still has entries for
// it, but they may name anything, and hidden tokens of a block that is partly seen may be NaN.
TEST(PagedAttentionTest, ReadsNothingBeforeTheWindow) {
  constexpr int kTokens = 900;
  constexpr int32_t kNowhere = std::numeric_limits<int32_t>::max() / 2;  // far outside the pool
  const struct {
    int first, num_rows;
  } calls[] = {{899, 1}, {700, 3}, {520, 40}, {257, 300}, {511, 2}, {40, 17}};
  for (const AttentionShape& shape : {AttentionShape{6, 2, 32}, AttentionShape{4, 1, 24, 16}}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int block_tokens : {16, 64, 256}) {
        const StoredTokens whole(AttentionTokens::Random(shape, kTokens, dtype, 9), dtype,
                                 block_tokens);
        for (const int window : {1, 15, 16, 17, 32, 255, 256, 257}) {
          if (kSanitized && window % 2 == 1) continue;
          const AttentionSetup setup = {.num_threads = 2, .window = window};
          const std::vector<Row> want = whole.All(setup);
          for (const auto& [first, num_rows] : calls) {
            const int first_seen = std::max(0, first + 1 - window);
            AttentionPool pool(shape, dtype, block_tokens, kTokens / block_tokens + 2);
            std::vector<int32_t> table(static_cast<size_t>(first_seen / block_tokens), kNowhere);
            pool.Append(whole.tokens, first_seen, first + num_rows, &table);
            const std::vector<Row> got =
                Attend(pool.layer(),
                       std::vector{AttentionRows{&whole.tokens, &table, first, num_rows}}, setup);
            for (int r = 0; r < num_rows; ++r)
              ASSERT_EQ(got[r], want[first + r])
                  << Info(dtype).name << " block " << block_tokens << " window " << window
                  << " position " << first + r;
          }
        }
      }
    }
  }
}

// A later token's values may be infinite (activations overflow); an earlier row in the same strip
// sees neither them nor what lies in slots not yet written.
TEST(PagedAttentionTest, HiddenTokensDoNotLeak) {
  const AttentionShape shape = {6, 2, 32};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int bad : {1, 3, 16, 47, 255, 256, 290}) {
      AttentionTokens clean = AttentionTokens::Random(shape, 300, dtype, 4);
      AttentionTokens dirty = clean;
      const size_t width = static_cast<size_t>(shape.num_kv_heads) * shape.head_dim;
      for (size_t i = bad * width; i < dirty.keys.size(); ++i) {
        dirty.keys[i] = i % 3 == 0 ? std::numeric_limits<float>::quiet_NaN()
                                   : std::numeric_limits<float>::infinity();
        dirty.values[i] = i % 2 == 0 ? std::numeric_limits<float>::infinity()
                                     : std::numeric_limits<float>::quiet_NaN();
      }
      const std::vector<Row> want = StoredTokens(clean, dtype, 16).All({});
      const StoredTokens stored(dirty, dtype, 16);
      const std::vector<Row> got = stored.All({});
      for (int r = 0; r < bad; ++r)
        ASSERT_EQ(got[static_cast<size_t>(r)], want[static_cast<size_t>(r)])
            << "bad from " << bad << " row " << r;
      // Split over tiles: the rows end at the last clean one, or straddle the first bad one.
      const int first = std::max(0, bad - 9);
      const std::vector<Row> few = Attend(
          stored.pool.layer(), std::vector{stored.rows(first, std::min(16, 300 - first))}, {});
      for (int r = first; r < bad; ++r)
        ASSERT_EQ(few[static_cast<size_t>(r - first)], want[static_cast<size_t>(r)]);
    }
  }
}

TEST(PagedAttentionTest, OverflowedQueryStaysVisible) {
  const AttentionShape shape = {2, 1, 16};
  AttentionTokens tokens = AttentionTokens::Random(shape, 20, DType::kF32, 4);
  tokens.queries[19 * 32] = std::numeric_limits<float>::quiet_NaN();
  const StoredTokens stored(tokens, DType::kF32, 16);
  for (const AttentionSetup& setup : {AttentionSetup{}, {.window = 7}, {.score_cap = 30}}) {
    const std::vector<float> row = Unpadded(stored.All(setup)[19], shape);
    EXPECT_TRUE(std::isnan(row[0]));
    EXPECT_FALSE(std::isnan(row[16]));  // the other head
  }
}

TEST(PagedAttentionTest, PadsHeadsWithZerosAndQuantisesEachAlone) {
  const AttentionShape shape = {4, 2, 72};  // 3 blocks a head, 8 values in the last
  const StoredTokens stored(AttentionTokens::Random(shape, 90, DType::kF16, 5), DType::kF16, 16);
  const std::vector<Row> exact = stored.All({});
  const std::vector<Row> quantised = stored.All({.format = ActivationFormat::kInt8});
  const std::vector<Row> of_two_terms = stored.All({.format = ActivationFormat::kInt16});
  for (size_t r = 0; r < exact.size(); ++r) {
    for (int b = 0; b < shape.num_heads * 3; ++b) {
      float values[kQuantBlock];
      ActivationBlock block;
      std::memcpy(values, exact[r].data() + b * sizeof(values), sizeof(values));
      std::memcpy(&block, quantised[r].data() + b * sizeof(block), sizeof(block));
      float max = 0;
      for (const float x : values) max = std::max(max, std::abs(x));
      ASSERT_EQ(block.scale, max / 127);
      const ActivationBlock second = reference::QuantiseRest(values, block);
      const auto* terms = reinterpret_cast<const ActivationBlock*>(of_two_terms[r].data());
      ASSERT_EQ(std::memcmp(terms + b, &block, sizeof block), 0);
      ASSERT_EQ(std::memcmp(terms + shape.num_heads * 3 + b, &second, sizeof second), 0);
      for (int i = 0; i < kQuantBlock; ++i) {
        if (b % 3 == 2 && i >= 8) {
          ASSERT_EQ(values[i], 0);
          ASSERT_EQ(block.values[i], 0);
        }
        ASSERT_NEAR(block.values[i] * block.scale, values[i], 0.5001f * block.scale);
      }
    }
  }
}

TEST(PagedAttentionTest, SumsALongContextInBoundedRounds) {
  constexpr int kTokens = 131072;
  const AttentionShape shape = {2, 1, 16};
  const StoredTokens stored(AttentionTokens::Random(shape, kTokens, DType::kF16, 6), DType::kF16,
                            16);
  const std::vector rows = {stored.rows(kTokens - 1, 1), stored.rows(kTokens - 20, 18)};
  const std::vector<Row> want = Attend(stored.pool.layer(), rows, {});
  EXPECT_LE(WorstError(want[0], stored.tokens, kTokens - 1), 4e-6);
  for (const int num_threads : {1, 3})
    EXPECT_EQ(
        Attend(stored.pool.layer(), rows, {.num_threads = num_threads, .max_split_units = 50}),
        want);
}

TEST(TransposeTokensTest, TurnsRowsIntoColumnsAndWritesNothingElse) {
  for (const Isa isa : IsasOfThisMachine()) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const auto size = static_cast<size_t>(Info(dtype).block_bytes);
      for (const int dim : {8, 16, 24, 80, 576}) {
        const size_t stride = (static_cast<size_t>(dim) + 16) * size;
        std::vector<std::byte> rows(16 * stride);
        std::mt19937 random(11);
        for (std::byte& byte : rows) byte = static_cast<std::byte>(random());
        std::vector<std::byte> got(16 * dim * size + 64, std::byte{0x5a}), want = got;
        for (int d = 0; d < dim; ++d)
          for (int t = 0; t < 16; ++t)
            std::memcpy(want.data() + (d * 16 + t) * size, rows.data() + t * stride + d * size,
                        size);
        CpuKernelsFor(isa).transpose_tokens(dtype, rows.data(), static_cast<int64_t>(stride), dim,
                                            got.data());
        EXPECT_EQ(got, want) << IsaName(isa) << " " << Info(dtype).name << " " << dim;
      }
    }
  }
}

TEST(PagedAttentionTest, NoRowsIsNoWork) {
  const AttentionShape shape = {2, 1, 16};
  const StoredTokens stored(AttentionTokens::Random(shape, 3, DType::kF16, 6), DType::kF16, 16);
  EXPECT_THAT(Attend(stored.pool.layer(), std::vector{stored.rows(0, 0)}, {.num_threads = 2}),
              testing::IsEmpty());
}

}  // namespace
}  // namespace cairn
