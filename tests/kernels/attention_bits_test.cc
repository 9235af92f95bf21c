// Bits of attention: what may change none of them.
#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "tests/kernels/attention_pool.h"
#include "tests/kernels/machine.h"

namespace cairn {
namespace {

using Row = OutputRow;

// What the bits tests run on: a kind of attention.
struct BitsCase {
  AttentionShape shape;
  int window = 0;
  float score_cap = 0;
};

std::string BitsCaseName(const testing::TestParamInfo<BitsCase>& test) {
  const auto& [shape, window, cap] = test.param;
  std::string name = "H" + std::to_string(shape.num_heads) + "K" +
                     std::to_string(shape.num_kv_heads) + "D" + std::to_string(shape.head_dim);
  if (shape.latent_value_dim > 0) name += "L" + std::to_string(shape.latent_value_dim);
  if (window > 0) name += "W" + std::to_string(window);
  if (cap > 0) name += "Capped";
  return name;
}

// Bits. The truth of each test is one call over the whole sequence by one thread.
class PagedAttentionBitsTest : public testing::TestWithParam<BitsCase> {
 protected:
  static const AttentionShape& shape() { return GetParam().shape; }
  // Several threads have the widest instructions of the machine.
  static AttentionSetup Setup(AttentionSetup setup = {}) {
    if (setup.num_threads > 1) setup.isa = IsasOfThisMachine().back();
    setup.window = GetParam().window;
    setup.score_cap = GetParam().score_cap;
    return setup;
  }

