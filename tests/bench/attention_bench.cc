// Flash attention against plain attention, which materialises the scores, as a Markdown table.
//
//   attention_bench [--threads N] [--heads H] [--kv-heads K] [--head-dim D] [--max-tokens T]
//
// One causal prefill of T tokens, float32 keys and values. The plain one is what a framework does
// without a fused kernel: S = Q K^T of the whole context, softmax of its rows, then S V, each a
// vectorised pass. Extra memory is what the heap grows by beside queries, keys, values and output;
// flash attention allocates its scratch before the first call and nothing in a call. Errors are
// against double, over some 40 rows.
#include <malloc.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "base/log.h"
#include "tests/kernels/attention_pool.h"
#include "tests/kernels/attention_reference.h"

namespace cairn {
namespace {

constexpr int kRepeats = 3;

struct BenchOptions {
  AttentionShape shape = {9, 3, 64};
  int num_threads = 2;
  int max_tokens = 8192;
};

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double HeapMib() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / (1 << 20);
}

// Keys as [K][D][T], values as [K][T][D]: the layout that suits plain passes best.
struct PlainInput {
  PlainInput(const AttentionTokens& tokens)
      : keys(tokens.keys.size()), values(tokens.values.size()) {
    const auto& [heads, kv_heads, dim, latent_dim] = tokens.shape;
    const int64_t n = tokens.num_tokens;
    for (int64_t t = 0; t < n; ++t) {
      for (int h = 0; h < kv_heads; ++h) {
        for (int d = 0; d < dim; ++d) {
          const auto from = static_cast<size_t>((t * kv_heads + h) * dim + d);
          keys[static_cast<size_t>((h * int64_t{dim} + d) * n + t)] = tokens.keys[from];
          values[static_cast<size_t>((h * n + t) * dim + d)] = tokens.values[from];
        }
      }
    }
  }
  std::vector<float> keys, values;
};

// Adds factor * x to y, n floats.
void AddScaled(float factor, const float* x, int64_t n, float* y) {
  const __m256 f = _mm256_set1_ps(factor);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(y + i, _mm256_fmadd_ps(f, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
  for (; i < n; ++i) y[i] += factor * x[i];
}

// scores is [H][T][T]: all of it lives at once, as in the passes of a framework.
void PlainAttention(const Context& context, const AttentionTokens& tokens, const PlainInput& input,
                    float* scores, float* out) {
  const auto& [heads, kv_heads, dim, latent_dim] = tokens.shape;
  const int64_t n = tokens.num_tokens;
  const Range rows = context.Share(heads * n);
  const auto for_rows = [&](auto body) {
    for (int64_t i = rows.begin; i < rows.end; ++i)
      body(static_cast<int>(i / n), i % n, scores + i * n, i % n + 1);
  };
  for_rows([&](int h, int64_t t, float* row, int64_t seen) {
    const float* keys = input.keys.data() + h / (heads / kv_heads) * int64_t{dim} * n;
    const float* query = tokens.queries.data() + (t * heads + h) * dim;
    std::fill(row, row + seen, 0.0f);
    for (int d = 0; d < dim; ++d) AddScaled(query[d], keys + d * n, seen, row);
  });
  for_rows([&](int, int64_t, float* row, int64_t seen) {
    const float max = *std::max_element(row, row + seen);
    float sum = 0;
    for (int64_t j = 0; j < seen; ++j) sum += row[j] = std::exp(row[j] - max);
    const float inverse = 1 / sum;
    for (int64_t j = 0; j < seen; ++j) row[j] *= inverse;
  });
  for_rows([&](int h, int64_t t, float* row, int64_t seen) {
    const float* values = input.values.data() + h / (heads / kv_heads) * n * dim;
    float* to = out + (t * heads + h) * dim;
    std::fill(to, to + dim, 0.0f);
    for (int64_t j = 0; j < seen; ++j) AddScaled(row[j], values + j * dim, dim, to);
  });
}

struct Measured {
  double seconds = 0;
  double error = 0;
  double extra_mib = 0;
};

template <class Work>
double MedianSeconds(const Work& work) {
  double times[kRepeats];
  for (double& seconds : times) {
    const double start = Seconds();
    work();
    seconds = Seconds() - start;
  }
  std::sort(times, times + kRepeats);
  return times[kRepeats / 2];
}

// row_floats: between rows of `out`; a head is head_floats of it.
double WorstError(const AttentionTokens& tokens, const float* out, int64_t row_floats,
                  int64_t head_floats) {
  const auto& [heads, kv_heads, dim, latent_dim] = tokens.shape;
  double worst = 0;
  for (int t = 0; t < tokens.num_tokens; t += 1 + tokens.num_tokens / 40) {
    const std::vector<double> want =
        ReferenceAttention({.queries = tokens.queries.data() + int64_t{t} * heads * dim,
                            .keys = tokens.keys.data(),
                            .values = tokens.values.data(),
                            .end_token = t + 1,
                            .num_heads = heads,
                            .num_kv_heads = kv_heads,
                            .head_dim = dim,
                            .value_dim = dim});
    for (int h = 0; h < heads; ++h)
      for (int d = 0; d < dim; ++d)
        worst = std::max(worst,
                         std::abs(static_cast<double>(out[t * row_floats + h * head_floats + d]) -
                                  want[static_cast<size_t>(h * dim + d)]));
  }
  return worst;
}

Measured MeasureFlash(ThreadTeam& team, const AttentionTokens& tokens) {
  const auto& [heads, kv_heads, dim, latent_dim] = tokens.shape;
  const int64_t n = tokens.num_tokens;
  AttentionPool pool(tokens.shape, DType::kF32, 16, tokens.num_tokens / 16 + 1);
  std::vector<int32_t> table;
  pool.Append(tokens, 0, tokens.num_tokens, &table);
  const AttentionSequence sequence = {.block_table = table.data(), .num_rows = tokens.num_tokens};
  Activations activations = {.num_blocks = heads * BlocksFor(dim)};
  std::vector<float> out(static_cast<size_t>(n * activations.row_bytes()) / sizeof(float));
  activations.data = reinterpret_cast<std::byte*>(out.data());

  const double before_mib = HeapMib();
  const std::unique_ptr<AttentionScratch> scratch =
      AttentionScratch::Create({.num_threads = team.num_threads(),
                                .max_rows = n,
                                .max_sequences = 1,
                                .max_context = n,
                                .num_heads = heads,
                                .num_kv_heads = kv_heads,
                                .head_dim = dim});
  const AttentionPlan plan =
      PlanAttention({&sequence, 1}, pool.layer().block_tokens, kv_heads, team.num_threads());
  const AttentionArgs args = {.kv = pool.layer(),
                              .queries = tokens.queries.data(),
                              .query_stride = int64_t{heads} * dim,
                              .num_heads = heads,
                              .head_dim = dim,
                              .plan = &plan,
                              .out = activations};
  Measured result;
  result.seconds = MedianSeconds(
      [&] { team.Run([&](const Context& context) { PagedAttention(context, args, *scratch); }); });
  result.extra_mib = HeapMib() - before_mib;
  result.error = WorstError(tokens, out.data(), activations.row_bytes() / int64_t{sizeof(float)},
                            BlocksFor(dim) * kQuantBlock);
  return result;
}

Measured MeasurePlain(ThreadTeam& team, const AttentionTokens& tokens) {
  const auto& [heads, kv_heads, dim, latent_dim] = tokens.shape;
  const int64_t n = tokens.num_tokens;
  const PlainInput input(tokens);
  std::vector<float> out(static_cast<size_t>(n * heads * dim));
  const double before_mib = HeapMib();
  std::vector<float> scores(static_cast<size_t>(heads * n * n));
  Measured result;
  result.seconds = MedianSeconds([&] {
    team.Run([&](const Context& context) {
      PlainAttention(context, tokens, input, scores.data(), out.data());
    });
  });
  result.extra_mib = HeapMib() - before_mib;
  result.error = WorstError(tokens, out.data(), int64_t{heads} * dim, dim);
  return result;
}

int Run(const BenchOptions& options) {
  const auto isa = ChooseIsa("auto");
  CHECK(isa.ok());
  const auto team = ThreadTeam::Create({.num_threads = options.num_threads, .isa = *isa});
  CHECK(team.ok());
  const auto& [heads, kv_heads, dim, latent_dim] = options.shape;
  std::printf("%d query heads, %d KV heads, head size %d, %d threads, %s, f32, median of %d\n\n",
              heads, kv_heads, dim, options.num_threads, std::string(IsaName(*isa)).c_str(),
              kRepeats);
  std::printf(
      "| tokens | flash ms | plain ms | plain / flash | flash GFLOP/s | flash extra MiB "
      "| plain extra MiB | flash error | plain error |\n|---|---|---|---|---|---|---|---|---|\n");
  for (int n = 512; n <= options.max_tokens; n *= 2) {
    const AttentionTokens tokens = AttentionTokens::Random(options.shape, n, DType::kF32, 1);
    const Measured flash = MeasureFlash(**team, tokens);
    const Measured plain = MeasurePlain(**team, tokens);
    const double flops = 2.0 * heads * dim * n * (n + 1.0);
    std::printf("| %d | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1e | %.1e |\n", n,
                flash.seconds * 1e3, plain.seconds * 1e3, plain.seconds / flash.seconds,
                flops / flash.seconds / 1e9, flash.extra_mib, plain.extra_mib, flash.error,
                plain.error);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::BenchOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    int number = 0;
    std::from_chars(value.data(), value.data() + value.size(), number);
    if (name == "--threads") options.num_threads = number;
    if (name == "--heads") options.shape.num_heads = number;
    if (name == "--kv-heads") options.shape.num_kv_heads = number;
    if (name == "--head-dim") options.shape.head_dim = number;
    if (name == "--max-tokens") options.max_tokens = number;
  }
  return cairn::Run(options);
}
