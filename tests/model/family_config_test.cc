// What each family's files say, read from both formats, and what is refused.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "model/json_text.h"
#include "model/model_config.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/safetensors_writer.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string GoldenPath(const std::string& name) {
  return absl::StrCat(CAIRN_TEST_DATA, "/golden/models/", name);
}

struct LoadedFamily {
  std::unique_ptr<Checkpoint> checkpoint;
  ModelConfig config;
};

LoadedFamily Load(const std::string& path) {
  LoadedFamily model;
  auto checkpoint = Checkpoint::Open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  if (!checkpoint.ok()) return model;
  model.checkpoint = *std::move(checkpoint);
  auto config = LoadModelConfig(*model.checkpoint);
  EXPECT_TRUE(config.ok()) << config.status();
  if (config.ok()) model.config = *std::move(config);
  return model;
}

std::vector<int> WindowsOf(const ModelConfig& config) {
  std::vector<int> out;
  for (const LayerConfig& layer : config.layers) out.push_back(layer.window);
  return out;
}

struct Family {
  const char* name;
  bool has_gguf;
};
constexpr Family kFamilies[] = {{"deepseek_v2", false}, {"deepseek_v2_lite", true},
                                {"deepseek_v3", true},  {"gemma2", false},
                                {"gemma3", false},      {"llama", true},
                                {"llama3_rope", true},  {"mistral", false},
                                {"mixtral", true},      {"qwen2", true},
                                {"qwen2_yarn", true},   {"qwen3", true},
                                {"qwen3_moe", true},    {"dots1", true}};

class FamilyTest : public testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Golden, FamilyTest, testing::ValuesIn(kFamilies),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(FamilyTest, EveryFormatLoadsAndHoldsExactlyTheWeightsOfTheGraph) {
  for (const char* const format : {"f32", "bf16", "model.gguf"}) {
    if (format == std::string_view("model.gguf") && !GetParam().has_gguf) continue;
    const LoadedFamily model = Load(GoldenPath(absl::StrCat(GetParam().name, "/", format)));
    const auto count = ValidateWeights(*model.checkpoint, model.config);
    ASSERT_TRUE(count.ok()) << count.status();
    EXPECT_EQ(*count, std::ssize(model.checkpoint->tensors()) -
                          (model.checkpoint->Find("rope_freqs.weight") != nullptr));
  }
}

TEST_P(FamilyTest, BothFormatsSayTheSame) {
  if (!GetParam().has_gguf) return;
  const ModelConfig json = Load(GoldenPath(absl::StrCat(GetParam().name, "/bf16"))).config;
  ModelConfig gguf = Load(GoldenPath(absl::StrCat(GetParam().name, "/model.gguf"))).config;
  gguf.mla.split_up = json.mla.split_up;  // of the file, not of the model
  EXPECT_EQ(gguf.layers, json.layers);
  EXPECT_EQ(gguf.experts, json.experts);
  EXPECT_EQ(gguf.attention, json.attention);
  EXPECT_EQ(gguf.mla, json.mla);
  EXPECT_EQ(gguf.head_dim, json.head_dim);
  EXPECT_EQ(gguf.num_kv_heads, json.num_kv_heads);
  EXPECT_EQ(gguf.qk_norm, json.qk_norm);
  EXPECT_EQ(gguf.qkv_bias, json.qkv_bias);
  EXPECT_EQ(gguf.gate, json.gate);
  EXPECT_EQ(gguf.post_norms, json.post_norms);
  EXPECT_EQ(gguf.tied_output, json.tied_output);
  EXPECT_EQ(gguf.norm_offset, json.norm_offset);
  EXPECT_EQ(gguf.embedding_scale, json.embedding_scale);
  EXPECT_NEAR(gguf.norm_eps, json.norm_eps, 1e-7 * json.norm_eps);
  // GGUF has numbers in float32.
  EXPECT_NEAR(gguf.attention_scale, json.attention_scale, 1e-6 * json.attention_scale);
  ASSERT_EQ(gguf.ropes.size(), json.ropes.size());
  for (size_t r = 0; r < json.ropes.size(); ++r) {
    EXPECT_NEAR(gguf.ropes[r].amplitude, json.ropes[r].amplitude, 1e-6);
    ASSERT_EQ(gguf.ropes[r].inverse_frequency.size(), json.ropes[r].inverse_frequency.size());
    for (size_t i = 0; i < json.ropes[r].inverse_frequency.size(); ++i)
      EXPECT_NEAR(gguf.ropes[r].inverse_frequency[i] / json.ropes[r].inverse_frequency[i], 1, 3e-7);
  }
}

