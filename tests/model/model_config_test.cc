#include "model/model_config.h"

#include <cmath>
#include <cstring>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model/json_text.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/safetensors_writer.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct LoadedModel {
  std::unique_ptr<Checkpoint> checkpoint;
  ModelConfig config;
};

LoadedModel Load(const std::string& path) {
  LoadedModel model;
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  if (!checkpoint.ok()) return model;
  model.checkpoint = *std::move(checkpoint);
  absl::StatusOr<ModelConfig> config = LoadModelConfig(*model.checkpoint);
  EXPECT_TRUE(config.ok()) << config.status();
  if (config.ok()) model.config = *std::move(config);
  return model;
}

std::string GoldenPath(const std::string& name) {
  return absl::StrCat(CAIRN_TEST_DATA, "/golden/models/", name);
}

// ------------------------------------------------------------------------------------- golden

struct GoldenCase {
  const char* path;
  int num_layers, num_heads, num_kv_heads, head_dim, ffn_dim;
  RotaryPairs pairs;
  int64_t num_weights;
};

class GoldenConfigTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenConfigTest, IsReadAndEveryWeightHasItsShape) {
  const GoldenCase& golden = GetParam();
  const LoadedModel model = Load(GoldenPath(golden.path));
  const ModelConfig& config = model.config;
  EXPECT_EQ(config.num_layers, golden.num_layers);
  EXPECT_EQ(config.model_dim, 64);
  EXPECT_EQ(config.num_heads, golden.num_heads);
  EXPECT_EQ(config.num_kv_heads, golden.num_kv_heads);
  EXPECT_EQ(config.head_dim, golden.head_dim);
  EXPECT_EQ(config.ffn_dim, golden.ffn_dim);
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_EQ(config.context_length, 1024);
  EXPECT_FLOAT_EQ(static_cast<float>(config.norm_eps), 1e-5f);
  EXPECT_EQ(config.ropes[0].pairs, golden.pairs);
  EXPECT_EQ(config.ropes[0].rotary_dim, golden.head_dim);
  EXPECT_DOUBLE_EQ(config.attention_scale, 1 / std::sqrt(golden.head_dim));
  EXPECT_EQ(config.gate, FfnGate::kSilu);
  EXPECT_FALSE(config.tied_output);
  EXPECT_FALSE(config.qkv_bias);
  const absl::StatusOr<int64_t> count = ValidateWeights(*model.checkpoint, config);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, golden.num_weights);
}

INSTANTIATE_TEST_SUITE_P(
    Models, GoldenConfigTest,
    ::testing::Values(
        GoldenCase{"llama/f32", 3, 9, 3, 16, 128, RotaryPairs::kHalfSplit, 30},
        GoldenCase{"llama/bf16", 3, 9, 3, 16, 128, RotaryPairs::kHalfSplit, 30},
        GoldenCase{"llama/model.gguf", 3, 9, 3, 16, 128, RotaryPairs::kInterleaved, 30},
        GoldenCase{"llama3_rope/f32", 2, 4, 2, 32, 160, RotaryPairs::kHalfSplit, 21},
        GoldenCase{"llama3_rope/bf16", 2, 4, 2, 32, 160, RotaryPairs::kHalfSplit, 21},
        GoldenCase{"llama3_rope/model.gguf", 2, 4, 2, 32, 160, RotaryPairs::kInterleaved, 21}));

TEST(GoldenConfigTest, BothFormatsGiveTheSameFrequencies) {
  for (const char* const family : {"llama", "llama3_rope"}) {
    const LoadedModel json = Load(GoldenPath(absl::StrCat(family, "/bf16")));
    const LoadedModel gguf = Load(GoldenPath(absl::StrCat(family, "/model.gguf")));
    const std::vector<double>& expected = json.config.ropes[0].inverse_frequency;
    const std::vector<double>& actual = gguf.config.ropes[0].inverse_frequency;
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      // GGUF has the base and the factors in float32.
      EXPECT_NEAR(actual[i], expected[i], 2e-7 * expected[i]) << family << " " << i;
    }
  }
}

