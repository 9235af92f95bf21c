#include "kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu_kernels.h"
#include "kernels/packed_block.h"
#include "machine.h"
#include "reference.h"

namespace cairn {
namespace {

using reference::WeightRows;

constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                               DType::kQ4_0, DType::kQ4_1, DType::kQ6_K, DType::kQ5_0,
                               DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kF8E4M3};

// Memory at a multiple of 64 bytes.
class AlignedBytes {
 public:
  explicit AlignedBytes(int64_t size) : lines_((size + 63) / 64) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  std::vector<Line> lines_;
};

// A whole matrix in packed form.
struct Packed {
  DType dtype;
  int64_t num_tiles, num_blocks;
  AlignedBytes bytes;

  PackedMatrix Tiles(Range tiles) {
    return {.dtype = dtype,
            .data = bytes.data() + tiles.begin * PackedTileBytes(dtype, num_blocks),
            .first_tile = tiles.begin,
            .num_tiles = tiles.size(),
            .num_blocks = num_blocks};
  }
  PackedMatrix All() { return Tiles({0, num_tiles}); }
};

Packed Pack(const WeightRows& weights, const std::vector<Range>& segments) {
  int64_t num_blocks = 0;
  for (const Range& segment : segments) num_blocks += BlocksFor(segment.size());
  const int64_t num_tiles = (weights.num_rows + kTileRows - 1) / kTileRows;
  const int64_t tile_bytes = PackedTileBytes(weights.dtype, num_blocks);
  Packed packed = {weights.dtype, num_tiles, num_blocks, AlignedBytes(num_tiles * tile_bytes)};
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    PackTileArgs args = {.dtype = weights.dtype,
                         .segments = segments,
                         .out = packed.bytes.data() + tile * tile_bytes};
    for (int i = 0; i < kTileRows; ++i) {
      const int64_t row = tile * kTileRows + i;
      if (row >= weights.num_rows) continue;
      args.rows[i] = weights.row(row);
      if (!weights.scales.empty()) args.scales[i] = weights.row_scales(row);
    }
    PackTile(args);
  }
  return packed;
}

Packed Pack(const WeightRows& weights) { return Pack(weights, {{0, weights.k}}); }

// Rows of random activations; each row is one logical shard of k values.
struct Inputs {
  AlignedBytes bytes;
  Activations view;

  Activations Rows(int64_t first) const {
    Activations from = view;
    from.data = view.row(first);
    return from;
  }
};

Inputs RandomInputs(ActivationFormat format, int64_t num_rows, int64_t k, uint32_t seed) {
  Inputs inputs = {AlignedBytes(num_rows * Activations::RowBytes(format, BlocksFor(k))), {}};
  inputs.view = {.format = format, .data = inputs.bytes.data(), .num_blocks = BlocksFor(k)};
  for (int64_t row = 0; row < num_rows; ++row) {
    const auto values = reference::Uniform(k, 2, seed + static_cast<uint32_t>(row));
    StoreActivations(CpuKernelsFor(Isa::kAvx2), values.data(), k, inputs.view.Slot(row, 0));
  }
  return inputs;
}

// [num_rows][stride] of one product.
struct Product {
  int64_t stride = 0;
  std::vector<float> values;
  float at(int64_t row, int64_t n) const { return values[row * stride + n]; }
  bool operator==(const Product& other) const {  // NaNs and zeros by their bits
    return values.size() == other.values.size() &&
           std::memcmp(values.data(), other.values.data(), values.size() * sizeof(float)) == 0;
  }
};

Product Multiply(Isa isa, Packed& weights, Activations x, int64_t num_rows,
                 const Leaves& leaves = {}, int64_t first_block = 0) {
  Product product = {weights.num_tiles * kTileRows, {}};
  product.values.assign(num_rows * product.stride, std::numeric_limits<float>::quiet_NaN());
  NewTeam(1, isa)->Run([&](const Context& context) {
    Matmul(context, {.weights = weights.All(),
                     .x = x,
                     .first_block = first_block,
                     .num_rows = num_rows,
                     .out = product.values.data(),
                     .out_stride = product.stride,
                     .leaves = leaves});
  });
  return product;
}