TEST(FamilyConfigTest, SomeFamiliesNeedWideActivationsInEveryFormat) {
  for (const char* wide : {"gemma2/f32", "gemma3/f32", "qwen2/f32", "qwen2/model.gguf"})
    EXPECT_TRUE(Load(GoldenPath(wide)).config.wide_activations) << wide;
  for (const char* other : {"llama/f32", "llama/model.gguf", "qwen3/f32", "qwen3/model.gguf"})
    EXPECT_FALSE(Load(GoldenPath(other)).config.wide_activations) << other;
}

TEST(FamilyConfigTest, ReadsExpertsAsEachFamilyMeansThem) {
  const auto experts_of = [](const char* name) { return Load(GoldenPath(name)).config.experts; };
  EXPECT_EQ(experts_of("mixtral/f32"),
            (ExpertsConfig{.num_experts = 6, .num_chosen = 2, .ffn_dim = 64, .normalise = true}));
  EXPECT_EQ(experts_of("qwen3_moe/f32"),
            (ExpertsConfig{.num_experts = 8, .num_chosen = 3, .ffn_dim = 40, .normalise = true}));
  EXPECT_EQ(experts_of("dots1/f32"), (ExpertsConfig{.num_experts = 8,
                                                    .num_chosen = 3,
                                                    .ffn_dim = 40,
                                                    .shared_ffn_dim = 80,
                                                    .score = RouterScore::kSigmoid,
                                                    .choice_bias = true,
                                                    .num_groups = 2,
                                                    .num_groups_kept = 1,
                                                    .group_top = 2,
                                                    .normalise = true,
                                                    .scale = 2.5}));
  EXPECT_EQ(experts_of("deepseek_v2/f32"), (ExpertsConfig{.num_experts = 8,
                                                          .num_chosen = 3,
                                                          .ffn_dim = 32,
                                                          .shared_ffn_dim = 32,
                                                          .num_groups = 4,
                                                          .num_groups_kept = 2,
                                                          .group_top = 1,
                                                          .scale = 4}));
  EXPECT_EQ(
      experts_of("deepseek_v2_lite/f32"),
      (ExpertsConfig{.num_experts = 8, .num_chosen = 3, .ffn_dim = 32, .shared_ffn_dim = 64}));
  EXPECT_EQ(experts_of("deepseek_v3/f32"), (ExpertsConfig{.num_experts = 8,
                                                          .num_chosen = 3,
                                                          .ffn_dim = 32,
                                                          .shared_ffn_dim = 32,
                                                          .score = RouterScore::kSigmoid,
                                                          .choice_bias = true,
                                                          .num_groups = 4,
                                                          .num_groups_kept = 2,
                                                          .group_top = 2,
                                                          .normalise = true,
                                                          .scale = 2.5}));
  const ModelConfig config = Load(GoldenPath("deepseek_v3/f32")).config;
  EXPECT_FALSE(config.layers[0].experts);
  EXPECT_TRUE(config.layers[1].experts);
}

TEST(FamilyConfigTest, ReadsLatentAttention) {
  const ModelConfig config = Load(GoldenPath("deepseek_v2/f32")).config;
  EXPECT_EQ(config.attention, AttentionKind::kMla);
  EXPECT_EQ(config.mla, (MlaConfig{.query_latent_dim = 24,
                                   .latent_dim = 32,
                                   .nope_dim = 16,
                                   .rope_dim = 8,
                                   .value_dim = 24}));
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.head_dim, 24);
  EXPECT_DOUBLE_EQ(config.attention_scale, 1 / std::sqrt(24.0));
  EXPECT_EQ(config.ropes[0].pairs, RotaryPairs::kInterleaved);
  EXPECT_EQ(config.ropes[0].rotary_dim, 8);
  EXPECT_EQ(Load(GoldenPath("deepseek_v2_lite/f32")).config.mla.query_latent_dim, 0);
}