TEST(GoldenConfigTest, FrequenciesFollowThePublishedRule) {
  const LoadedModel plain = Load(GoldenPath("llama/f32"));
  const LoadedModel scaled = Load(GoldenPath("llama3_rope/f32"));
  for (int i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(plain.config.ropes[0].inverse_frequency[i], std::pow(10000.0, -i / 8.0));
  }
  // Wavelengths below 64/4 tokens stay, those above 64/1 are eight times as long.
  const std::vector<double>& frequency = scaled.config.ropes[0].inverse_frequency;
  EXPECT_DOUBLE_EQ(frequency[0], 1.0);
  EXPECT_DOUBLE_EQ(frequency[15], std::pow(500000.0, -15 / 16.0) / 8);
  const double between = std::pow(500000.0, -2 / 16.0);  // wavelength 32.4
  const double smooth = (64 * between / (2 * M_PI) - 1) / 3;
  EXPECT_DOUBLE_EQ(frequency[2], (1 - smooth) * between / 8 + smooth * between);
}

float AsFloat(const Tensor& tensor, int64_t index) {
  if (tensor.dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, tensor.data.data() + index * 4, sizeof(value));
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, tensor.data.data() + index * 2, sizeof(half));
  const uint32_t bits = uint32_t{half} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Row of the interleaved order that the half-split row is in: pair i of a head is (2i, 2i+1) there.
int64_t InterleavedRow(int64_t row, int head_dim) {
  const int64_t in_head = row % head_dim;
  const int64_t half = head_dim / 2;
  return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

TEST(GoldenConfigTest, BothFormatsHoldTheSameWeightsByRole) {
  for (const char* const family : {"llama", "llama3_rope"}) {
    const LoadedModel json = Load(GoldenPath(absl::StrCat(family, "/bf16")));
    const LoadedModel gguf = Load(GoldenPath(absl::StrCat(family, "/model.gguf")));
    for (int r = 0; r < kNumWeightRoles; ++r) {
      const auto role = static_cast<WeightRole>(r);
      if (!HasWeight(json.config, role, 0)) continue;
      const bool permuted = role == WeightRole::kQuery || role == WeightRole::kKey;
      for (int layer = 0; layer < (IsLayerWeight(role) ? json.config.num_layers : 1); ++layer) {
        const auto expected = FindWeight(*json.checkpoint, json.config, role, layer);
        const auto actual = FindWeight(*gguf.checkpoint, gguf.config, role, layer);
        ASSERT_TRUE(expected.ok()) << expected.status();
        ASSERT_TRUE(actual.ok()) << actual.status();
        const int64_t columns = (*expected)->shape.back();
        int64_t differences = 0;
        for (int64_t i = 0; i < (*expected)->num_elements; ++i) {
          const int64_t row = i / columns;
          const int64_t other = permuted ? InterleavedRow(row, json.config.head_dim) : row;
          differences += AsFloat(**expected, i) != AsFloat(**actual, other * columns + i % columns);
        }
        EXPECT_EQ(differences, 0) << (*actual)->name;
      }
    }
  }
}

TEST(GoldenConfigTest, ReadsTheRealModelIfItIsThere) {
  const std::string path = absl::StrCat(CAIRN_MODEL_CACHE, "/smollm2-135m-instruct-q4_1.gguf");
  if (!MappedFile::Open(path).ok()) GTEST_SKIP() << "no model at " << path;
  const LoadedModel model = Load(path);
  EXPECT_EQ(model.config.num_heads, 9);
  EXPECT_EQ(model.config.num_kv_heads, 3);
  EXPECT_EQ(model.config.head_dim, 64);
  EXPECT_EQ(model.config.vocab_size, 49152);
  EXPECT_TRUE(model.config.tied_output);
  EXPECT_EQ(model.config.bos_id, 1);
  EXPECT_THAT(model.config.eos_ids, ElementsAre(2));
  EXPECT_EQ(model.config.add_bos, false);
  EXPECT_EQ(*ValidateWeights(*model.checkpoint, model.config), 272);
}

// ---------------------------------------------------------------------------------- GGUF errors

absl::Status LoadTiny(const GgufWriter& writer) {
  TemporaryFolder folder;
  const auto checkpoint = Checkpoint::Open(folder.Write("tiny.gguf", writer.File()));
  if (!checkpoint.ok()) return checkpoint.status();
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(**checkpoint);
  if (!config.ok()) return config.status();
  return ValidateWeights(**checkpoint, *config).status();
}

std::string Message(const absl::Status& status) {
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  return std::string(status.message());
}

TEST(ModelConfigTest, LoadsTheTinyModel) { EXPECT_TRUE(LoadTiny(TinyModel()).ok()); }

TEST(ModelConfigTest, RefusesAnUnknownArchitectureNamingTheKnown) {
  GgufWriter writer;
  writer.AddString("general.architecture", "mamba9");
  writer.AddFloats("x", {1});
  const absl::Status status = LoadTiny(writer);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("mamba9"), HasSubstr("llama")));
  GgufWriter silent;
  silent.AddFloats("x", {1});
  EXPECT_THAT(Message(LoadTiny(silent)), HasSubstr("general.architecture is missing"));
}

