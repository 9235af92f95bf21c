// Rates of the kernels, one thread. The matrix product by weight type, activation format and number
// of rows: GB/s of packed weights and GFLOP/s, so that each line shows its share of what the
// machine can do, in one sweep over matrices larger than the caches together. Attention by
// sequences, rows of each and tokens of context.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/memory.h"
#include "base/memory_bandwidth.h"
#include "benchmark/benchmark.h"
#include "kernels/context.h"
#include "kernels/cpu_kernels.h"
#include "kernels/matmul.h"
#include "kernels/packed_block.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/attention_pool.h"

namespace cairn {
namespace {

constexpr int64_t kColumns = 1536, kDepth = 1536;  // of one matrix
constexpr int64_t kSweepBytes = int64_t{64} << 20;

// As the runtime holds weights: aligned, in huge pages.
HostBuffer RandomBytes(int64_t n) {
  absl::StatusOr<HostBuffer> bytes = HostBuffer::Allocate(n, "weights");
  CHECK_OK(bytes.status());
  std::mt19937_64 random(1);
  for (int64_t i = 0; i + 8 <= n; i += 8) {
    // Neither NaNs nor infinities in any type.
    const uint64_t word = random() & 0x3bff3bff3bff3bffu;
    std::memcpy(bytes->data() + i, &word, 8);
  }
  return *std::move(bytes);
}

// Makes tiles of what a type cannot have at random: a tile with a table says first where in a
// super-block it begins, and products with tiny float32 scales would be denormal.
void PrepareTiles(DType dtype, std::byte* weights, int64_t num_tiles, int64_t num_blocks) {
  const int64_t tile_bytes = PackedTileBytes(dtype, num_blocks);
  for (int64_t tile = 0; tile < num_tiles; ++tile, weights += tile_bytes) {
    if (HasScaleTable(dtype)) std::memset(weights, 0, kTableLineBytes);
    if (dtype != DType::kF8E4M3) continue;
    for (int64_t block = 0; block < num_blocks; ++block) {
      auto* scales =
          reinterpret_cast<float*>(weights + block * PackedBlockBytes(dtype) + ScalesAt(dtype));
      std::fill_n(scales, kTileRows, 0.01f);
    }
  }
}

Isa BestIsa() { return *ChooseIsa("auto"); }

void Product(benchmark::State& state, DType dtype, ActivationFormat format, Isa isa) {
  const int64_t num_rows = state.range(0), num_blocks = BlocksFor(kDepth);
  const int64_t matrix_bytes = PackedTileBytes(dtype, num_blocks) * (kColumns / kTileRows);
  const int64_t num_matrices = num_rows >= 64 ? 1 : kSweepBytes / matrix_bytes + 1;
  static HostBuffer weights;
  if (weights.size_bytes() < num_matrices * matrix_bytes)
    weights = RandomBytes(num_matrices * matrix_bytes);
  PrepareTiles(dtype, weights.data(), num_matrices * (kColumns / kTileRows), num_blocks);
  std::vector<float> values(num_rows * kDepth, 0.5f), out(num_rows * kColumns);
  std::vector<std::byte> bytes(num_rows * Activations::RowBytes(format, num_blocks));
  const Activations x = {format, bytes.data(), num_blocks};
  for (int64_t row = 0; row < num_rows; ++row)
    StoreActivations(CpuKernelsFor(isa), values.data() + row * kDepth, kDepth, x.Slot(row, 0));
  auto team = ThreadTeam::Create({.num_threads = 1, .isa = isa});
  CHECK_OK(team.status());
  int64_t matrix = 0;
  (*team)->Run([&](const Context& context) {
    for (auto _ : state) {
      Matmul(context, {.weights = {.dtype = dtype,
                                   .data = weights.data() + matrix * matrix_bytes,
                                   .num_tiles = kColumns / kTileRows,
                                   .num_blocks = num_blocks},
                       .x = x,
                       .num_rows = num_rows,
                       .out = out.data(),
                       .out_stride = kColumns});
      matrix = (matrix + 1) % num_matrices;
    }
  });
  const auto count = static_cast<double>(state.iterations());
  const auto rate = benchmark::Counter::kIsRate;
  state.counters["GB/s"] = {count * static_cast<double>(matrix_bytes) / 1e9, rate};
  state.counters["GFLOP/s"] = {count * 2e-9 * kColumns * kDepth * static_cast<double>(num_rows),
                               rate};
}

void Norm(benchmark::State& state, Isa isa) {
  const int64_t dim = state.range(0);
  const std::vector<float> x(dim, 0.5f), weight(dim, 1.0f);
  std::vector<ActivationBlock> out(BlocksFor(dim));
  auto team = ThreadTeam::Create({.num_threads = 1, .isa = isa});
  CHECK_OK(team.status());
  (*team)->Run([&](const Context& context) {
    for (auto _ : state)
      RmsNorm(context,
              {.x = x.data(),
               .weight = weight.data(),
               .dim = dim,
               .eps = 1e-5f,
               .out_quantised = {ActivationFormat::kInt8, reinterpret_cast<std::byte*>(out.data()),
                                 BlocksFor(dim)}},
              {0, 1});
  });
  state.counters["GB/s"] = {static_cast<double>(state.iterations() * dim * 8) / 1e9,
                            benchmark::Counter::kIsRate};
}

// What one thread reads from memory, in bytes a second.
double ReadBandwidth() {
  static const absl::StatusOr<double> bandwidth = MeasureReadBandwidth(1);
  CHECK_OK(bandwidth.status());
  return *bandwidth;
}

// `state.range(0)` sequences of `state.range(1)` rows each over one context of `state.range(2)`
// tokens that they share. Beside the arithmetic: the bytes of a layer's context, each read once for
// all heads that share it, and which share of the memory's bandwidth it is to read them so fast.
void Attention(benchmark::State& state, const AttentionShape& shape, DType dtype, Isa isa) {
  const auto num_sequences = state.range(0), num_rows = state.range(1);
  const auto num_tokens = static_cast<int>(state.range(2));
  const AttentionTokens tokens = AttentionTokens::Random(shape, num_tokens, dtype, 1);
  AttentionPool pool(shape, dtype, 32, num_tokens / 32);
  std::vector<int32_t> table;
  pool.Append(tokens, 0, num_tokens, &table);
  std::vector<AttentionSequence> sequences;
  for (int64_t i = 0; i < num_sequences; ++i)
    sequences.push_back({.block_table = table.data(),
                         .first_row = i * num_rows,
                         .first_position = static_cast<int32_t>(num_tokens - num_rows),
                         .num_rows = static_cast<int32_t>(num_rows)});
  const int64_t total_rows = num_sequences * num_rows;
  Activations out = {.format = ActivationFormat::kF32,
                     .num_blocks = shape.num_heads * BlocksFor(shape.value_dim())};
  std::vector<std::byte> bytes(total_rows * out.row_bytes() + 64);
  out.data = bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
  const AttentionPlan plan =
      PlanAttention(sequences, pool.layer().block_tokens, shape.num_kv_heads, 1);
  const AttentionArgs args = {.kv = pool.layer(),
                              .queries = tokens.queries.data(),
                              .query_stride = int64_t{shape.num_heads} * shape.head_dim,
                              .num_heads = shape.num_heads,
                              .head_dim = shape.head_dim,
                              .value_dim = shape.latent_value_dim,
                              .plan = &plan,
                              .out = out};
  const auto scratch = AttentionScratch::Create({.num_threads = 1,
                                                 .max_rows = total_rows,
                                                 .max_sequences = num_sequences,
                                                 .max_context = num_tokens,
                                                 .num_heads = shape.num_heads,
                                                 .num_kv_heads = shape.num_kv_heads,
                                                 .head_dim = shape.head_dim,
                                                 .value_dim = shape.value_dim(),
                                                 .layout = pool.layer().layout});
  auto team = ThreadTeam::Create({.num_threads = 1, .isa = isa});
  CHECK_OK(team.status());
  (*team)->Run([&](const Context& context) {
    for (auto _ : state) PagedAttention(context, args, *scratch);
  });
  const auto count = static_cast<double>(state.iterations());
  const auto rate = benchmark::Counter::kIsRate;
  const double elements =
      shape.latent_value_dim > 0 ? 1 : 2;  // a token leaves, for each head's dim
  const double kv_bytes =
      elements * shape.num_kv_heads * shape.head_dim * Info(dtype).block_bytes * num_tokens;
  state.counters["GFLOP/s"] = {count * 2e-9 * static_cast<double>(total_rows) * shape.num_heads *
                                   (shape.head_dim + shape.value_dim()) * num_tokens,
                               rate};
  state.counters["MB"] = kv_bytes / 1e6;
  state.counters["GB/s"] = {count * kv_bytes / 1e9, rate};
  state.counters["of memory"] = {count * kv_bytes / ReadBandwidth(), rate};
}

void SyncOfAllThreads(benchmark::State& state) {
  auto team = ThreadTeam::Create({.num_threads = static_cast<int>(state.range(0))});
  CHECK_OK(team.status());
  constexpr int kSyncs = 1000;
  for (auto _ : state) {
    (*team)->Run([](const Context& context) {
      for (int i = 0; i < kSyncs; ++i) context.Sync();
    });
  }
  state.counters["s/Sync"] = {static_cast<double>(state.iterations()) * kSyncs,
                              benchmark::Counter::kIsRate | benchmark::Counter::kInvert};
}

void Register() {
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    for (const auto format :
         {ActivationFormat::kInt8, ActivationFormat::kInt16, ActivationFormat::kF32}) {
      if (format != ActivationFormatFor(dtype, format)) continue;
      std::vector<Isa> isas = {Isa::kAvx2};
      if (BestIsa() != Isa::kAvx2) isas.push_back(BestIsa());
      for (const Isa isa : isas) {
        const std::string name = std::string("matmul/") + std::string(IsaName(isa)) + "/" +
                                 std::string(Info(dtype).name) + "/" +
                                 std::string(ActivationName(format));
        benchmark::RegisterBenchmark(name.c_str(), Product, dtype, format, isa)
            ->Arg(1)
            ->Arg(2)
            ->Arg(4)
            ->Arg(16)
            ->Arg(128);
      }
    }
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string name = "attention/" + std::string(Info(dtype).name);
    constexpr AttentionShape kGrouped = {.num_heads = 9, .num_kv_heads = 3, .head_dim = 64};
    benchmark::RegisterBenchmark(name.c_str(), Attention, kGrouped, dtype, BestIsa())
        ->Args({1, 1, 4096})
        ->Args({1, 4, 4096})
        ->Args({4, 1, 4096})
        ->Args({4, 4, 4096})
        ->Args({16, 1, 4096})
        ->Args({1, 16, 4096});
  }
  // Latent attention of DeepSeek's shape: the heads of a rank that holds all of V2-Lite's, or an
  // eighth of V3's, and all of V3's. Each reads a token's one vector of 512 + 64 elements.
  for (const int heads : {16, 128}) {
    const AttentionShape latent = {
        .num_heads = heads, .num_kv_heads = 1, .head_dim = 576, .latent_value_dim = 512};
    const std::string name = "latent_attention/F16/heads:" + std::to_string(heads);
    benchmark::RegisterBenchmark(name.c_str(), Attention, latent, DType::kF16, BestIsa())
        ->Args({1, 1, 4096})
        ->Args({1, 1, 32768})
        ->Args({1, 16, 4096});
  }
  benchmark::RegisterBenchmark("rms_norm", Norm, BestIsa())->Arg(576)->Arg(4096);
  benchmark::RegisterBenchmark("sync", SyncOfAllThreads)->Arg(2)->Arg(4)->UseRealTime();
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