TEST(FamilyConfigTest, ReadsCapsNormsAndScales) {
  const ModelConfig config = Load(GoldenPath("gemma2/f32")).config;
  EXPECT_EQ(config.score_cap, 6);
  EXPECT_EQ(config.logit_cap, 15);
  EXPECT_EQ(config.embedding_scale, 8);
  EXPECT_EQ(config.norm_offset, 1);
  EXPECT_TRUE(config.post_norms);
  EXPECT_TRUE(config.tied_output);
  EXPECT_EQ(config.gate, FfnGate::kGeluTanh);
  EXPECT_DOUBLE_EQ(config.attention_scale, 1 / std::sqrt(20.0));
  EXPECT_THAT(WindowsOf(config), ElementsAre(32, 0, 32));
  EXPECT_FALSE(config.qk_norm);
  const ModelConfig next = Load(GoldenPath("gemma3/f32")).config;
  EXPECT_TRUE(next.qk_norm);
  EXPECT_EQ(next.score_cap, 0);
  EXPECT_THAT(WindowsOf(next), ElementsAre(32, 32, 0, 32));
}

// Pairs 0 and 3 of eight bound the ramp: 8 ln(80 / 64 pi) / ln 10000 is below 0, and 8 ln(80 / 2
// pi) / ln 10000 is 2.2.
TEST(FamilyConfigTest, YarnFollowsThePublishedRule) {
  for (const char* const format : {"f32", "model.gguf"}) {
    const ModelConfig config = Load(GoldenPath(absl::StrCat("qwen2_yarn/", format))).config;
    const RopeConfig& rope = config.ropes[0];
    ASSERT_EQ(rope.inverse_frequency.size(), 8);
    for (int i = 0; i < 8; ++i) {
      const double stretched = std::min(i / 3.0, 1.0);
      const double want = std::pow(10000.0, -i / 8.0) * (1 - stretched + stretched / 4);
      EXPECT_NEAR(rope.inverse_frequency[i], want, 1e-12) << format << " " << i;
    }
    EXPECT_NEAR(rope.amplitude, 0.1 * std::log(4.0) + 1, 1e-12);
    EXPECT_DOUBLE_EQ(config.attention_scale, 0.25);
  }
}

// Here the amplitudes of cos and sin cancel, and the scores take it squared.
TEST(FamilyConfigTest, YarnWithTwoScalesMovesThemToTheScores) {
  for (const char* const format : {"f32", "model.gguf"}) {
    const ModelConfig config = Load(GoldenPath(absl::StrCat("deepseek_v3/", format))).config;
    EXPECT_NEAR(config.ropes[0].amplitude, 1, 1e-12) << format;
    const double scale = 0.1 * std::log(40.0) + 1;
    EXPECT_NEAR(config.attention_scale, scale * scale / std::sqrt(24.0), 1e-7) << format;
    const double stretched[] = {0, 0.5, 1, 1};
    for (int i = 0; i < 4; ++i)
      EXPECT_NEAR(config.ropes[0].inverse_frequency[i],
                  std::pow(10000.0, -i / 4.0) * (1 - stretched[i] + stretched[i] / 40), 1e-12);
  }
}

// The config of a family with one change, without weights.
absl::StatusOr<ModelConfig> LoadChanged(const std::string& family,
                                        const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json config = *ReadJsonFile(GoldenPath(absl::StrCat(family, "/f32/config.json")), {});
  change(config);
  TemporaryFolder folder;
  folder.Write("config.json", std::string_view(config.dump()));
  folder.Write("model.safetensors", SafetensorsFile(std::vector<NamedFloats>{{.name = "x"}}));
  const auto checkpoint = Checkpoint::Open(folder.path());
  if (!checkpoint.ok()) return checkpoint.status();
  return LoadModelConfig(**checkpoint);
}

std::vector<int> ChangedWindows(const std::string& family, const nlohmann::json& patch) {
  const auto config =
      LoadChanged(family, [&](nlohmann::json& json) { json.merge_patch(patch); });  // null erases
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? WindowsOf(*config) : std::vector<int>{};
}