struct Case {
  DType weights;
  ActivationFormat activations;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const DType dtype : kAllTypes) {
    cases.push_back({dtype, ActivationFormat::kF32});
    if (!Info(dtype).quantised) continue;
    cases.push_back({dtype, ActivationFormat::kInt8});
    cases.push_back({dtype, ActivationFormat::kInt16});
  }
  return cases;
}

std::string Name(const Case& c) {
  return std::string(Info(c.weights).name) + " " + std::string(ActivationName(c.activations));
}

class MatmulTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, MatmulTest, testing::ValuesIn(IsasOfThisMachine()), IsaTestName);

struct Shape {
  int64_t num_rows, n, k;
};
constexpr Shape kShapes[] = {{1, 16, 256}, {2, 1, 512},   {3, 17, 256},  {5, 48, 512},
                             {8, 33, 768}, {13, 80, 256}, {130, 32, 256}};

TEST_P(MatmulTest, IsCloseToTheSumInDouble) {
  for (const Case& c : AllCases()) {
    for (const Shape& shape : kShapes) {
      const WeightRows weights = reference::RandomWeights(c.weights, shape.n, shape.k, 1);
      Packed packed = Pack(weights);
      const Inputs x = RandomInputs(c.activations, shape.num_rows, shape.k, 2);
      const Product product = Multiply(GetParam(), packed, x.view, shape.num_rows);
      for (int64_t row = 0; row < shape.num_rows; row += 1 + shape.num_rows / 16) {
        for (int64_t n = 0; n < shape.n; ++n) {
          const auto expected = reference::Dot(weights, n, x.view, row);
          ASSERT_NEAR(product.at(row, n), expected.sum, 2e-6 * expected.magnitude)
              << Name(c) << " row " << row << " column " << n << " of " << shape.num_rows << "x"
              << shape.n << "x" << shape.k;
        }
      }
    }
  }
}

TEST_P(MatmulTest, FollowsTheOrderOfItsContractBitForBit) {
  for (const Case& c : AllCases()) {
    for (const Shape& shape : {Shape{1, 17, 256}, Shape{7, 16, 768}}) {
      const WeightRows weights = reference::RandomWeights(c.weights, shape.n, shape.k, 3);
      Packed packed = Pack(weights);
      const Inputs x = RandomInputs(c.activations, shape.num_rows, shape.k, 4);
      const Product product = Multiply(GetParam(), packed, x.view, shape.num_rows);
      for (int64_t row = 0; row < shape.num_rows; ++row)
        for (int64_t n = 0; n < shape.n; ++n)
          ASSERT_EQ(product.at(row, n),
                    reference::SumBlocks(weights, n, x.view, row, 0, BlocksFor(shape.k)))
              << Name(c) << " row " << row << " column " << n;
    }
  }
}

TEST_P(MatmulTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  constexpr int64_t kN = 80, kK = 256;  // 5 tiles: an odd one beside groups of 4
  for (const Case& c : AllCases()) {
    Packed packed = Pack(reference::RandomWeights(c.weights, kN, kK, 5));
    const Inputs x = RandomInputs(c.activations, 150, kK, 6);
    const Product all = Multiply(GetParam(), packed, x.view, 150);
    const auto expect_same = [&](int64_t first, int64_t count) {
      const Product some = Multiply(GetParam(), packed, x.Rows(first), count);
      ASSERT_EQ(std::memcmp(some.values.data(), all.values.data() + first * all.stride,
                            some.values.size() * sizeof(float)),
                0)
          << Name(c) << " rows " << first << " +" << count;
    };
    for (int64_t count = 1; count <= 17; ++count) expect_same(count, count);
    for (int64_t first = 120; first < 150; ++first) expect_same(first, 1);
  }
}