TEST(ModelConfigTest, RefusesAMissingWeightByName) {
  for (const char* const name :
       {"output_norm.weight", "blk.0.attn_k.weight", "token_embd.weight"}) {
    GgufWriter writer = TinyModel();
    std::erase_if(writer.tensors, [&](const auto& tensor) { return tensor.name == name; });
    EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr(absl::StrCat("tensor ", name, " is missing")));
  }
}

TEST(ModelConfigTest, RefusesAWeightOfAnotherShapeNamingBoth) {
  GgufWriter writer = TinyModel();
  writer.tensor("blk.0.attn_k.weight").dims = {8, 16};  // turned round
  EXPECT_THAT(Message(LoadTiny(writer)),
              AllOf(HasSubstr("blk.0.attn_k.weight"), HasSubstr("expected=[8, 16]"),
                    HasSubstr("actual=[16, 8]")));
  writer = TinyModel();
  writer.tensor("blk.0.ffn_norm.weight").dims = {0};
  writer.tensor("blk.0.ffn_norm.weight").data.clear();
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("actual=[0]"));
}

TEST(ModelConfigTest, RefusesAWeightThatTheGraphHasNoPlaceFor) {
  GgufWriter writer = TinyModel();
  writer.AddFloats("blk.0.attn_output.bias", {16});
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("blk.0.attn_output.bias has no place"));
  writer = TinyModel();
  writer.AddFloats("blk.1.attn_norm.weight", {16});
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("blk.1.attn_norm.weight"));
}

TEST(ModelConfigTest, RefusesATypeWithoutKernelsByName) {
  GgufWriter writer = TinyModel();
  writer.tensor("blk.0.attn_q.weight").type = 26;
  const absl::Status status = LoadTiny(writer);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("blk.0.attn_q.weight"), HasSubstr("I32")));
}

TEST(ModelConfigTest, TakesBiasesOfQueriesKeysAndValuesTogether) {
  GgufWriter writer = TinyModel();
  writer.AddFloats("blk.0.attn_q.bias", {16});
  writer.AddFloats("blk.0.attn_k.bias", {8});
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("blk.0.attn_v.bias is missing"));
  writer.AddFloats("blk.0.attn_v.bias", {8});
  EXPECT_TRUE(LoadTiny(writer).ok()) << LoadTiny(writer);
}

TEST(ModelConfigTest, UsesTheEmbeddingWhereThereIsNoOutput) {
  GgufWriter writer = TinyModel();
  std::erase_if(writer.tensors, [](const auto& tensor) { return tensor.name == "output.weight"; });
  TemporaryFolder folder;
  const LoadedModel model = Load(folder.Write("tied.gguf", writer.File()));
  EXPECT_TRUE(model.config.tied_output);
  EXPECT_FALSE(HasWeight(model.config, WeightRole::kOutput, 0));
  EXPECT_TRUE(ValidateWeights(*model.checkpoint, model.config).ok());
}

