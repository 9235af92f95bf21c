// Fast numerics with expanded keys and values: as close to the golden data as absorbed attention,
// and no more than a few rows stay absorbed. With quantised weights, as close as absorbed attention
// to a model of the same values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/kernels/reference.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/safetensors_writer.h"
#include "tests/worker/golden_model.h"
#include "tests/worker/model_runner.h"

namespace cairn {
namespace {

using testing::GoldenModel;
using testing::ModelRunner;
using testing::RunnerOptions;
using testing::RunRequest;
using testing::RunResult;

// family, checkpoint inside its folder, ranks
using Case = std::tuple<std::string, std::string, int>;

class ExpandedAttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(golden_.Open(std::get<0>(GetParam()), std::get<1>(GetParam())));
  }

  // All prompts together, so that short and long ones share steps.
  std::vector<RunResult> RunAll(int max_step_tokens) {
    RunnerOptions options = {
        .size = std::get<2>(GetParam()), .num_threads = 2, .max_step_tokens = max_step_tokens};
    options.numerics.exact = false;
    auto runner = ModelRunner::Start(golden_.path(), options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    if (!runner.ok()) return {};
    std::vector<RunRequest> requests;
    for (const char* prompt : kPrompts) {
      requests.emplace_back();
      requests.back().prompt = golden_.ids(prompt);
      requests.back().keep_logits = true;
    }
    return (*runner)->Run(requests);
  }

  static constexpr const char* kPrompts[] = {"p300", "p7", "p64", "p1"};
  GoldenModel golden_;
};

TEST_P(ExpandedAttentionTest, LogitsAreWithinTheToleranceOfTheGoldenData) {
  for (const int max_step_tokens : {512, 100}) {
    const std::vector<RunResult> fast = RunAll(max_step_tokens);
    ASSERT_EQ(fast.size(), std::size(kPrompts));
    for (size_t i = 0; i < fast.size(); ++i)
      EXPECT_LE(golden_.WorstError(fast[i], kPrompts[i]), golden_.tolerance())
          << kPrompts[i] << " in steps of " << max_step_tokens;
  }
}

TEST_P(ExpandedAttentionTest, OnlyRunsOfManyRowsAreExpanded) {
  const std::vector<RunResult> whole = RunAll(512), in_small_steps = RunAll(16);
  ASSERT_EQ(whole.size(), in_small_steps.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool is_long = std::string(kPrompts[i]) == "p300" || std::string(kPrompts[i]) == "p64";
    EXPECT_EQ(whole[i].digests == in_small_steps[i].digests, !is_long) << kPrompts[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, ExpandedAttentionTest,
    ::testing::Values(Case{"deepseek_v2", "f32", 1}, Case{"deepseek_v2", "bf16", 4},
                      Case{"deepseek_v2_lite", "f32", 2}, Case{"deepseek_v2_lite", "model.gguf", 1},
                      Case{"deepseek_v3", "f32", 1}, Case{"deepseek_v3", "model.gguf", 3}),
    [](const auto& test) {
      std::string name = std::get<0>(test.param) + "_" + std::get<1>(test.param) + "_tp" +
                         std::to_string(std::get<2>(test.param));
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

// Two layers whose matrices are Q8_0: from the key back to the latent vector as files hold it, and
// so the other way as float32.
GgufWriter QuantisedModel() {
  constexpr int kDim = 64, kHeads = 2, kNope = 32, kRope = 16, kLatent = 64, kValue = 32;
  constexpr int kVocab = 64, kFfn = 64;
  GgufWriter writer;
  writer.AddString("general.architecture", "deepseek2");
  writer.AddString("tokenizer.ggml.model", "none");
  writer.AddFloat32("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
  const std::pair<const char*, uint32_t> sizes[] = {
      {"block_count", 2},
      {"context_length", 256},
      {"embedding_length", kDim},
      {"feed_forward_length", kFfn},
      {"attention.head_count", kHeads},
      {"attention.head_count_kv", 1},
      {"attention.kv_lora_rank", kLatent},
      {"attention.key_length", kLatent + kRope},
      {"attention.value_length", kLatent},
      {"attention.key_length_mla", kNope + kRope},
      {"attention.value_length_mla", kValue},
      {"rope.dimension_count", kRope},
  };
  for (const auto& [key, value] : sizes) writer.AddUint32(std::string("deepseek2.") + key, value);
  uint32_t seed = 0;
  const auto add_matrix = [&](const std::string& name, std::vector<uint64_t> shape) {
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= static_cast<int64_t>(shape[i]);
    const auto columns = static_cast<int64_t>(shape.back());
    constexpr uint32_t kQ8Number = 8;
    writer.AddTensor(name, std::move(shape), kQ8Number,
                     reference::RandomWeights(DType::kQ8_0, rows, columns, ++seed).bytes);
  };
  // Small enough that no score outweighs all others.
  const auto add_norm = [&](const std::string& name, uint64_t dim, float value) {
    const std::vector<float> values(dim, value);
    const auto bytes = std::as_bytes(std::span(values));
    writer.AddTensor(name, {dim}, 0, {bytes.begin(), bytes.end()});
  };
  add_matrix("token_embd.weight", {kVocab, kDim});
  add_matrix("output.weight", {kVocab, kDim});
  add_norm("output_norm.weight", kDim, 0.1f);
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string name = layer;
    add_norm(name + "attn_norm.weight", kDim, 0.1f);
    add_matrix(name + "attn_q.weight", {kHeads * (kNope + kRope), kDim});
    add_matrix(name + "attn_kv_a_mqa.weight", {kLatent + kRope, kDim});
    add_norm(name + "attn_kv_a_norm.weight", kLatent, 0.3f);
    add_matrix(name + "attn_k_b.weight", {kHeads, kLatent, kNope});
    add_matrix(name + "attn_v_b.weight", {kHeads, kValue, kLatent});
    add_matrix(name + "attn_output.weight", {kDim, kHeads * kValue});
    add_norm(name + "ffn_norm.weight", kDim, 0.1f);
    add_matrix(name + "ffn_gate.weight", {kFfn, kDim});
    add_matrix(name + "ffn_up.weight", {kFfn, kDim});
    add_matrix(name + "ffn_down.weight", {kDim, kFfn});
  }
  return writer;
}

// Logits of one prompt that is long enough to be expanded.
std::vector<float> LogitsOf(const std::string& path, bool exact, const std::string& activations) {
  RunnerOptions options = {.num_threads = 2};
  options.numerics.exact = exact;
  options.numerics.activations = activations;
  options.numerics.kv_dtype = "f32";
  auto runner = ModelRunner::Start(path, options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  if (!runner.ok()) return {};
  RunRequest request;
  for (int i = 0; i < 150; ++i) request.prompt.push_back(i * i * 7 % 61);
  request.keep_logits = true;
  std::vector<float> all;
  for (const auto& [position, logits] : (*runner)->Run(request).logits)
    all.insert(all.end(), logits.begin(), logits.end());
  return all;
}

double RmsDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST(ExpandedAttentionOfQuantisedWeights, IsAsCloseAsAbsorbedAttention) {
  TemporaryFolder folder;
  const std::string path = folder.Write("model.gguf", QuantisedModel().File());
  const std::vector<float> reference = LogitsOf(path, true, "f32");
  const std::vector<float> zeros(reference.size());
  const double size = RmsDifference(reference, zeros);
  const std::vector<float> expanded = LogitsOf(path, false, "f32");
  EXPECT_NE(expanded, reference);  // other bits: it was expanded
  EXPECT_LE(RmsDifference(expanded, reference), 1e-5 * size);

  const auto error = [&](bool exact, const std::string& activations) {
    return RmsDifference(LogitsOf(path, exact, activations), reference) / size;
  };
  for (const char* activations : {"int8", "int16"}) {
    const double absorbed_error = error(true, activations);
    EXPECT_GT(absorbed_error, 0);
    EXPECT_LE(error(false, activations), 1.5 * absorbed_error) << activations;
  }
}

}  // namespace
}  // namespace cairn