  StoredTokens Make(int num_tokens, int block_tokens = 16, DType dtype = DType::kF16,
                    uint32_t seed = 3) const {
    return StoredTokens(AttentionTokens::Random(shape(), num_tokens, dtype, seed), dtype,
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
      want.push_back(Attend(
          pool.layer(), std::vector{AttentionRows{&tokens[s], &tables[s], 0, tokens[s].num_tokens}},
          Setup()));
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
                 Setup({.num_threads = Pick(random, 1, 3),
                        .max_split_units = Pick(random, 0, 1) * Pick(random, 1, 90)}));
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
  const StoredTokens whole = Make(kTokens);
  const std::vector<Row> want = whole.All(Setup());
  for (const int chunk : {1, 2, 7, 16, 17, 64, 255, 256, 257}) {
    if (kSanitized && chunk != 2 && chunk != 17 && chunk != 257) continue;
    // The pool is filled as the chunks go: what later chunks write is still NaN.
    AttentionPool pool(shape(), DType::kF16, 16, kTokens / 16 + 1);
    std::vector<int32_t> table;
    for (int first = 0; first < kTokens; first += chunk) {
      const int num_rows = std::min(chunk, kTokens - first);
      pool.Append(whole.tokens, first, first + num_rows, &table);
      if (chunk < 7 && first % 16 > 2 && first < 500) continue;  // enough of these
      const std::vector<Row> got =
          Attend(pool.layer(), std::vector{AttentionRows{&whole.tokens, &table, first, num_rows}},
                 Setup({.num_threads = 2}));
      for (int r = 0; r < num_rows; ++r)
        ASSERT_EQ(got[static_cast<size_t>(r)], want[static_cast<size_t>(first + r)])
            << "chunk " << chunk << " position " << first + r;
    }
  }
}

TEST_P(PagedAttentionBitsTest, BlockSizeAndThreadsAndRoundsChangeNothing) {
  constexpr int kTokens = 600;
  const std::vector<Row> want = Make(kTokens).All(Setup());
  for (const int block_tokens : {16, 32, 64, 128, 256}) {
    const StoredTokens stored = Make(kTokens, block_tokens);
    for (const int num_threads : {1, 2, 3}) {
      if (kSanitized && num_threads != 3) continue;
      for (const int64_t max_split_units : {0, 1, 40}) {
        const AttentionSetup setup =
            Setup({.num_threads = num_threads, .max_split_units = max_split_units});
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
  AttentionPool pool(shape(), DType::kF16, 32, kSequences * (kTokens / 32 + 1));
  std::vector<AttentionTokens> tokens;
  std::vector<std::vector<int32_t>> tables(kSequences);
  for (uint32_t s = 0; s < kSequences; ++s) {
    tokens.push_back(AttentionTokens::Random(shape(), kTokens, DType::kF16, 50 + s));
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
  AttentionPool pool(shape(), DType::kF16, kBlock, kSequences * (kMaxTokens / kBlock + 1));
  std::vector<AttentionTokens> tokens;
  std::vector<std::vector<int32_t>> tables(kSequences);
  for (uint32_t s = 0; s < kSequences; ++s) {
    tokens.push_back(
        AttentionTokens::Random(shape(), Pick(&random, 300, kMaxTokens), DType::kF16, 70 + s));
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

TEST_P(PagedAttentionBitsTest, CutsOfTheQueryHeadsChangeNothing) {
  constexpr int kTokens = 300;
  const StoredTokens stored = Make(kTokens);
  const std::vector<Row> want = stored.All(Setup());
  const int num_heads = shape().num_heads;
  for (int cut = 1; cut<num_heads; cut += num_heads> 16 ? 17 : 1) {
    for (const int num_threads : {1, 2}) {
      const auto part = [&](int first, int end) {
        return Attend(
            stored.pool.layer(), std::vector{stored.rows(0, 40), stored.rows(kTokens - 1, 1)},
            Setup({.num_threads = num_threads, .first_head = first, .num_heads = end - first}));
      };
      std::vector<Row> got = part(0, cut);
      const std::vector<Row> rest = part(cut, num_heads);
      for (size_t r = 0; r < got.size(); ++r) {
        got[r].insert(got[r].end(), rest[r].begin(), rest[r].end());
        ASSERT_EQ(got[r], want[r < 40 ? r : kTokens - 1]) << "cut " << cut << " row " << r;
      }
    }
  }
}

TEST_P(PagedAttentionBitsTest, InstructionSetChangesNothing) {
  if (!ChooseIsa("avx512").ok()) GTEST_SKIP() << "this processor has no AVX-512";
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const ActivationFormat format : {ActivationFormat::kF32, ActivationFormat::kInt8}) {
      const StoredTokens stored = Make(560, 16, dtype);
      EXPECT_EQ(stored.All(Setup({.isa = Isa::kAvx2, .format = format})),
                stored.All(Setup({.isa = Isa::kAvx512, .num_threads = 2, .format = format})));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttentionBitsTest,
                         testing::Values(BitsCase{{9, 3, 64}}, BitsCase{{4, 4, 16}},
                                         BitsCase{{7, 1, 80}}, BitsCase{{16, 2, 24}},
                                         BitsCase{{9, 3, 64}, 100}, BitsCase{{4, 4, 16}, 17, 4},
                                         BitsCase{{7, 1, 80}, 300}, BitsCase{{6, 2, 32}, 0, 4},
                                         BitsCase{{1, 1, 24, 16}}, BitsCase{{4, 1, 80, 64}},
                                         BitsCase{{16, 1, 80, 64}}, BitsCase{{128, 1, 24, 16}}),
                         BitsCaseName);

TEST(AttentionPlanTest, WithAWindowItemsBeginWhereTheirFirstPositionSees) {
  const std::vector<int32_t> table(64);
  const std::vector<AttentionSequence> sequences = {
      {.block_table = table.data(), .first_position = 1000, .num_rows = 1},
      {.block_table = table.data(), .first_position = 1000, .num_rows = 1},
      {.block_table = table.data(), .first_position = 500, .num_rows = 40}};
  const AttentionPlan plan = PlanAttention(sequences, 16, 1, 1, 100);
  const auto first_tiles = [](const std::vector<AttentionPlan::Item>& items) {
    std::vector<int> out;
    for (const AttentionPlan::Item& item : items) out.push_back(item.first_tile);
    return out;
  };
  using testing::ElementsAre;
  // Rows 500, 516 and 532 see from 401, 417 and 433 on; too few items for a thread's turns.
  EXPECT_THAT(first_tiles(plan.split), ElementsAre(1, 1, 1, 3, 3));
  for (const AttentionPlan::Piece& piece : plan.pieces) EXPECT_EQ(piece.shared_tiles, 0);
  EXPECT_EQ(plan.first_token(99), 0);
  EXPECT_EQ(plan.first_token(100), 1);
}

}  // namespace
}  // namespace cairn