GgufWriter TinyModelWithout(const std::string& key) {
  const GgufWriter whole = TinyModel();
  GgufWriter writer;
  writer.tensors = whole.tensors;
  const std::pair<const char*, uint32_t> numbers[] = {
      {"llama.block_count", 1},          {"llama.context_length", 64},
      {"llama.embedding_length", 16},    {"llama.feed_forward_length", 24},
      {"llama.attention.head_count", 2}, {"llama.attention.head_count_kv", 1}};
  writer.AddString("general.architecture", "llama");
  for (const auto& [name, value] : numbers) {
    if (name != key) writer.AddUint32(name, value);
  }
  if (key != "llama.attention.layer_norm_rms_epsilon") {
    writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  }
  return writer;
}

TEST(ModelConfigTest, RefusesEveryHyperParameterThatIsMissing) {
  for (const char* const key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon"}) {
    EXPECT_THAT(Message(LoadTiny(TinyModelWithout(key))),
                HasSubstr(absl::StrCat(key, " is missing")));
  }
}

TEST(ModelConfigTest, RefusesHyperParametersOutOfRangeOrOfAnotherType) {
  for (const char* const key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.attention.key_length", "llama.rope.dimension_count", "llama.vocab_size"}) {
    const auto with = [&](auto add) {
      GgufWriter writer = TinyModelWithout(key);
      add(writer);
      return Message(LoadTiny(writer));
    };
    EXPECT_THAT(with([&](GgufWriter& w) { w.AddUint32(key, 0); }), HasSubstr(key));
    EXPECT_THAT(with([&](GgufWriter& w) { w.AddUint32(key, ~0u); }), HasSubstr(key));
    EXPECT_THAT(with([&](GgufWriter& w) { w.AddScalar<int32_t>(key, 5, -1); }), HasSubstr(key));
    EXPECT_THAT(with([&](GgufWriter& w) { w.AddScalar<uint64_t>(key, 10, ~uint64_t{0}); }),
                HasSubstr(key));
    EXPECT_THAT(with([&](GgufWriter& w) { w.AddString(key, "2"); }), HasSubstr(key));
    EXPECT_THAT(with([&](GgufWriter& w) { w.AddFloat32(key, 2); }), HasSubstr(key));
  }
}

TEST(ModelConfigTest, RefusesNumbersThatAreNoneOrInfinite) {
  const float nan = std::nanf("");
  for (const float value : {nan, INFINITY, -1.0f, 0.0f}) {
    for (const char* const key :
         {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"}) {
      GgufWriter writer = TinyModelWithout(key);
      writer.AddFloat32(key, value);
      EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr(key));
    }
  }
  for (const float value : {nan, INFINITY, -1.0f}) {
    GgufWriter writer = TinyModel();
    writer.AddFloat32("llama.rope.scaling.factor", value);
    EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("llama.rope.scaling.factor"));
  }
}

TEST(ModelConfigTest, RefusesHeadsThatDoNotDivide) {
  GgufWriter writer = TinyModelWithout("llama.attention.head_count");
  writer.AddUint32("llama.attention.head_count", 3);
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("heads=3"));
  writer = TinyModelWithout("llama.attention.head_count_kv");
  writer.AddUint32("llama.attention.head_count_kv", 4);
  EXPECT_THAT(Message(LoadTiny(writer)),
              AllOf(HasSubstr("llama.attention.head_count_kv"), HasSubstr("query_heads=2"),
                    HasSubstr("kv_heads=4")));
  writer = TinyModel();
  writer.AddUint32("llama.rope.dimension_count", 7);
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("rotary_dim=7"));
  writer = TinyModel();
  writer.AddUint32("llama.attention.value_length", 4);
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("value_length=4"));
}

TEST(ModelConfigTest, RefusesSettingsThatTheGraphDoesNotHave) {
  GgufWriter writer = TinyModel();
  writer.AddFloat32("llama.attention.clamp_kqv", 8);
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("llama.attention.clamp_kqv=8"));
  writer = TinyModel();
  writer.AddString("llama.rope.scaling.type", "longrope");
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("longrope"));
  writer = TinyModelWithout("llama.attention.head_count_kv");
  writer.AddArray<uint32_t>("llama.attention.head_count_kv", 4, {1, 2});
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("llama.attention.head_count_kv differs"));
  writer = TinyModelWithout("llama.attention.head_count_kv");
  writer.AddArray<uint32_t>("llama.attention.head_count_kv", 4, {1, 1});
  EXPECT_TRUE(LoadTiny(writer).ok());
}

