#include "kernels/attention.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/attention_pool.h"
#include "tests/kernels/attention_reference.h"
#include "tests/kernels/golden_tensors.h"

namespace cairn {
namespace {

using Row = std::vector<std::byte>;

// The sanitizers make everything ten times slower; they look for other errors than lost bits, so
// the tests keep each kind of case and drop repetitions.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// The floats of a kF32 row without the padding of its heads.
std::vector<float> Unpadded(const Row& row, const AttentionShape& shape) {
  std::vector<float> out;
  const int64_t stride = BlocksFor(shape.head_dim) * kQuantBlock;
  for (int h = 0; h < shape.num_heads; ++h) {
    std::vector<float> head(static_cast<size_t>(shape.head_dim));
    std::memcpy(head.data(), row.data() + h * stride * 4, head.size() * sizeof(float));
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}

double WorstError(const Row& row, const AttentionTokens& tokens, int position) {
  const AttentionShape& shape = tokens.shape;
  const std::vector<double> want = ReferenceAttention(
      tokens.queries.data() + int64_t{position} * shape.num_heads * shape.head_dim,
      tokens.keys.data(), tokens.values.data(), position + 1, shape.num_heads, shape.num_kv_heads,
      shape.head_dim);
  const std::vector<float> got = Unpadded(row, shape);
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    if (!(error <= worst)) worst = error;  // a NaN is worse than anything
  }
  return worst;
}

// One sequence with all of its tokens in a pool of its own.
struct Stored {
  Stored(AttentionTokens of, DType dtype, int block_tokens)
      : tokens(std::move(of)),
        pool(tokens.shape, dtype, block_tokens, tokens.num_tokens / block_tokens + 2) {
    pool.Append(tokens, 0, tokens.num_tokens, &table);
  }
  AttentionRows rows(int first, int num_rows) const { return {&tokens, &table, first, num_rows}; }
  std::vector<Row> All(const AttentionSetup& setup) const {
    return Attend(pool.layer(), std::vector{rows(0, tokens.num_tokens)}, setup);
  }

