// Whole models of each weight type against a model of the same values in float32: with float32
// activations every bit is the same, on any number of ranks, though cuts fall inside the blocks
// that share scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "kernels/dequantise.h"
#include "tests/kernels/reference.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/safetensors_writer.h"
#include "tests/worker/model_runner.h"
#include "tests/worker/random_model.h"

namespace cairn {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;
using testing::RunRequest;
using testing::RunResult;
using testing::SafetensorsModel;

// A llama of one layer: its heads and slices of 32 are cut among three ranks inside blocks of 128
// and 256 values.
constexpr int kModelDim = 256, kHeads = 8, kKvHeads = 4, kHeadDim = 32, kFfnDim = 768, kVocab = 64;

struct Matrix {
  const char* gguf_name;
  const char* json_name;
  int rows, columns;
};
constexpr Matrix kMatrices[] = {
    {"token_embd.weight", "model.embed_tokens.weight", kVocab, kModelDim},
    {"output.weight", "lm_head.weight", kVocab, kModelDim},
    {"blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", kHeads* kHeadDim, kModelDim},
    {"blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", kKvHeads* kHeadDim,
     kModelDim},
    {"blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", kKvHeads* kHeadDim,
     kModelDim},
    {"blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight", kModelDim,
     kHeads* kHeadDim},
    {"blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight", kFfnDim, kModelDim},
    {"blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight", kFfnDim, kModelDim},
    {"blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight", kModelDim, kFfnDim},
};
constexpr const char* kGgufNorms[] = {"output_norm.weight", "blk.0.attn_norm.weight",
                                      "blk.0.ffn_norm.weight"};
constexpr const char* kJsonNorms[] = {"model.norm.weight", "model.layers.0.input_layernorm.weight",
                                      "model.layers.0.post_attention_layernorm.weight"};

reference::WeightRows Weights(DType dtype, int index) {
  return reference::RandomWeights(dtype, kMatrices[index].rows, kMatrices[index].columns,
                                  static_cast<uint32_t>(index));
}

// The values of all rows, row after row.
std::vector<std::byte> Floats(const reference::WeightRows& weights) {
  std::vector<float> values(weights.num_rows * weights.k);
  for (int64_t row = 0; row < weights.num_rows; ++row) {
    float* out = values.data() + row * weights.k;
    DequantiseRow(weights.dtype, weights.row(row), weights.k, out);
    if (!weights.scales.empty()) ScaleFloat8Row(weights.row_scales(row), weights.k, out);
  }
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The model of this type in GGUF, or of the same values as float32.
GgufWriter GgufModel(DType dtype, uint32_t type_number, bool as_floats) {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddUint32("llama.block_count", 1);
  writer.AddUint32("llama.context_length", 64);
  writer.AddUint32("llama.embedding_length", kModelDim);
  writer.AddUint32("llama.feed_forward_length", kFfnDim);
  writer.AddUint32("llama.attention.head_count", kHeads);
  writer.AddUint32("llama.attention.head_count_kv", kKvHeads);
  writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddString("tokenizer.ggml.model", "none");
  for (const char* name : kGgufNorms) writer.AddFloats(name, {kModelDim}, 1);
  for (int i = 0; i < static_cast<int>(std::size(kMatrices)); ++i) {
    const Matrix& matrix = kMatrices[i];
    const reference::WeightRows weights = Weights(dtype, i);
    writer.AddTensor(matrix.gguf_name,
                     {static_cast<uint64_t>(matrix.rows), static_cast<uint64_t>(matrix.columns)},
                     as_floats ? 0 : type_number, as_floats ? Floats(weights) : weights.bytes);
  }
  return writer;
}

// The model in 8-bit floats with scales, or of the same values as float32.
void WriteFloat8Model(TemporaryFolder* folder, bool as_floats, float factor_of_scales = 1) {
  nlohmann::json config = {
      {"model_type", "llama"},           {"architectures", {"LlamaForCausalLM"}},
      {"num_hidden_layers", 1},          {"hidden_size", kModelDim},
      {"intermediate_size", kFfnDim},    {"num_attention_heads", kHeads},
      {"num_key_value_heads", kKvHeads}, {"vocab_size", kVocab},
      {"max_position_embeddings", 64},   {"rms_norm_eps", 1e-5}};
  if (!as_floats) {
    config["quantization_config"] = {
        {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}};
  }
  folder->Write("config.json", std::string_view(config.dump()));
  SafetensorsModel model;
  for (const char* name : kJsonNorms) {
    const std::vector<float> ones(kModelDim, 1.0f);
    model.Add(name, "F32", {kModelDim}, std::as_bytes(std::span(ones)));
  }
  for (int i = 0; i < static_cast<int>(std::size(kMatrices)); ++i) {
    const Matrix& matrix = kMatrices[i];
    reference::WeightRows weights = Weights(DType::kF8E4M3, i);
    const std::vector<int64_t> shape = {matrix.rows, matrix.columns};
    if (as_floats) {
      model.Add(matrix.json_name, "F32", shape, Floats(weights));
      continue;
    }
    for (float& scale : weights.scales) scale *= factor_of_scales;
    model.Add(matrix.json_name, "F8_E4M3", shape, weights.bytes);
    model.Add(absl::StrCat(matrix.json_name, "_scale_inv"), "F32",
              {(matrix.rows + 127) / 128, (matrix.columns + 127) / 128},
              std::as_bytes(std::span(weights.scales)));
  }
  folder->Write("model.safetensors", model.File());
}

// Digests of the logits of all positions.
std::map<int32_t, std::string> LogitsOf(const std::string& path, int size,
                                        const std::string& activations = "f32") {
  RunnerOptions options = {.size = size};
  options.numerics.activations = activations;
  options.numerics.kv_dtype = "f32";
  auto runner = ModelRunner::Start(path, options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  if (!runner.ok()) return {};
  RunRequest request;
  for (int i = 0; i < 9; ++i) request.prompt.push_back(7 * i % kVocab);
  request.max_tokens = 4;
  const RunResult result = (*runner)->Run(request);
  EXPECT_TRUE(result.error.ok()) << result.error;
  EXPECT_GE(result.digests.size(), 9u);
  return result.digests;
}

TEST(WeightTypesTest, AModelOfAnyGgufTypeHasTheBitsOfItsValuesOnAnyNumberOfRanks) {
  struct Case {
    DType dtype;
    uint32_t number;  // in GGUF
  };
  TemporaryFolder folder;
  for (const Case& c : {Case{DType::kQ4_0, 2}, Case{DType::kQ4_1, 3}, Case{DType::kQ5_0, 6},
                        Case{DType::kQ5_1, 7}, Case{DType::kQ8_0, 8}, Case{DType::kQ4_K, 12},
                        Case{DType::kQ5_K, 13}, Case{DType::kQ6_K, 14}}) {
    const std::string floats =
        folder.Write("floats.gguf", GgufModel(c.dtype, c.number, true).File());
    const std::string quantised =
        folder.Write("quantised.gguf", GgufModel(c.dtype, c.number, false).File());
    const auto expected = LogitsOf(floats, 1);
    const auto int8 = LogitsOf(quantised, 1, "int8"), int16 = LogitsOf(quantised, 1, "int16");
    for (int size = 1; size <= 4; ++size) {
      EXPECT_EQ(LogitsOf(quantised, size), expected) << Info(c.dtype).name << " ranks " << size;
      EXPECT_EQ(LogitsOf(quantised, size, "int8"), int8) << Info(c.dtype).name << " ranks " << size;
      EXPECT_EQ(LogitsOf(quantised, size, "int16"), int16)
          << Info(c.dtype).name << " ranks " << size;
    }
    EXPECT_NE(int8, expected) << Info(c.dtype).name;
    EXPECT_NE(int16, expected) << Info(c.dtype).name;
    EXPECT_NE(int16, int8) << Info(c.dtype).name;
  }
}

TEST(WeightTypesTest, EightBitFloatsHaveTheBitsOfTheirScaledValuesOnAnyNumberOfRanks) {
  TemporaryFolder floats, float8;
  WriteFloat8Model(&floats, true);
  WriteFloat8Model(&float8, false);
  const auto expected = LogitsOf(floats.path(), 1);
  for (int size = 1; size <= 4; ++size) EXPECT_EQ(LogitsOf(float8.path(), size), expected) << size;
}

TEST(WeightTypesTest, ScalesOfEightBitFloatsThatAreNotFiniteAreRefusedByName) {
  for (const float factor : {NAN, INFINITY}) {
    TemporaryFolder folder;
    WriteFloat8Model(&folder, false, factor);
    const absl::Status status = ModelRunner::Start(folder.path(), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("_scale_inv has a value that is not finite: index=0"),
              std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace cairn