TEST_P(MatmulTest, ThreadsChangeNoBit) {
  constexpr int64_t kN = 112, kK = 256, kRows = 9;
  for (const Case& c : AllCases()) {
    Packed packed = Pack(reference::RandomWeights(c.weights, kN, kK, 7));
    const Inputs x = RandomInputs(c.activations, kRows, kK, 8);
    const Product alone = Multiply(GetParam(), packed, x.view, kRows);
    for (const int threads : {2, 3}) {
      Product together = alone;
      std::fill(together.values.begin(), together.values.end(), 0.0f);
      NewTeam(threads, GetParam())->Run([&](const Context& context) {
        Matmul(context, {.weights = packed.Tiles(context.Share(packed.num_tiles)),
                         .x = x.view,
                         .num_rows = kRows,
                         .out = together.values.data(),
                         .out_stride = together.stride});
      });
      ASSERT_EQ(together, alone) << Name(c) << " threads " << threads;
    }
  }
}

TEST(MatmulIsaTest, Avx512GivesTheBitsOfAvx2) {
  if (IsasOfThisMachine().size() < 2) GTEST_SKIP() << "this machine has no AVX-512 VNNI";
  for (const Case& c : AllCases()) {
    for (const Shape& shape : kShapes) {
      Packed packed = Pack(reference::RandomWeights(c.weights, shape.n, shape.k, 9));
      const Inputs x = RandomInputs(c.activations, shape.num_rows, shape.k, 10);
      ASSERT_EQ(Multiply(Isa::kAvx512, packed, x.view, shape.num_rows),
                Multiply(Isa::kAvx2, packed, x.view, shape.num_rows))
          << Name(c);
    }
  }
}

// Adds up the tree over [lo, hi): a node inside one rank is a product of that rank, the others are
// sums of two.
Product TreeOverRanks(Isa isa, Packed& weights, const Inputs& x, int64_t num_rows,
                      const std::vector<int32_t>& leaf_begin, const std::vector<int>& cuts, int lo,
                      int hi) {
  for (size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
    if (cuts[rank] <= lo && hi <= cuts[rank + 1]) {
      const Leaves leaves = {.begin = leaf_begin, .lo = lo, .hi = hi};
      return Multiply(isa, weights, x.view, num_rows, leaves, leaf_begin[lo]);
    }
  }
  const int middle = TreeMiddle(lo, hi);
  Product sum = TreeOverRanks(isa, weights, x, num_rows, leaf_begin, cuts, lo, middle);
  const Product right = TreeOverRanks(isa, weights, x, num_rows, leaf_begin, cuts, middle, hi);
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += right.values[i];
  return sum;
}

TEST_P(MatmulTest, ATreeOfLeavesHasTheSameBitsHoweverItIsCutAmongRanks) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](int lo, int hi) {
    return std::uniform_int_distribution<int>(lo, hi)(random);
  };
  for (const Case& c : AllCases()) {
    for (int round = 0; round < 6; ++round) {
      const int num_blocks = 8 * pick(1, 3), num_leaves = pick(1, 9), num_rows = pick(1, 6);
      const WeightRows weights =
          reference::RandomWeights(c.weights, 32, num_blocks * kQuantBlock, random());
      Packed packed = Pack(weights);
      const Inputs x = RandomInputs(c.activations, num_rows, weights.k, random());
      std::vector<int32_t> leaf_begin = {0, num_blocks};  // leaves may be empty
      for (int i = 1; i < num_leaves; ++i) leaf_begin.push_back(pick(0, num_blocks));
      std::sort(leaf_begin.begin(), leaf_begin.end());
      const Leaves leaves = {.begin = leaf_begin, .lo = 0, .hi = num_leaves};
      const Product whole = Multiply(GetParam(), packed, x.view, num_rows, leaves);
      for (int row = 0; row < num_rows; ++row)
        ASSERT_EQ(whole.at(row, 5),
                  reference::SumTree(weights, 5, x.view, row, leaf_begin, 0, num_leaves))
            << Name(c);
      for (int num_ranks = 1; num_ranks <= 4; ++num_ranks) {
        std::vector<int> cuts = {0, num_leaves};
        for (int i = 1; i < num_ranks; ++i) cuts.push_back(pick(0, num_leaves));
        std::sort(cuts.begin(), cuts.end());
        ASSERT_EQ(TreeOverRanks(GetParam(), packed, x, num_rows, leaf_begin, cuts, 0, num_leaves),
                  whole)
            << Name(c) << " ranks " << num_ranks << " leaves " << num_leaves;
      }
    }
  }
}

