#include "kernels/latent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "golden_tensors.h"
#include "gtest/gtest.h"
#include "machine.h"
#include "reference.h"
#include "tests/kernels/attention_pool.h"

namespace cairn {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Latent vectors of one layer, every byte 0xff (a NaN in every type) until written.
struct LatentPool {
  KvLayer kv;
  std::vector<std::byte> bytes;

  LatentPool(DType dtype, int block_tokens, int width, int num_blocks) {
    kv = {.layout = KvLayout::kLatent,
          .dtype = dtype,
          .block_tokens = block_tokens,
          .head_dim = (width + 15) / 16 * 16,
          .num_kv_heads = 1};
    kv.block_stride = kv.block_bytes();
    kv.head_stride = kv.block_stride * num_blocks;
    bytes.assign(static_cast<size_t>(kv.head_stride), std::byte{0xff});
    kv.base = bytes.data();
  }
  float At(int32_t block, int slot, int d) const {
    const std::byte* extent = kv.keys(0, block);
    const int64_t element = int64_t{slot} * kv.head_dim + d;
    return static_cast<float>(
        reference::WeightAt(kv.dtype, extent + element * Info(kv.dtype).block_bytes, 0).value());
  }
};

std::vector<float> AnglesOf(const std::vector<int32_t>& positions, int rope_dim, double theta) {
  std::vector<double> frequencies(static_cast<size_t>(rope_dim) / 2);
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rope_dim);
  std::vector<float> angles(positions.size() * static_cast<size_t>(rope_dim));
  RopeAngles(positions.data(), frequencies.data(), rope_dim / 2, 1,
             {0, static_cast<int64_t>(positions.size())}, angles.data());
  return angles;
}