TEST(ModelConfigTest, RefusesRopeFactorsOfAnotherShapeOrSign) {
  GgufWriter writer = TinyModel();
  writer.AddFloats("rope_freqs.weight", {3}, 1);
  EXPECT_THAT(Message(LoadTiny(writer)), AllOf(HasSubstr("rope_freqs.weight"), HasSubstr("[4]")));
  writer = TinyModel();
  writer.AddFloats("rope_freqs.weight", {4}, 0);
  EXPECT_THAT(Message(LoadTiny(writer)), HasSubstr("value=0"));
  writer = TinyModel();
  writer.AddFloats("rope_freqs.weight", {4}, 1);
  EXPECT_TRUE(LoadTiny(writer).ok());
}

TEST(ModelConfigTest, RefusesTokenIdsOutsideTheVocabulary) {
  GgufWriter writer = TinyModel();
  writer.AddUint32("tokenizer.ggml.eos_token_id", 32);
  EXPECT_THAT(Message(LoadTiny(writer)), AllOf(HasSubstr("eos_token_id"), HasSubstr("id=32")));
  writer = TinyModel();
  writer.AddString("tokenizer.ggml.eos_token_id", "</s>");
  EXPECT_THAT(Message(LoadTiny(writer)),
              HasSubstr("eos_token_id is not an integer or a list of integers: value=a value of"));
  writer = TinyModel();
  writer.AddUint32("tokenizer.ggml.padding_token_id", 32);  // never used: as if there were none
  EXPECT_TRUE(LoadTiny(writer).ok()) << LoadTiny(writer);
}

// ------------------------------------------------------------------------------------ config.json

// The golden directory's config with one change, beside its own weights.
absl::StatusOr<ModelConfig> LoadChanged(const std::function<void(nlohmann::json&)>& change,
                                        std::string_view generation_config = "") {
  nlohmann::json config = *ReadJsonFile(GoldenPath("llama/f32/config.json"), {});
  change(config);
  TemporaryFolder folder;
  folder.Write("config.json", std::string_view(config.dump()));
  if (!generation_config.empty()) folder.Write("generation_config.json", generation_config);
  folder.Write("model.safetensors", SafetensorsFile(std::vector<NamedFloats>{{.name = "x"}}));
  const auto checkpoint = Checkpoint::Open(folder.path());
  if (!checkpoint.ok()) return checkpoint.status();
  return LoadModelConfig(**checkpoint);
}

TEST(JsonConfigTest, FillsInWhatOlderFilesLeaveOut) {
  const absl::StatusOr<ModelConfig> config = LoadChanged([](nlohmann::json& json) {
    json.erase("head_dim");
    json.erase("num_key_value_heads");
    json.erase("rope_theta");
    json.erase("rope_scaling");
    json.erase("attention_bias");
    json.erase("mlp_bias");
    json.erase("architectures");
    json["num_attention_heads"] = 8;
    json["tie_word_embeddings"] = true;
    json["pad_token_id"] = nullptr;
    json.erase("dtype");
    json["torch_dtype"] = "float32";
  });
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->num_kv_heads, 8);
  EXPECT_EQ(config->pad_id, -1);
  EXPECT_TRUE(config->tied_output);
  EXPECT_DOUBLE_EQ(config->ropes[0].inverse_frequency[1], std::pow(10000.0, -0.25));
}

TEST(JsonConfigTest, ReadsEveryFormOfRopeScaling) {
  const auto second_frequency = [](const nlohmann::json& scaling, const char* section) {
    const absl::StatusOr<ModelConfig> config = LoadChanged([&](nlohmann::json& json) {
      json.erase("rope_scaling");
      json[section] = scaling;
    });
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->ropes[0].inverse_frequency[1] : 0;
  };
  const double plain = std::pow(10000.0, -1 / 8.0);
  EXPECT_DOUBLE_EQ(second_frequency(nullptr, "rope_scaling"), plain);
  EXPECT_DOUBLE_EQ(second_frequency({{"rope_type", "default"}}, "rope_scaling"), plain);
  EXPECT_DOUBLE_EQ(second_frequency({{"type", "linear"}, {"factor", 2}}, "rope_scaling"),
                   plain / 2);
  EXPECT_DOUBLE_EQ(
      second_frequency({{"rope_type", "default"}, {"rope_theta", 256.0}}, "rope_parameters"), 0.5);
}