// As many leaves as heads of the largest model, and all of the tree's depth.
TEST_P(MatmulTest, ATreeOfThousandsOfLeavesKeepsItsOrder) {
  for (const int num_leaves : {127, 129, 2049}) {
    const WeightRows weights =
        reference::RandomWeights(DType::kQ4_0, 16, num_leaves * kQuantBlock, 30);
    Packed packed = Pack(weights);
    const Inputs x = RandomInputs(ActivationFormat::kInt8, 5, weights.k, 31);
    std::vector<int32_t> leaf_begin(num_leaves + 1);
    std::iota(leaf_begin.begin(), leaf_begin.end(), 0);
    const Leaves leaves = {.begin = leaf_begin, .lo = 0, .hi = num_leaves};
    const Product product = Multiply(GetParam(), packed, x.view, 5, leaves);
    for (int row = 0; row < 5; ++row)
      ASSERT_EQ(product.at(row, 3),
                reference::SumTree(weights, 3, x.view, row, leaf_begin, 0, num_leaves))
          << num_leaves;
  }
}

TEST_P(MatmulTest, AccumulateAddsToWhatIsThere) {
  for (const Case& c : AllCases()) {
    Packed packed = Pack(reference::RandomWeights(c.weights, 16, 256, 11));
    const Inputs x = RandomInputs(c.activations, 3, 256, 12);
    const Product product = Multiply(GetParam(), packed, x.view, 3);
    Product sum = {16, reference::Uniform(48, 5, 13)};
    const Product before = sum;
    NewTeam(1, GetParam())->Run([&](const Context& context) {
      Matmul(context, {.weights = packed.All(),
                       .x = x.view,
                       .num_rows = 3,
                       .out = sum.values.data(),
                       .out_stride = 16,
                       .accumulate = true});
    });
    for (size_t i = 0; i < sum.values.size(); ++i)
      ASSERT_EQ(sum.values[i], before.values[i] + product.values[i]) << Name(c);
  }
}

TEST_P(MatmulTest, ColumnsPastTheEndOfTheMatrixAreZero) {
  for (const Case& c : AllCases()) {
    Packed packed = Pack(reference::RandomWeights(c.weights, 17, 256, 14));
    const Inputs x = RandomInputs(c.activations, 2, 256, 15);
    const Product product = Multiply(GetParam(), packed, x.view, 2);
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t n = 17; n < 32; ++n) ASSERT_EQ(product.at(row, n), 0) << Name(c);
  }
}

// Heads of 40 and 24 values, each padded to its own 32-blocks.
TEST_P(MatmulTest, PlainSegmentsOfAnyLengthArePaddedWithZeros) {
  const std::vector<Range> segments = {{3, 43}, {43, 67}, {100, 100}, {100, 164}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const WeightRows weights = reference::RandomWeights(dtype, 20, 200, 16);
    Packed packed = Pack(weights, segments);
    ASSERT_EQ(packed.num_blocks, 2 + 1 + 0 + 2);
    const auto values = reference::Uniform(200, 2, 17);
    AlignedBytes bytes(packed.num_blocks * kQuantBlock * 4);
    const Activations x = {ActivationFormat::kF32, bytes.data(), packed.num_blocks};
    int64_t block = 0;
    for (const Range& segment : segments) {
      StoreActivations(CpuKernelsFor(GetParam()), values.data() + segment.begin, segment.size(),
                       x.Slot(0, block));
      block += BlocksFor(segment.size());
    }
    const Product product = Multiply(GetParam(), packed, x, 1);
    for (int64_t n = 0; n < 20; ++n) {
      float expected = 0;  // the padding adds exact zeros
      for (const Range& segment : segments)
        for (int64_t k = segment.begin; k < segment.end; ++k)
          expected =
              std::fma(static_cast<float>(reference::WeightAt(dtype, weights.row(n), k).value()),
                       values[k], expected);
      ASSERT_EQ(product.at(0, n), expected) << Info(dtype).name << " column " << n;
    }
  }
}