// x [T][columns] times weights [rows][columns], turned round: [T][rows].
std::vector<float> Product(const std::vector<float>& x, const std::vector<float>& weights,
                           size_t columns) {
  std::vector<float> out;
  for (size_t t = 0; t < x.size() / columns; ++t) {
    for (size_t row = 0; row < weights.size() / columns; ++row) {
      double sum = 0;
      for (size_t k = 0; k < columns; ++k)
        sum += static_cast<double>(x[t * columns + k]) *
               static_cast<double>(weights[row * columns + k]);
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

std::vector<float> NormedRows(const std::vector<float>& x, const std::vector<float>& weight,
                              float eps) {
  std::vector<float> out;
  const auto width = static_cast<int64_t>(weight.size());
  for (size_t first = 0; first < x.size(); first += weight.size()) {
    const auto row = reference::RmsNorm(x.data() + first, weight.data(), width, eps);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

double WorstDifference(const std::vector<float>& a, const std::vector<float>& b, double scale = 1) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double error = std::fabs(static_cast<double>(a[i]) - scale * static_cast<double>(b[i]));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

class LatentTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, LatentTest, testing::ValuesIn(IsasOfThisMachine()), IsaTestName);

// The layer of golden data: what it leaves in the cache, and what it makes of that.
struct GoldenLayer {
  GoldenLayer(const GoldenTensors& of, std::string case_name)
      : golden(of), name(std::move(case_name)) {
    const auto& c = golden.cases()[name];
    num_rows = c["T"];
    heads = c["heads"];
    nope_dim = c["nope"];
    rope_dim = c["rope"];
    latent_dim = c["kv_lora_rank"];
    value_dim = c["v_head"];
    eps = c["eps"];
    scale = c["scale"];
    tolerance = c["tol_abs"];
    for (int t = 0; t < num_rows; ++t) positions.push_back(t);
    for (int t = 0; t < num_rows; ++t) blocks.push_back(t < 16 ? 2 : 0);
    angles = AnglesOf(positions, rope_dim, c["theta"]);
  }
  std::vector<float> Values(const char* what) const { return golden.Values(name + "." + what); }
  std::vector<float> Queries() const {
    const std::vector<float> x = Values("x");
    const auto model_dim = x.size() / num_rows;
    if (golden.cases()[name]["q_lora_rank"] == 0) return Product(x, Values("w.q"), model_dim);
    const std::vector<float> norm = Values("w.q_a_norm");
    return Product(NormedRows(Product(x, Values("w.q_a"), model_dim), norm, eps), Values("w.q_b"),
                   norm.size());
  }
  // w.kv_b is [heads][nope_dim + value_dim][latent_dim].
  float KvUp(int head, int row, int d) const {
    return kv_up[(static_cast<size_t>(head) * (nope_dim + value_dim) + row) * latent_dim + d];
  }

  const GoldenTensors& golden;
  const std::string name;
  int num_rows, heads, nope_dim, rope_dim, latent_dim, value_dim;
  float eps, scale;
  double tolerance;
  std::vector<int32_t> positions, blocks;
  std::vector<float> angles;
  const std::vector<float> kv_up = Values("w.kv_b");
};

// [T][heads][latent_dim + rope_dim], the product with the up projection of keys by plain loops.
std::vector<float> AbsorbedQueries(Isa isa, const GoldenLayer& layer) {
  std::vector<float> queries = layer.Queries();
  const int width = layer.latent_dim + layer.rope_dim;
  const int64_t head_blocks = BlocksFor(layer.nope_dim);
  std::vector<float> absorbed(static_cast<size_t>(layer.num_rows) * layer.heads * width, kNan);
  std::vector<float> nope(layer.num_rows * layer.heads * head_blocks * kQuantBlock, kNan);
  NewTeam(2, isa)->Run([&](const Context& context) {
    LatentQueries(context,
                  {.queries = queries.data(),
                   .query_stride = int64_t{layer.heads} * (layer.nope_dim + layer.rope_dim),
                   .num_heads = layer.heads,
                   .nope_dim = layer.nope_dim,
                   .rope_dim = layer.rope_dim,
                   .latent_dim = layer.latent_dim,
                   .scale = layer.scale,
                   .angles = layer.angles.data(),
                   .nope = {ActivationFormat::kF32, reinterpret_cast<std::byte*>(nope.data()),
                            head_blocks * layer.heads},
                   .absorbed = absorbed.data(),
                   .absorbed_stride = int64_t{layer.heads} * width,
                   .num_rows = layer.num_rows});
  });
  for (int unit = 0; unit < layer.num_rows * layer.heads; ++unit) {
    for (int d = 0; d < layer.latent_dim; ++d) {
      double sum = 0;
      for (int k = 0; k < layer.nope_dim; ++k)
        sum += static_cast<double>(nope[unit * head_blocks * kQuantBlock + k]) *
               static_cast<double>(layer.KvUp(unit % layer.heads, k, d));
      absorbed[static_cast<size_t>(unit) * width + d] = static_cast<float>(sum);
    }
  }
  return absorbed;
}

TEST_P(LatentTest, MeetsGoldenDataOfAnotherEngine) {
  const GoldenTensors golden("techniques/mla");
  ASSERT_TRUE(golden.ok());
  ASSERT_EQ(golden.cases().size(), 2);
  for (const auto& [name, parameters] : golden.cases().items()) {
    SCOPED_TRACE(name);
    const GoldenLayer layer(golden, name);
    const int latent_dim = layer.latent_dim, width = latent_dim + layer.rope_dim;
    std::vector<float> latents = Product(layer.Values("x"), layer.Values("w.kv_a"),
                                         layer.Values("x").size() / layer.num_rows);
    const std::vector<float> norm = layer.Values("w.kv_a_norm");
    LatentPool pool(DType::kF32, 16, width, 3);
    NewTeam(2, GetParam())->Run([&](const Context& context) {
      LatentAppend(context, {.kv = pool.kv,
                             .latents = latents.data(),
                             .stride = width,
                             .latent_dim = latent_dim,
                             .rope_dim = layer.rope_dim,
                             .norm = norm.data(),
                             .norm_eps = layer.eps,
                             .angles = layer.angles.data(),
                             .positions = layer.positions.data(),
                             .blocks = layer.blocks.data(),
                             .num_rows = layer.num_rows});
    });
    std::vector<float> cached, turned;
    for (int t = 0; t < layer.num_rows; ++t)
      for (int d = 0; d < width; ++d)
        (d < latent_dim ? cached : turned).push_back(pool.At(layer.blocks[t], t % 16, d));
    EXPECT_LE(WorstDifference(cached, layer.Values("latent")), layer.tolerance);
    EXPECT_LE(WorstDifference(turned, layer.Values("k_rope")), layer.tolerance);

    AttentionTokens tokens = {.shape = {layer.heads, 1, width, latent_dim},
                              .num_tokens = layer.num_rows};
    tokens.queries = AbsorbedQueries(GetParam(), layer);
    std::vector<float> absorbed;
    for (size_t i = 0; i < tokens.queries.size(); ++i)
      if (static_cast<int>(i % width) < latent_dim) absorbed.push_back(tokens.queries[i]);
    EXPECT_LE(WorstDifference(absorbed, layer.Values("q_absorbed"), layer.scale), layer.tolerance);

    pool.kv.value_dim = latent_dim;
    const std::vector<int32_t> table = {2, 0};
    const auto rows =
        Attend(pool.kv, std::vector{AttentionRows{&tokens, &table, 0, layer.num_rows}},
               {.isa = GetParam(), .num_threads = 2});
    std::vector<float> latent_out, heads;
    for (const OutputRow& row : rows) {
      const auto* out = reinterpret_cast<const float*>(row.data());
      for (int h = 0; h < layer.heads; ++h, out += BlocksFor(latent_dim) * kQuantBlock) {
        latent_out.insert(latent_out.end(), out, out + latent_dim);
        for (int v = 0; v < layer.value_dim; ++v) {
          double sum = 0;
          for (int d = 0; d < latent_dim; ++d)
            sum += static_cast<double>(out[d]) *
                   static_cast<double>(layer.KvUp(h, layer.nope_dim + v, d));
          heads.push_back(static_cast<float>(sum));
        }
      }
    }
    EXPECT_LE(WorstDifference(latent_out, layer.Values("latent_out")), layer.tolerance);
    EXPECT_LE(WorstDifference(heads, layer.Values("heads")), layer.tolerance);
    const auto head_dims = static_cast<size_t>(layer.heads) * layer.value_dim;
    EXPECT_LE(WorstDifference(Product(heads, layer.Values("w.o"), head_dims), layer.Values("out")),
              layer.tolerance);
  }
}

// Rows of a step at arbitrary positions, each in a block of its own.
struct Append {
  int latent_dim = 16, rope_dim = 6;
  RopePairs pairs = RopePairs::kInterleaved;
  std::vector<int32_t> positions = {0, 5, 31, 32, 700}, blocks = {3, 1, 4, 0, 6};
  std::vector<float> latents, norm, angles;

  Append(int latent, int rope, RopePairs of) : latent_dim(latent), rope_dim(rope), pairs(of) {
    latents = reference::Uniform(stride() * 5, 2, 5);
    norm = reference::Uniform(latent_dim, 2, 6);
    angles = AnglesOf(positions, rope_dim, 1e4);
  }
  int64_t stride() const { return latent_dim + rope_dim + 3; }
  int width() const { return latent_dim + rope_dim; }

  void Run(Isa isa, int threads, const KvLayer& kv) const {
    std::vector<float> changed = latents;
    NewTeam(threads, isa)->Run([&](const Context& context) {
      LatentAppend(context, {.kv = kv,
                             .latents = changed.data(),
                             .stride = stride(),
                             .latent_dim = latent_dim,
                             .rope_dim = rope_dim,
                             .norm = norm.data(),
                             .norm_eps = 1e-6f,
                             .pairs = pairs,
                             .angles = angles.data(),
                             .positions = positions.data(),
                             .blocks = blocks.data(),
                             .num_rows = std::ssize(positions)});
    });
  }
};

TEST_P(LatentTest, StoresRoundedRowsPaddedWithZerosAndTouchesNothingElse) {
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalfSplit}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int block_tokens : {16, 64, 256}) {
        const Append append(block_tokens == 64 ? 512 : 16, block_tokens == 64 ? 64 : 6, pairs);
        LatentPool pool(dtype, block_tokens, append.width(), 7);
        append.Run(GetParam(), 1, pool.kv);
        for (size_t row = 0; row < append.positions.size(); ++row) {
          const float* from = append.latents.data() + static_cast<int64_t>(row) * append.stride();
          std::vector<float> want =
              reference::RmsNorm(from, append.norm.data(), append.latent_dim, 1e-6f);
          want.insert(want.end(), from + append.latent_dim, from + append.width());
          reference::Rotate(append.angles.data() + row * append.rope_dim, append.rope_dim,
                            pairs == RopePairs::kInterleaved, want.data() + append.latent_dim);
          want.resize(static_cast<size_t>(pool.kv.head_dim));
          for (int d = 0; d < pool.kv.head_dim; ++d)
            ASSERT_EQ(pool.At(append.blocks[row], append.positions[row] % block_tokens, d),
                      RoundedTo(dtype, want[d]))
                << Info(dtype).name << " row " << row << " element " << d;
        }
        const auto element_bytes = static_cast<size_t>(Info(dtype).block_bytes);
        int64_t written = 0;
        const std::vector<std::byte> untouched(element_bytes, std::byte{0xff});
        for (size_t i = 0; i < pool.bytes.size(); i += element_bytes)
          written += std::memcmp(pool.bytes.data() + i, untouched.data(), element_bytes) != 0;
        EXPECT_EQ(written, std::ssize(append.positions) * pool.kv.head_dim);
      }
    }
  }
}