  AttentionTokens tokens;
  AttentionPool pool;
  std::vector<int32_t> table;
};

TEST(PagedAttentionTest, MeetsGoldenDataOfAnotherEngine) {
  const GoldenTensors golden("techniques/attention");
  ASSERT_TRUE(golden.ok());
  int checked = 0;
  for (const auto& [name, c] : golden.cases().items()) {
    if (c["window"] != 0 || c["softcap"] != 0.0 || c["sink"] != 0) continue;
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
    const Stored stored(tokens, DType::kF32, 16);

    std::vector<Row> rows;
    if (causal) {
      rows = Attend(stored.pool.layer(), std::vector{stored.rows(offset, num_rows)}, {});
    } else {  // every query as if it stood at the last position
      for (int r = 0; r < num_rows; ++r) {
        AttentionTokens last = tokens;
        std::copy_n(q.begin() + r * width, width, last.queries.end() - width);
        for (size_t i = 0; i < width; ++i)
          (&*last.queries.end() - width)[i] *= c["scale"].get<float>();
        rows.push_back(Attend(stored.pool.layer(),
                              std::vector{AttentionRows{&last, &stored.table, num_tokens - 1, 1}},
                              {})[0]);
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
  EXPECT_EQ(checked, 10);
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
      const Stored stored(AttentionTokens::Random(shape, c.num_tokens, dtype, 1), dtype,
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

// Bits. The truth of each test is one call over the whole sequence by one thread.
class PagedAttentionBitsTest : public testing::TestWithParam<AttentionShape> {
 protected:
  Stored Make(int num_tokens, int block_tokens = 16, DType dtype = DType::kF16,
              uint32_t seed = 3) const {
    return Stored(AttentionTokens::Random(GetParam(), num_tokens, dtype, seed), dtype,
                  block_tokens);
  }

  static int Pick(std::mt19937* random, int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(*random);
  }

  // Random batches: every row as in a call of its sequence alone. pick_rows(num_tokens, &first)
  // chooses how many rows of a sequence a batch has; none is fine.
  template <class PickRows>
  static void ExpectBatchesAsAlone(const AttentionPool& pool,
                                   const std::vector<AttentionTokens>& tokens,
                                   const std::vector<std::vector<int32_t>>& tables,
                                   std::mt19937* random, PickRows pick_rows) {
    std::vector<std::vector<Row>> want;
    for (size_t s = 0; s < tokens.size(); ++s)
      want.push_back(
          Attend(pool.layer(),
                 std::vector{AttentionRows{&tokens[s], &tables[s], 0, tokens[s].num_tokens}}, {}));
    for (int step = 0; step < (kSanitized ? 6 : 40); ++step) {
      std::vector<AttentionRows> batch;
      for (size_t s = 0; s < tokens.size(); ++s) {
        int first = 0;
        const int num_rows = pick_rows(tokens[s].num_tokens, &first);
        if (num_rows > 0) batch.push_back({&tokens[s], &tables[s], first, num_rows});
      }
      if (batch.empty()) continue;
      std::shuffle(batch.begin(), batch.end(), *random);
      const std::vector<Row> got =
          Attend(pool.layer(), batch,
                 {.num_threads = Pick(random, 1, 3),
                  .max_split_units = Pick(random, 0, 1) * Pick(random, 1, 90)});
      size_t row = 0;
      for (const AttentionRows& rows : batch) {
        const auto s = static_cast<size_t>(rows.tokens - tokens.data());
        for (int r = 0; r < rows.num_rows; ++r, ++row)
          ASSERT_EQ(got[row], want[s][static_cast<size_t>(rows.first + r)])
              << "step " << step << " sequence " << s << " position " << rows.first + r;
      }
    }
  }
};

TEST_P(PagedAttentionBitsTest, ChunkSizeChangesNothing) {
  constexpr int kTokens = 530;
  const Stored whole = Make(kTokens);
  const std::vector<Row> want = whole.All({});
  for (const int chunk : {1, 2, 7, 16, 17, 64, 255, 256, 257}) {
    if (kSanitized && chunk != 2 && chunk != 17 && chunk != 257) continue;
    // The pool is filled as the chunks go: what later chunks write is still NaN.
    AttentionPool pool(GetParam(), DType::kF16, 16, kTokens / 16 + 1);
    std::vector<int32_t> table;
    for (int first = 0; first < kTokens; first += chunk) {
      const int num_rows = std::min(chunk, kTokens - first);
      pool.Append(whole.tokens, first, first + num_rows, &table);
      if (chunk < 7 && first % 16 > 2 && first < 500) continue;  // enough of these
      const std::vector<Row> got =
          Attend(pool.layer(), std::vector{AttentionRows{&whole.tokens, &table, first, num_rows}},
                 {.num_threads = 2});
      for (int r = 0; r < num_rows; ++r)
        ASSERT_EQ(got[static_cast<size_t>(r)], want[static_cast<size_t>(first + r)])
            << "chunk " << chunk << " position " << first + r;
    }
  }
}

TEST_P(PagedAttentionBitsTest, BlockSizeAndThreadsAndRoundsChangeNothing) {
  constexpr int kTokens = 600;
  const std::vector<Row> want = Make(kTokens).All({});
  for (const int block_tokens : {16, 32, 64, 128, 256}) {
    const Stored stored = Make(kTokens, block_tokens);
    for (const int num_threads : {1, 2, 3}) {
      if (kSanitized && num_threads != 3) continue;
      for (const int64_t max_split_units : {0, 1, 40}) {
        const AttentionSetup setup = {.num_threads = num_threads,
                                      .max_split_units = max_split_units};
        SCOPED_TRACE(testing::Message() << "block " << block_tokens << " threads " << num_threads
                                        << " units " << max_split_units);
        if (max_split_units == 0) {
          ASSERT_EQ(stored.All(setup), want);
        } else if (block_tokens > 32) {
          continue;
        }
        const std::vector<Row> tail = Attend(
            stored.pool.layer(),
            std::vector{stored.rows(kTokens - 1, 1), stored.rows(577, 5), stored.rows(300, 9)},
            setup);
        ASSERT_EQ(tail[0], want[kTokens - 1]);
        for (int r = 0; r < 5; ++r) ASSERT_EQ(tail[1 + r], want[577 + r]);
        for (int r = 0; r < 9; ++r) ASSERT_EQ(tail[6 + r], want[300 + r]);
      }
    }
  }
}

TEST_P(PagedAttentionBitsTest, NeighboursInTheBatchChangeNothing) {
  constexpr uint32_t kSeed = 20240;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  constexpr int kSequences = 6, kTokens = 400;
  AttentionPool pool(GetParam(), DType::kF16, 32, kSequences * (kTokens / 32 + 1));
  std::vector<AttentionTokens> tokens;
  std::vector<std::vector<int32_t>> tables(kSequences);
  for (uint32_t s = 0; s < kSequences; ++s) {
    tokens.push_back(AttentionTokens::Random(GetParam(), kTokens, DType::kF16, 50 + s));
    pool.Append(tokens[s], 0, kTokens, &tables[s]);
  }
  ExpectBatchesAsAlone(pool, tokens, tables, &random, [&](int num_tokens, int* first) {
    const int kind = Pick(&random, 0, 3);  // absent, decode, a few rows, a long chunk
    const int num_rows = kind <= 1   ? kind
                         : kind == 2 ? Pick(&random, 2, 20)
                                     : Pick(&random, 50, num_tokens);
    *first = Pick(&random, 0, num_tokens - num_rows);
    return num_rows;
  });
}

// A tree of prefixes in one pool: what is shared is read together, by whoever is in the step.
TEST_P(PagedAttentionBitsTest, SharedBlocksChangeNothing) {
  constexpr uint32_t kSeed = 20241;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  constexpr int kSequences = 9, kBlock = 32, kMaxTokens = 1100;
  AttentionPool pool(GetParam(), DType::kF16, kBlock, kSequences * (kMaxTokens / kBlock + 1));
  std::vector<AttentionTokens> tokens;
  std::vector<std::vector<int32_t>> tables(kSequences);
  for (uint32_t s = 0; s < kSequences; ++s) {
    tokens.push_back(
        AttentionTokens::Random(GetParam(), Pick(&random, 300, kMaxTokens), DType::kF16, 70 + s));
    int shared = 0;
    if (s > 0) {
      const auto parent = static_cast<size_t>(Pick(&random, 0, static_cast<int>(s) - 1));
      shared = std::min(tokens[s].num_tokens, tokens[parent].num_tokens) / kBlock * kBlock;
      if (Pick(&random, 0, 2) == 0) shared = Pick(&random, 0, shared / kBlock) * kBlock;
      const auto copy = [&](const std::vector<float>& from, std::vector<float>* to) {
        std::copy_n(from.begin(), from.size() / tokens[parent].num_tokens * shared, to->begin());
      };
      copy(tokens[parent].keys, &tokens[s].keys);
      copy(tokens[parent].values, &tokens[s].values);
      tables[s].assign(tables[parent].begin(), tables[parent].begin() + shared / kBlock);
    }
    pool.Append(tokens[s], shared, tokens[s].num_tokens, &tables[s]);
  }
  ExpectBatchesAsAlone(pool, tokens, tables, &random, [&](int num_tokens, int* first) {
    const int kind = Pick(&random, 0, 5);  // absent, a few rows, a long chunk, else decode
    const int num_rows = kind == 0   ? 0
                         : kind == 1 ? Pick(&random, 2, 17)
                         : kind == 2 ? Pick(&random, 50, 300)
                                     : 1;
    *first = std::max(0, num_tokens - num_rows - Pick(&random, 0, 1));
    return num_rows;
  });
}

// Which rows go together, told by the plan itself: a plan that shared nothing would pass above.
TEST(AttentionPlanTest, SharersReadTheirCommonTilesTogether) {
  constexpr int kBlock = 128;  // two a tile
  const std::vector<int32_t> a = {1, 2, 3, 4, 5, 6, 7}, b = {1, 2, 3, 4, 8, 9, 10, 11},
                             c = {1, 2, 12, 13, 14}, d = {20, 21, 22}, e = {1, 15, 16};
  const auto decode = [](const std::vector<int32_t>& table, int position, int num_rows = 1) {
    return AttentionSequence{
        .block_table = table.data(), .first_position = position, .num_rows = num_rows};
  };
  const std::vector sequences = {decode(d, 300), decode(c, 600), decode(b, 1000, 4), decode(e, 300),
                                 decode(a, 800, 3)};
  const AttentionPlan plan = PlanAttention(sequences, kBlock, 2, 2);
  EXPECT_THAT(plan.whole, testing::IsEmpty());
  std::vector<std::vector<std::pair<const int32_t*, int>>> got;
  for (const AttentionPlan::Item& item : plan.split) {
    got.emplace_back();
    for (int p = 0; p < item.num_pieces; ++p) {
      const AttentionPlan::Piece& piece = plan.pieces[item.first_piece + p];
      got.back().emplace_back(piece.sequence->block_table, piece.shared_tiles);
    }
  }
  using testing::ElementsAre;
  using testing::Pair;
  EXPECT_THAT(got, ElementsAre(ElementsAre(Pair(a.data(), 0), Pair(b.data(), 2), Pair(c.data(), 1)),
                               ElementsAre(Pair(e.data(), 0)), ElementsAre(Pair(d.data(), 0))));
  EXPECT_EQ(plan.split[0].num_positions, 8);
  EXPECT_EQ(plan.split[0].last_position, 1003);
}

TEST(AttentionPlanTest, ATileIsSharedOnlyIfEachSeesItWhole) {
  const std::vector<int32_t> table = {1, 2, 3};
  const auto shared = [&](int first, int second) {
    const std::vector<AttentionSequence> sequences = {
        {.block_table = table.data(), .first_position = first, .num_rows = 1},
        {.block_table = table.data(), .first_position = second, .num_rows = 1}};
    const AttentionPlan plan = PlanAttention(sequences, kAttentionTile, 1, 1);
    return plan.pieces[1].shared_tiles;
  };
  EXPECT_EQ(shared(254, 600), 0);
  EXPECT_EQ(shared(255, 600), 1);
  EXPECT_EQ(shared(600, 510), 1);
  EXPECT_EQ(shared(511, 511), 2);
}

TEST_P(PagedAttentionBitsTest, InstructionSetChangesNothing) {
  if (!ChooseIsa("avx512").ok()) GTEST_SKIP() << "this processor has no AVX-512";
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const ActivationFormat format : {ActivationFormat::kF32, ActivationFormat::kInt8}) {
      const Stored stored = Make(560, 16, dtype);
      EXPECT_EQ(stored.All({.isa = Isa::kAvx2, .format = format}),
                stored.All({.isa = Isa::kAvx512, .num_threads = 2, .format = format}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttentionBitsTest,
                         testing::Values(AttentionShape{9, 3, 64}, AttentionShape{4, 4, 16},
                                         AttentionShape{7, 1, 80}, AttentionShape{16, 2, 24}),
                         [](const auto& test) {
                           return "H" + std::to_string(test.param.num_heads) + "K" +
                                  std::to_string(test.param.num_kv_heads) + "D" +
                                  std::to_string(test.param.head_dim);
                         });

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
      const std::vector<Row> want = Stored(clean, dtype, 16).All({});
      const Stored stored(dirty, dtype, 16);
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
  const Stored stored(tokens, DType::kF32, 16);
  const std::vector<float> row = Unpadded(stored.All({})[19], shape);
  EXPECT_TRUE(std::isnan(row[0]));
  EXPECT_FALSE(std::isnan(row[16]));  // the other head
}

TEST(PagedAttentionTest, PadsHeadsWithZerosAndQuantisesEachAlone) {
  const AttentionShape shape = {4, 2, 72};  // 3 blocks a head, 8 values in the last
  const Stored stored(AttentionTokens::Random(shape, 90, DType::kF16, 5), DType::kF16, 16);
  const std::vector<Row> exact = stored.All({});
  const std::vector<Row> quantised = stored.All({.format = ActivationFormat::kInt8});
  for (size_t r = 0; r < exact.size(); ++r) {
    for (int b = 0; b < shape.num_heads * 3; ++b) {
      float values[kQuantBlock];
      ActivationBlock block;
      std::memcpy(values, exact[r].data() + b * sizeof(values), sizeof(values));
      std::memcpy(&block, quantised[r].data() + b * sizeof(block), sizeof(block));
      float max = 0;
      for (const float x : values) max = std::max(max, std::abs(x));
      ASSERT_EQ(block.scale, max / 127);
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
  const Stored stored(AttentionTokens::Random(shape, kTokens, DType::kF16, 6), DType::kF16, 16);
  const std::vector rows = {stored.rows(kTokens - 1, 1), stored.rows(kTokens - 20, 18)};
  const std::vector<Row> want = Attend(stored.pool.layer(), rows, {});
  EXPECT_LE(WorstError(want[0], stored.tokens, kTokens - 1), 4e-6);
  for (const int num_threads : {1, 3})
    EXPECT_EQ(
        Attend(stored.pool.layer(), rows, {.num_threads = num_threads, .max_split_units = 50}),
        want);
}

TEST(PagedAttentionTest, NoRowsIsNoWork) {
  const AttentionShape shape = {2, 1, 16};
  const Stored stored(AttentionTokens::Random(shape, 3, DType::kF16, 6), DType::kF16, 16);
  EXPECT_THAT(Attend(stored.pool.layer(), std::vector{stored.rows(0, 0)}, {.num_threads = 2}),
              testing::IsEmpty());
}

}  // namespace
}  // namespace cairn