TEST(FamilyConfigTest, WindowsFollowTheListOrElseThePattern) {
  EXPECT_THAT(ChangedWindows("mistral", {{"sliding_window", 7}}), ElementsAre(7, 7, 7));
  EXPECT_THAT(ChangedWindows("mistral", {{"sliding_window", nullptr}}), ElementsAre(0, 0, 0));
  EXPECT_THAT(ChangedWindows("gemma2", {{"layer_types", nullptr}}), ElementsAre(32, 0, 32));
  EXPECT_THAT(
      ChangedWindows("gemma2",
                     {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}}),
      ElementsAre(0, 0, 32));
  EXPECT_THAT(ChangedWindows("gemma3", {{"layer_types", nullptr}}), ElementsAre(32, 32, 0, 32));
  EXPECT_THAT(ChangedWindows("gemma3", {{"layer_types", nullptr}, {"sliding_window_pattern", 2}}),
              ElementsAre(32, 0, 32, 0));
  EXPECT_THAT(
      ChangedWindows("gemma3", {{"layer_types", nullptr}, {"sliding_window_pattern", nullptr}}),
      ElementsAre(32, 32, 32, 32));  // every sixth
  EXPECT_THAT(ChangedWindows("qwen2_yarn", {{"sliding_window", 9}}), ElementsAre(0, 0));
  EXPECT_THAT(ChangedWindows("qwen2_yarn", {{"sliding_window", 9},
                                            {"use_sliding_window", true},
                                            {"layer_types", nullptr},
                                            {"max_window_layers", 1}}),
              ElementsAre(0, 9));
  EXPECT_THAT(ChangedWindows(
                  "qwen3_moe",
                  {{"sliding_window", 9}, {"use_sliding_window", true}, {"max_window_layers", 0}}),
              ElementsAre(9, 9));
}

TEST(FamilyConfigTest, LayersWithAWindowTurnByTheirOwnBaseUnscaled) {
  const auto expect_bases = [](const nlohmann::json& patch, double full, double of_windows) {
    const auto config =
        LoadChanged("gemma3", [&](nlohmann::json& json) { json.merge_patch(patch); });
    ASSERT_TRUE(config.ok()) << config.status();
    for (const LayerConfig& layer : config->layers) {
      const std::vector<double>& frequency = config->ropes[layer.rope].inverse_frequency;
      EXPECT_DOUBLE_EQ(frequency[1], layer.window > 0 ? of_windows : full) << patch;
    }
  };
  const auto second = [](double base) { return std::pow(base, -1 / 12.0); };
  expect_bases(nlohmann::json::object(), second(1e6), second(1e4));
  expect_bases({{"rope_local_base_freq", 500}}, second(1e6), second(500));
  expect_bases({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}}}, second(1e6) / 8,
               second(1e4));
  // Newer files have both bases in one section.
  expect_bases({{"rope_theta", nullptr},
                {"rope_local_base_freq", nullptr},
                {"rope_scaling", nullptr},
                {"rope_parameters",
                 {{"full_attention", {{"rope_type", "linear"}, {"factor", 4}, {"rope_theta", 2e6}}},
                  {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 700}}}}}},
               second(2e6) / 4, second(700));
}

TEST(FamilyConfigTest, WeightsThatAreNormalisedAreNotScaledToo) {
  const auto changed = [](const char* family) {
    return LoadChanged(family, [](nlohmann::json& json) { json["norm_topk_prob"] = true; });
  };
  EXPECT_EQ(changed("deepseek_v2")->experts.scale, 1);
  EXPECT_TRUE(changed("deepseek_v2")->experts.normalise);
  EXPECT_EQ(changed("deepseek_v3")->experts.scale, 2.5);  // which does both
}