TEST_P(LatentTest, ThreadsChangeNoBit) {
  const Append append(48, 8, RopePairs::kInterleaved);
  LatentPool alone(DType::kBF16, 16, append.width(), 7);
  append.Run(GetParam(), 1, alone.kv);
  for (const int threads : {2, 3}) {
    LatentPool together(DType::kBF16, 16, append.width(), 7);
    append.Run(GetParam(), threads, together.kv);
    EXPECT_EQ(together.bytes, alone.bytes);
  }
}

TEST_P(LatentTest, QueriesAreTurnedScaledAndEachHeadQuantisedAlone) {
  constexpr int kRows = 3, kHeads = 4, kNope = 40, kRope = 6, kLatent = 16;
  constexpr int kStride = kHeads * (kNope + kRope) + 7, kOutStride = kHeads * (kLatent + kRope) + 5;
  for (const ActivationFormat format :
       {ActivationFormat::kF32, ActivationFormat::kInt8, ActivationFormat::kInt16}) {
    const std::vector<float> angles = AnglesOf({4, 9, 100}, kRope, 1e4);
    const std::vector<float> before = reference::Uniform(kRows * kStride, 3, 8);
    std::vector<float> queries = before, absorbed(kRows * kOutStride, 77);
    const auto block_bytes = static_cast<size_t>(Activations::BlockBytes(format));
    std::vector<float> bytes(kRows * Activations::RowBytes(format, 2 * kHeads) / sizeof(float));
    const Activations nope = {format, reinterpret_cast<std::byte*>(bytes.data()), 2 * kHeads};
    NewTeam(2, GetParam())->Run([&](const Context& context) {
      LatentQueries(context, {.queries = queries.data(),
                              .query_stride = kStride,
                              .num_heads = kHeads,
                              .nope_dim = kNope,
                              .rope_dim = kRope,
                              .latent_dim = kLatent,
                              .scale = 0.375f,
                              .angles = angles.data(),
                              .nope = nope,
                              .absorbed = absorbed.data(),
                              .absorbed_stride = kOutStride,
                              .num_rows = kRows});
    });
    for (int row = 0; row < kRows; ++row) {
      for (int head = 0; head < kHeads; ++head) {
        float want[2 * kQuantBlock] = {};
        const float* query = before.data() + row * kStride + head * (kNope + kRope);
        for (int d = 0; d < kNope; ++d) want[d] = query[d] * 0.375f;
        for (int b = 0; b < 2; ++b) {
          float* values = want + b * kQuantBlock;
          const ActivationSlot got = nope.Slot(row, head * 2 + b);
          const ActivationBlock first = reference::Quantise(values);
          const void* block =
              format == ActivationFormat::kF32 ? static_cast<void*>(values) : &first;
          EXPECT_EQ(std::memcmp(got.data, block, block_bytes), 0) << row << " " << head << " " << b;
          if (format != ActivationFormat::kInt16) continue;
          const ActivationBlock second = reference::QuantiseRest(values, first);
          EXPECT_EQ(std::memcmp(got.data + got.term_bytes, &second, block_bytes), 0) << row;
        }
        std::vector<float> turned(query + kNope, query + kNope + kRope);
        reference::Rotate(angles.data() + row * kRope, kRope, true, turned.data());
        const float* out = absorbed.data() + row * kOutStride + head * (kLatent + kRope);
        for (int d = 0; d < kLatent; ++d) ASSERT_EQ(out[d], 77);  // the product's to write
        for (int d = 0; d < kRope; ++d) ASSERT_EQ(out[kLatent + d], turned[d] * 0.375f);
      }
      for (int d = kHeads * (kLatent + kRope); d < kOutStride; ++d)
        ASSERT_EQ(absorbed[row * kOutStride + d], 77);
    }
  }
}

TEST(LatentDeathTest, BugsOfTheCallerEndTheProcess) {
  const Append append(16, 6, RopePairs::kInterleaved);
  LatentPool pool(DType::kF16, 16, append.width(), 7);
  KvLayer wrong = pool.kv;
  wrong.layout = KvLayout::kKeysAndValues;
  EXPECT_DEATH(append.Run(Isa::kAvx2, 1, wrong), "CHECK failed");
  wrong = pool.kv;
  wrong.head_dim = 16;
  EXPECT_DEATH(append.Run(Isa::kAvx2, 1, wrong), "CHECK failed");
  wrong = pool.kv;
  wrong.dtype = DType::kQ8_0;
  EXPECT_DEATH(append.Run(Isa::kAvx2, 1, wrong), "Q8_0");
}

}  // namespace
}  // namespace cairn