// Types whose values have scales.
bool IsCutAt32(DType dtype) { return Info(dtype).quantised || dtype == DType::kF8E4M3; }

TEST_P(MatmulTest, SegmentsWithScalesAreCutAtBlocksOf32) {
  const std::vector<Range> apart = {{32, 96}, {224, 320}, {480, 512}};
  const std::vector<Range> in_a_row = {{224, 288}, {288, 288}, {288, 512}};
  for (const Case& c : AllCases()) {
    if (!IsCutAt32(c.weights)) continue;
    const std::vector<Range>& segments = CanPack(c.weights, apart) ? apart : in_a_row;
    ASSERT_TRUE(CanPack(c.weights, segments)) << Name(c);
    const WeightRows weights = reference::RandomWeights(c.weights, 16, 512, 18);
    Packed packed = Pack(weights, segments);
    const Inputs whole = RandomInputs(c.activations, 2, 512, 19);
    Inputs cut = {AlignedBytes(2 * Activations::RowBytes(c.activations, packed.num_blocks)), {}};
    cut.view = {c.activations, cut.bytes.data(), packed.num_blocks};
    const int64_t block_bytes = Activations::BlockBytes(c.activations);
    for (int64_t row = 0; row < 2; ++row) {
      int64_t block = 0;
      for (const Range& segment : segments) {
        const ActivationSlot to = cut.view.Slot(row, block);
        const ActivationSlot from = whole.view.Slot(row, segment.begin / kQuantBlock);
        const int64_t blocks = segment.size() / kQuantBlock;
        for (int term = 0; term < NumTerms(c.activations); ++term)
          std::memcpy(to.data + term * to.term_bytes, from.data + term * from.term_bytes,
                      blocks * block_bytes);
        block += blocks;
      }
    }
    const Product product = Multiply(GetParam(), packed, cut.view, 2);
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t n = 0; n < 16; ++n) {
        double expected = 0;
        for (const Range& segment : segments)
          for (int64_t k = segment.begin; k < segment.end; ++k)
            expected += reference::WeightAt(weights, n, k).value() *
                        reference::ActivationAt(whole.view, row, k);
        ASSERT_NEAR(product.at(row, n), expected, 1e-4 + 1e-5 * std::fabs(expected)) << Name(c);
      }
    }
  }
}

// A rank's part of a row may begin and end anywhere inside a block of 256.
TEST_P(MatmulTest, AnyCutOfARowKeepsTheBitsOfItsBlocks) {
  constexpr int64_t kK = 768, kNumBlocks = kK / kQuantBlock;
  for (const Case& c : AllCases()) {
    if (!IsCutAt32(c.weights)) continue;
    const WeightRows weights = reference::RandomWeights(c.weights, 16, kK, 32);
    const Inputs x = RandomInputs(c.activations, 3, kK, 33);
    for (int64_t begin = 0; begin < kNumBlocks; ++begin) {
      for (int64_t end = begin + 1; end <= kNumBlocks; end += 1 + (end - begin) / 2) {
        Packed packed = Pack(weights, {{begin * kQuantBlock, end * kQuantBlock}});
        Activations cut = x.view;
        cut.data += begin * Activations::BlockBytes(c.activations);
        const auto last = static_cast<int32_t>(end - begin);
        const std::vector<int32_t> leaf_begin = {0, last / 2, last};
        const Product product =
            Multiply(GetParam(), packed, cut, 1, {.begin = leaf_begin, .lo = 1, .hi = 2}, last / 2);
        for (int64_t n = 0; n < 16; ++n)
          ASSERT_EQ(product.at(0, n),
                    reference::SumBlocks(weights, n, x.view, 0, begin + last / 2, end))
              << Name(c) << " blocks " << begin << ".." << end;
      }
    }
  }
}