TEST(FamilyConfigTest, RefusesEveryBadFieldByName) {
  const struct {
    const char *family, *field;
    nlohmann::json value;
    const char* message;
  } cases[] = {
      {"mixtral", "num_local_experts", 0, "num_local_experts"},
      {"mixtral", "num_local_experts", 4097, "num_local_experts"},
      {"mixtral", "num_local_experts", nullptr, "num_local_experts is missing"},
      {"mixtral", "num_experts_per_tok", 7, "more are chosen than there are: 7 and 6"},
      {"mixtral", "num_experts_per_tok", 65, "num_experts_per_tok"},
      {"mixtral", "num_experts_per_tok", 0, "num_experts_per_tok"},
      {"mixtral", "sliding_window", -1, "sliding_window"},
      {"mistral", "sliding_window", 0, "sliding_window"},
      {"mistral", "sliding_window", 1 << 28, "sliding_window"},
      {"mistral", "sliding_window", "32", "sliding_window"},
      {"qwen3_moe", "num_experts", 2, "more are chosen than there are: 3 and 2"},
      {"qwen3_moe", "moe_intermediate_size", 0, "moe_intermediate_size"},
      {"qwen3_moe", "decoder_sparse_step", 0, "decoder_sparse_step"},
      {"qwen3_moe", "norm_topk_prob", 1, "norm_topk_prob"},
      {"qwen3_moe", "mlp_only_layers", {"x"}, "mlp_only_layers"},
      {"qwen2", "use_sliding_window", 1, "use_sliding_window"},
      {"gemma2", "attn_logit_softcapping", -1, "attn_logit_softcapping"},
      {"gemma2", "attn_logit_softcapping", 1e7, "attn_logit_softcapping"},
      {"gemma2", "final_logit_softcapping", "30", "final_logit_softcapping"},
      {"gemma2", "query_pre_attn_scalar", 0, "query_pre_attn_scalar"},
      {"gemma2", "layer_types", {"full_attention"}, "layer_types has another length"},
      {"gemma2",
       "layer_types",
       {"full_attention", "linear_attention", "full_attention"},
       "linear_attention"},
      {"gemma2", "layer_types", {1, 2, 3}, "layer_types"},
      {"gemma3", "sliding_window_pattern", 0, "sliding_window_pattern"},
      {"gemma3", "rope_local_base_freq", 0, "rope_local_base_freq"},
      {"gemma3", "use_bidirectional_attention", true, "use_bidirectional_attention"},
      {"deepseek_v2", "kv_lora_rank", 24, "kv_lora_rank=24"},
      {"deepseek_v2", "kv_lora_rank", 0, "kv_lora_rank"},
      {"deepseek_v2", "kv_lora_rank", 1 << 15, "kv_lora_rank"},
      {"deepseek_v2", "q_lora_rank", -1, "q_lora_rank"},
      {"deepseek_v2", "qk_nope_head_dim", 0, "qk_nope_head_dim"},
      {"deepseek_v2", "qk_rope_head_dim", 7, "rotary_dim=7"},
      {"deepseek_v2", "qk_rope_head_dim", 2000, "qk_rope_head_dim"},
      {"deepseek_v2", "v_head_dim", 0, "v_head_dim"},
      {"deepseek_v2", "n_routed_experts", 0, "n_routed_experts"},
      {"deepseek_v2", "n_group", 3, "no multiple of their groups: 8 and 3"},
      {"deepseek_v2", "topk_group", 5, "more groups are kept than there are: 5 and 4"},
      {"deepseek_v2", "topk_group", 1, "more are chosen than the kept groups have: 3 and 2"},
      {"deepseek_v2", "topk_method", "random", "topk_method is unknown: value=\"random\""},
      {"deepseek_v2", "scoring_func", "sigmoid", "scoring_func is unknown: value=\"sigmoid\""},
      {"deepseek_v2", "n_shared_experts", 4096 * 64, "n_shared_experts"},
      {"deepseek_v2", "moe_intermediate_size", (1 << 22) + 1, "moe_intermediate_size"},
      {"deepseek_v2", "routed_scaling_factor", -1, "routed_scaling_factor"},
      {"deepseek_v2", "first_k_dense_replace", -1, "first_k_dense_replace"},
      {"deepseek_v2", "moe_layer_freq", 0, "moe_layer_freq"},
      {"deepseek_v3", "topk_method", "greedy", "topk_method is unknown: value=\"greedy\""},
      {"deepseek_v3", "scoring_func", "softmax", "scoring_func is unknown: value=\"softmax\""},
      {"deepseek_v3", "num_nextn_predict_layers", 2000, "num_nextn_predict_layers"},
      {"deepseek_v3", "rope_scaling", {{"rope_type", "yarn"}}, "rope_scaling.factor is missing"},
      {"deepseek_v3",
       "rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 0}},
       "beta_fast"},
      {"deepseek_v3",
       "rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 1}, {"beta_slow", 32}},
       "beta_fast is below beta_slow: fast=1 slow=32"},
      {"qwen2_yarn",
       "rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 0}},
       "original_max_position_embeddings"},
      {"qwen2_yarn",
       "rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", -1}},
       "attention_factor"},
      {"qwen2_yarn", "rope_theta", 1, "rope_theta"},
      {"qwen2_yarn", "rope_scaling", {{"factor", 8}}, "factor is given, but no rope_type"},
      {"qwen2_yarn", "rope_parameters", {{"rope_type", "default"}}, "only one may be"},
  };
  for (const auto& bad : cases) {
    const absl::Status status = LoadChanged(bad.family, [&](nlohmann::json& json) {
                                  json[bad.field] = bad.value;
                                }).status();
    EXPECT_FALSE(status.ok()) << bad.family << " " << bad.field << " " << bad.value;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message))
        << bad.family << " " << bad.field << " " << bad.value;
  }
}