TEST(JsonConfigTest, CollectsEosIdsFromBothFiles) {
  const absl::StatusOr<ModelConfig> config = LoadChanged(
      [](nlohmann::json& json) {
        json["eos_token_id"] = {7, 2};
      },
      R"({"eos_token_id":[2,9]})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->eos_ids, ElementsAre(7, 2, 9));
}

TEST(JsonConfigTest, RefusesEveryBadFieldByName) {
  struct Case {
    const char* field;
    nlohmann::json value;
    const char* message;
  };
  const Case cases[] = {
      {"num_hidden_layers", 0, "num_hidden_layers"},
      {"num_hidden_layers", 1e9, "num_hidden_layers"},
      {"num_hidden_layers", "3", "num_hidden_layers"},
      {"num_hidden_layers", true, "num_hidden_layers"},
      {"num_hidden_layers", nlohmann::json::array({3}), "num_hidden_layers"},
      {"num_hidden_layers", nullptr, "num_hidden_layers is missing"},
      {"hidden_size", -64, "hidden_size"},
      {"hidden_size", 18446744073709551615u, "hidden_size"},
      {"num_hidden_layers", {{"a", 3}}, "num_hidden_layers is not an integer: value={\"a\":3}"},
      {"num_attention_heads", 10, "num_attention_heads is no multiple of num_key_value_heads"},
      {"num_attention_heads", 10, "query_heads=10"},
      {"num_key_value_heads", 2, "kv_heads=2"},
      {"head_dim", 15, "rotary_dim=15"},
      {"head_dim", 4096, "head_dim"},
      {"intermediate_size", 0, "intermediate_size"},
      {"vocab_size", 0, "vocab_size"},
      {"max_position_embeddings", 0, "max_position_embeddings"},
      {"rms_norm_eps", 0, "rms_norm_eps"},
      {"rms_norm_eps", 1, "rms_norm_eps"},
      {"rope_theta", 0, "rope_theta"},
      {"rope_theta", "10000", "rope_theta"},
      {"hidden_act", "mish", "mish"},
      {"attention_bias", true, "attention_bias=true"},
      {"mlp_bias", true, "mlp_bias=true"},
      {"tie_word_embeddings", 1, "tie_word_embeddings"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor=0.5"},
      {"quantization_config", {{"quant_method", "gptq"}}, "quantization_config.quant_method"},
      {"quantization_config", "fp8", "quantization_config is not an object: value=\"fp8\""},
      {"bos_token_id", 320, "bos_token_id"},
      {"bos_token_id", "<s>",
       "bos_token_id is not an integer or a list of integers: value=\"<s>\""},
      {"eos_token_id", {2, 1 << 30}, "eos_token_id"},
      {"eos_token_id", {{"id", 2}}, "eos_token_id"},
      {"eos_token_id", 2.5, "eos_token_id"},
      {"rope_scaling", {{"rope_type", "longrope"}}, "longrope"},
      {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}, "dynamic"},
      {"rope_scaling", {{"rope_type", "linear"}}, "rope_scaling.factor is missing"},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}, "rope_scaling.factor"},
      {"rope_scaling", "linear", "rope_scaling is neither null nor an object: value=\"linear\""},
      {"model_type", "mistral", "known="},  // beside the architecture of another family
      {"architectures", {"BertModel"}, "BertModel"},
      {"architectures", 5, "architectures is not a list of texts: value=5 limit=16"},
      {"architectures", {1, 2}, "architectures is not a list of texts: value=[1,2]"},
  };
  for (const Case& bad : cases) {
    const absl::Status status =
        LoadChanged([&](nlohmann::json& json) { json[bad.field] = bad.value; }).status();
    EXPECT_THAT(Message(status), HasSubstr(bad.message)) << bad.field << " " << bad.value;
  }
}

TEST(JsonConfigTest, RefusesSafetensorsWithoutAConfig) {
  const auto checkpoint = Checkpoint::Open(GoldenPath("llama/f32/model.safetensors"));
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_THAT(Message(LoadModelConfig(**checkpoint).status()), HasSubstr("config.json"));
}