// Extremes of the integers: any 16-bit step that overflowed would show.
TEST_P(MatmulTest, TheLargestQuantsDoNotOverflow) {
  for (const DType dtype : kAllTypes) {
    if (!Info(dtype).quantised) continue;
    for (const int fill : {0x00, 0x7f, 0x80, 0xff}) {
      WeightRows weights = reference::RandomWeights(dtype, 16, 256, 20);
      const DTypeInfo& info = Info(dtype);
      for (size_t i = 0; i < weights.bytes.size(); ++i) {
        const size_t at = i % info.block_bytes;
        const bool scale = dtype == DType::kQ6_K ? at >= 208 : at < (HasMinimum(dtype) ? 4 : 2);
        if (!scale) weights.bytes[i] = static_cast<std::byte>(fill);
      }
      Packed packed = Pack(weights);
      for (const float value : {1.0f, -1.0f}) {
        const std::vector<float> values(256, value);
        AlignedBytes bytes(8 * sizeof(ActivationBlock));
        const Activations x = {ActivationFormat::kInt8, bytes.data(), 8};
        StoreActivations(CpuKernelsFor(GetParam()), values.data(), 256, x.Slot(0, 0));
        const Product product = Multiply(GetParam(), packed, x, 1);
        for (int64_t n = 0; n < 16; ++n)
          ASSERT_EQ(product.at(0, n), reference::SumBlocks(weights, n, x, 0, 0, 8))
              << info.name << " fill " << fill << " activation " << value;
      }
    }
  }
}

TEST_P(MatmulTest, EveryEightBitFloatMeetsTheScalesOfItsRowAndColumn) {
  // 130 rows and 320 columns: blocks of 128 that end early both ways.
  WeightRows weights = reference::RandomWeights(DType::kF8E4M3, 130, 320, 34);
  for (int code = 0; code < 256; ++code)
    if (code % 128 != 127) weights.bytes[code] = static_cast<std::byte>(code);
  Packed packed = Pack(weights);
  const Inputs x = RandomInputs(ActivationFormat::kF32, 7, 320, 35);
  const Product product = Multiply(GetParam(), packed, x.view, 7);
  for (int64_t row = 0; row < 7; ++row)
    for (int64_t n = 0; n < 130; ++n)
      ASSERT_EQ(product.at(row, n), reference::SumBlocks(weights, n, x.view, row, 0, 10))
          << "row " << row << " column " << n;
}

TEST_P(MatmulTest, AnEightBitNanReachesItsColumnAndNoOther) {
  for (const int code : {0x7f, 0xff}) {
    WeightRows weights = reference::RandomWeights(DType::kF8E4M3, 16, 256, 36);
    weights.bytes[5 * 256 + 200] = static_cast<std::byte>(code);
    Packed packed = Pack(weights);
    const Inputs x = RandomInputs(ActivationFormat::kF32, 3, 256, 37);
    const Product product = Multiply(GetParam(), packed, x.view, 3);
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t n = 0; n < 16; ++n) ASSERT_EQ(std::isnan(product.at(row, n)), n == 5) << code;
  }
}

// A broken layer must show as such at the end, not be rounded into plausible numbers.
TEST_P(MatmulTest, ANanOrInfinityInARowReachesAllOfItsOutputsAndNoOtherRow) {
  for (const Case& c : AllCases()) {
    Packed packed = Pack(reference::RandomWeights(c.weights, 16, 256, 21));
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Inputs x = RandomInputs(c.activations, 5, 256, 22);
      auto values = reference::Uniform(256, 2, 23);
      values[77] = bad;
      StoreActivations(CpuKernelsFor(GetParam()), values.data(), 256, x.view.Slot(2, 0));
      const Product product = Multiply(GetParam(), packed, x.view, 5);
      for (int64_t row = 0; row < 5; ++row)
        for (int64_t n = 0; n < 16; ++n)
          ASSERT_EQ(std::isfinite(product.at(row, n)), row != 2) << Name(c) << " row " << row;
    }
  }
}