// ------------------------------------------------------------------------------------------ GGUF

// A model of latent attention and experts; the writer's later value of a key would be a second one,
// so `changed` takes its place.
absl::Status LoadGgufWith(std::string_view changed, const std::function<void(GgufWriter&)>& add) {
  const std::pair<const char*, uint32_t> numbers[] = {{"block_count", 2},
                                                      {"context_length", 64},
                                                      {"embedding_length", 16},
                                                      {"feed_forward_length", 24},
                                                      {"attention.head_count", 2},
                                                      {"attention.kv_lora_rank", 16},
                                                      {"attention.key_length", 12},
                                                      {"attention.value_length", 8},
                                                      {"rope.dimension_count", 4},
                                                      {"expert_count", 8},
                                                      {"expert_used_count", 2},
                                                      {"expert_feed_forward_length", 16},
                                                      {"expert_shared_count", 1},
                                                      {"expert_group_count", 4},
                                                      {"expert_group_used_count", 2},
                                                      {"expert_gating_func", 2}};
  GgufWriter writer;
  writer.AddString("general.architecture", "deepseek2");
  for (const auto& [key, value] : numbers)
    if (changed != key) writer.AddUint32(absl::StrCat("deepseek2.", key), value);
  writer.AddFloat32("deepseek2.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddFloats("token_embd.weight", {32, 16});
  add(writer);
  TemporaryFolder folder;
  const auto checkpoint = Checkpoint::Open(folder.Write("tiny.gguf", writer.File()));
  if (!checkpoint.ok()) return checkpoint.status();
  return LoadModelConfig(**checkpoint).status();
}

TEST(GgufFamilyTest, RefusesEveryBadFieldByName) {
  const absl::Status right = LoadGgufWith("", [](GgufWriter&) {});
  ASSERT_TRUE(right.ok()) << right;
  const struct {
    const char* key;
    uint32_t value;
    const char* message;
  } cases[] = {
      {"attention.kv_lora_rank", 24, "kv_lora_rank=24"},
      {"attention.kv_lora_rank", 1 << 15, "attention.kv_lora_rank"},
      {"attention.q_lora_rank", 1 << 15, "attention.q_lora_rank"},
      {"attention.key_length", 4, "key_length=4 rope.dimension_count=4"},
      {"attention.key_length", 3, "key_length=3"},
      {"attention.value_length", 0, "attention.value_length"},
      {"rope.dimension_count", 3, "rotary_dim=3"},
      {"expert_count", 4097, "expert_count"},
      {"expert_used_count", 0, "expert_used_count"},
      {"expert_used_count", 65, "expert_used_count"},
      {"expert_used_count", 9, "more are chosen than there are: 9 and 8"},
      {"expert_used_count", 5, "more are chosen than the kept groups have: 5 and 4"},
      {"expert_group_count", 3, "no multiple of their groups: 8 and 3"},
      {"expert_group_count", 8, "a group is worth more scores than it has: 2 and 1"},
      {"expert_group_used_count", 5, "more groups are kept than there are: 5 and 4"},
      {"expert_gating_func", 3, "expert_gating_func is unknown: value=3"},
      {"expert_shared_count", 4097, "expert_shared_count"},
      {"expert_feed_forward_length", 0, "expert_feed_forward_length"},
      {"leading_dense_block_count", 1025, "leading_dense_block_count"},
  };
  for (const auto& bad : cases) {
    const absl::Status status = LoadGgufWith(bad.key, [&](GgufWriter& writer) {
      writer.AddUint32(absl::StrCat("deepseek2.", bad.key), bad.value);
    });
    EXPECT_FALSE(status.ok()) << bad.key << " " << bad.value;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message))
        << bad.key << " " << bad.value;
  }
  for (const auto& [key, value] :
       {std::pair("attn_logit_softcapping", -1.0f), std::pair("final_logit_softcapping", INFINITY),
        std::pair("expert_weights_scale", -2.0f)}) {
    const absl::Status status = LoadGgufWith("", [&, key = key, value = value](GgufWriter& writer) {
      writer.AddFloat32(absl::StrCat("deepseek2.", key), value);
    });
    EXPECT_THAT(std::string(status.message()), HasSubstr(key));
  }
}