TEST(CanonicalTextTest, DiffersInEveryFieldThatChangesAResult) {
  ModelConfig base = Load(GoldenPath("llama/f32")).config;
  std::vector<std::string> texts = {CanonicalText(base)};
  const auto with = [&](const std::function<void(ModelConfig&)>& change) {
    ModelConfig config = base;
    change(config);
    texts.push_back(CanonicalText(config));
  };
  with([](ModelConfig& c) { c.num_layers += 1; });
  with([](ModelConfig& c) { c.num_heads += 1; });
  with([](ModelConfig& c) { c.num_kv_heads += 1; });
  with([](ModelConfig& c) { c.head_dim += 1; });
  with([](ModelConfig& c) { c.model_dim += 1; });
  with([](ModelConfig& c) { c.ffn_dim += 1; });
  with([](ModelConfig& c) { c.vocab_size += 1; });
  with([](ModelConfig& c) { c.norm_eps = std::nextafter(c.norm_eps, 1); });
  with([](ModelConfig& c) { c.ropes[0].pairs = RotaryPairs::kInterleaved; });
  with([](ModelConfig& c) { c.ropes[0].rotary_dim -= 2; });
  with([](ModelConfig& c) { c.ropes[0].amplitude = 2; });
  with([](ModelConfig& c) {
    c.ropes[0].inverse_frequency[3] = std::nextafter(c.ropes[0].inverse_frequency[3], 1);
  });
  with([](ModelConfig& c) { c.attention_scale *= 2; });
  with([](ModelConfig& c) { c.gate = FfnGate::kGeluTanh; });
  with([](ModelConfig& c) { c.tied_output = true; });
  with([](ModelConfig& c) { c.qkv_bias = true; });
  with([](ModelConfig& c) { c.qk_norm = true; });
  with([](ModelConfig& c) { c.norm_offset = 1; });
  with([](ModelConfig& c) { c.post_norms = true; });
  with([](ModelConfig& c) { c.embedding_scale = 8; });
  with([](ModelConfig& c) { c.score_cap = 50; });
  with([](ModelConfig& c) { c.logit_cap = 30; });
  with([](ModelConfig& c) { c.ropes.push_back(c.ropes[0]); });
  with([](ModelConfig& c) { c.layers[1].window = 32; });
  with([](ModelConfig& c) { c.layers[2].window = 32; });
  with([](ModelConfig& c) { c.layers[1].rope = 1; });
  with([](ModelConfig& c) { c.layers[1].experts = true; });
  with([](ModelConfig& c) { c.attention = AttentionKind::kMla; });
  with([](ModelConfig& c) { c.mla.query_latent_dim = 7; });
  with([](ModelConfig& c) { c.mla.latent_dim = 7; });
  with([](ModelConfig& c) { c.mla.nope_dim = 7; });
  with([](ModelConfig& c) { c.mla.rope_dim = 7; });
  with([](ModelConfig& c) { c.mla.value_dim = 7; });
  with([](ModelConfig& c) { c.experts.num_experts = 7; });
  with([](ModelConfig& c) { c.experts.num_chosen = 7; });
  with([](ModelConfig& c) { c.experts.ffn_dim = 7; });
  with([](ModelConfig& c) { c.experts.shared_ffn_dim = 7; });
  with([](ModelConfig& c) { c.experts.score = RouterScore::kSigmoid; });
  with([](ModelConfig& c) { c.experts.choice_bias = true; });
  with([](ModelConfig& c) { c.experts.num_groups = 7; });
  with([](ModelConfig& c) { c.experts.num_groups_kept = 7; });
  with([](ModelConfig& c) { c.experts.group_top = 7; });
  with([](ModelConfig& c) { c.experts.normalise = true; });
  with([](ModelConfig& c) { c.experts.scale = 7; });
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(texts[i], texts[j]) << i << " " << j;
  }
  ModelConfig renamed = base;
  renamed.name = "another";
  renamed.eos_ids = {5};
  renamed.context_length = 7;
  EXPECT_EQ(CanonicalText(renamed), texts[0]);
}

}  // namespace
}  // namespace cairn