TEST_P(MatmulTest, NothingToDoTouchesNothing) {
  Packed packed = Pack(reference::RandomWeights(DType::kQ4_1, 16, 32, 24));
  const Inputs x = RandomInputs(ActivationFormat::kInt8, 1, 32, 25);
  NewTeam(1, GetParam())->Run([&](const Context& context) {
    Matmul(context, {.weights = packed.All(), .x = x.view, .num_rows = 0});
    Matmul(context, {.weights = packed.Tiles({0, 0}), .x = x.view, .num_rows = 1});
  });
}

TEST(PackTileTest, PackedWeightsAreNoLargerThanTheFile) {
  for (const DType dtype : kAllTypes) {
    int64_t limit = RowBytes(dtype, 256) * kTileRows;
    const int64_t packed = PackedTileBytes(dtype, 8);
    // Q6_K repeats one f16 for every 32 values instead of every 256.
    if (dtype == DType::kQ6_K) limit += 7 * 2 * kTileRows;
    // Scales and minimums of 8 bits, not 6, and the table's opening and last line.
    if (HasScaleTable(dtype)) limit += 8 * kTileRows / 2 + 2 * kTableLineBytes;
    // A scale for every 32 values.
    if (dtype == DType::kF8E4M3) limit += 8 * kTileRows * 4;
    EXPECT_LE(packed, limit) << Info(dtype).name;
  }
}

TEST(MatmulDeathTest, BugsOfTheCallerEndTheProcess) {
  Packed plain = Pack(reference::RandomWeights(DType::kF16, 16, 64, 26));
  const Inputs int8 = RandomInputs(ActivationFormat::kInt8, 1, 64, 27);
  EXPECT_DEATH(Multiply(Isa::kAvx2, plain, int8.view, 1), "F16 weights with integer activations");
  const Inputs f32 = RandomInputs(ActivationFormat::kF32, 1, 64, 28);
  EXPECT_DEATH(Multiply(Isa::kAvx2, plain, f32.view, 1, {}, 1), "blocks end at 3");
  const std::vector<int32_t> begin = {0, 1, 2};
  EXPECT_DEATH(Multiply(Isa::kAvx2, plain, f32.view, 1, {.begin = begin, .lo = 1, .hi = 3}),
               "1..3 of 3");
  EXPECT_DEATH(Multiply(Isa::kAvx2, plain, f32.view, 1, {.begin = begin, .lo = 1, .hi = 1}),
               "1..1 of 3");
}

TEST(PackTileDeathTest, AQuantisedSegmentThatStartsInsideABlockIsABug) {
  const WeightRows weights = reference::RandomWeights(DType::kQ4_0, 16, 64, 29);
  EXPECT_DEATH(Pack(weights, {{16, 64}}), "CHECK failed");
}

TEST(PackTileTest, WhatCannotBePackedIsKnownBefore) {
  const std::vector<Range> inside = {{16, 64}}, apart = {{0, 32}, {64, 96}}, all = {{32, 96}};
  for (const DType dtype : kAllTypes) {
    const bool shares_scales = dtype == DType::kQ4_K || dtype == DType::kQ5_K;
    EXPECT_EQ(CanPack(dtype, inside), !IsCutAt32(dtype)) << Info(dtype).name;
    EXPECT_EQ(CanPack(dtype, apart), !shares_scales) << Info(dtype).name;
    EXPECT_TRUE(CanPack(dtype, all) && CanPack(dtype, {})) << Info(dtype).name;
  }
}

}  // namespace
}  // namespace cairn