TEST(GgufFamilyTest, RefusesYarnOfAnotherKind) {
  const auto with_yarn = [](const char* key, float value) {
    return LoadGgufWith("", [&](GgufWriter& writer) {
      writer.AddString("deepseek2.rope.scaling.type", "yarn");
      if (key != std::string_view("rope.scaling.factor"))
        writer.AddFloat32("deepseek2.rope.scaling.factor", 4);
      writer.AddFloat32(absl::StrCat("deepseek2.", key), value);
    });
  };
  EXPECT_TRUE(with_yarn("rope.scaling.yarn_ext_factor", 1).ok());
  for (const auto& [key, value] :
       {std::pair("rope.scaling.yarn_ext_factor", 0.5f), std::pair("rope.scaling.factor", 0.0f),
        std::pair("rope.scaling.yarn_beta_fast", 0.0f),
        std::pair("rope.scaling.yarn_beta_slow", INFINITY),
        std::pair("rope.scaling.yarn_beta_slow", 33.0f),
        std::pair("rope.scaling.yarn_log_multiplier", -1.0f), std::pair("rope.freq_base", 1.0f)}) {
    const absl::Status status = with_yarn(key, value);
    EXPECT_FALSE(status.ok()) << key;
    EXPECT_THAT(std::string(status.message()), HasSubstr(key)) << value;
  }
}

// ---------------------------------------------------------------------------------- draft layers

// The golden model with a second file of tensors beside its own.
absl::Status ValidateWithExtra(int num_draft_layers, const std::string& extra) {
  const LoadedFamily golden = Load(GoldenPath("deepseek_v3/f32"));
  nlohmann::json config = *ReadJsonFile(GoldenPath("deepseek_v3/f32/config.json"), {});
  config["num_nextn_predict_layers"] = num_draft_layers;
  nlohmann::json map;
  for (const Tensor& tensor : golden.checkpoint->tensors()) map[tensor.name] = "a.safetensors";
  map[extra] = "b.safetensors";
  TemporaryFolder folder;
  folder.Write("config.json", std::string_view(config.dump()));
  folder.Write("model.safetensors.index.json",
               std::string_view(nlohmann::json{{"weight_map", map}}.dump()));
  const auto file = MappedFile::Open(GoldenPath("deepseek_v3/f32/model.safetensors"));
  if (!file.ok()) return file.status();
  folder.Write("a.safetensors", file->bytes());
  folder.Write("b.safetensors", SafetensorsFile(std::vector<NamedFloats>{{.name = extra}}));
  const auto checkpoint = Checkpoint::Open(folder.path());
  if (!checkpoint.ok()) return checkpoint.status();
  const auto loaded = LoadModelConfig(**checkpoint);
  if (!loaded.ok()) return loaded.status();
  return ValidateWeights(**checkpoint, *loaded).status();
}

TEST(DraftLayerTest, OnlyTheirTensorsHaveNoPlaceAndNeedNone) {
  EXPECT_TRUE(ValidateWithExtra(1, "model.layers.2.eh_proj.weight").ok())
      << ValidateWithExtra(1, "model.layers.2.eh_proj.weight");
  EXPECT_TRUE(ValidateWithExtra(9, "model.layers.10.shared_head.norm.weight").ok());
  const std::pair<int, const char*> refused[] = {{0, "model.layers.2.eh_proj.weight"},
                                                 {1, "model.layers.3.eh_proj.weight"},
                                                 {1, "model.layers.20.eh_proj.weight"},
                                                 {1, "model.layers.1.eh_proj.weight"},
                                                 {1, "model.layers.2"},
                                                 {1, "other.layers.2.eh_proj.weight"}};
  for (const auto& [num_draft_layers, name] : refused) {
    const absl::Status status = ValidateWithExtra(num_draft_layers, name);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(name), HasSubstr("has no place in the graph")))
        << num_draft_layers;
  }
}

}  // namespace
}  // namespace cairn
