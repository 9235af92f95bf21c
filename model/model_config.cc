#include "model/model_config.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "model/config_reader.h"
#include "model/parameter_reader.h"
#include "model/rope_parameters.h"
#include "model/tensor_names.h"
#include "model/utf8.h"

namespace cairn {
namespace {

// ----------------------------------------------------------------------------------- config.json

absl::Status ParseLlamaJson(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ReadJsonSizes(checkpoint, false, config));
  return ReadJsonHeads(checkpoint, config);
}

absl::Status ParseMistralJson(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ParseLlamaJson(checkpoint, config));
  return ReadJsonWindows(checkpoint, 0, config);
}

absl::Status ParseQwen2Json(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ParseLlamaJson(checkpoint, config));
  config.qkv_bias = true;
  return ReadJsonLateWindows(checkpoint, false, 28, config);
}

absl::Status ParseQwen3Json(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ParseLlamaJson(checkpoint, config));
  config.qk_norm = true;
  return ReadJsonLateWindows(checkpoint, false, 28, config);
}

// What both generations of this family share.
absl::Status ParseGemmaJson(const Checkpoint& checkpoint, int pattern, ModelConfig& config) {
  RETURN_IF_ERROR(ReadJsonSizes(checkpoint, true, config));
  RETURN_IF_ERROR(ReadJsonHeads(checkpoint, config));
  RETURN_IF_ERROR(ReadJsonWindows(checkpoint, pattern, config));
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  config.post_norms = true;
  config.norm_offset = 1;
  config.embedding_scale = std::sqrt(static_cast<double>(config.model_dim));
  ASSIGN_OR_RETURN(const double scaled_dim, reader.Number("query_pre_attn_scalar", {1e-6, 1e9},
                                                          static_cast<double>(config.head_dim)));
  config.attention_scale = InverseRoot(scaled_dim);
  ASSIGN_OR_RETURN(config.score_cap, reader.Number("attn_logit_softcapping", kCapLimits, 0.0));
  ASSIGN_OR_RETURN(config.logit_cap, reader.Number("final_logit_softcapping", kCapLimits, 0.0));
  return absl::OkStatus();
}

absl::Status ParseGemma2Json(const Checkpoint& checkpoint, ModelConfig& config) {
  return ParseGemmaJson(checkpoint, 2, config);
}

absl::Status ParseGemma3Json(const Checkpoint& checkpoint, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ASSIGN_OR_RETURN(const int pattern, reader.Int("sliding_window_pattern", UpTo(kMaxLayers), 6));
  RETURN_IF_ERROR(ParseGemmaJson(checkpoint, pattern, config));
  config.qk_norm = true;
  ASSIGN_OR_RETURN(const bool both_ways, reader.Flag("use_bidirectional_attention", false));
  if (both_ways) return NotInTheGraph(reader.FullKey("use_bidirectional_attention=true"));
  // Newer files have a section for each kind of layer.
  if (const auto ropes = checkpoint.config().find("rope_parameters");
      ropes != checkpoint.config().end() && ropes->contains("sliding_attention")) {
    ASSIGN_OR_RETURN(RopeParameters rope,
                     ReadJsonRope(checkpoint.config(), RotaryPairs::kHalfSplit, config.head_dim,
                                  config.context_length, "sliding_attention"));
    SetRopeOfWindows(std::move(rope.rope), config);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const double base,
                   reader.Number("rope_local_base_freq", kRopeBaseLimits, 10000.0));
  SetRopeOfWindows(PlainRope(RotaryPairs::kHalfSplit, config.head_dim, base), config);
  return absl::OkStatus();
}

absl::Status ParseMixtralJson(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ParseMistralJson(checkpoint, config));
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ExpertsConfig& experts = config.experts;
  RETURN_IF_ERROR(ReadJsonExpertCounts(reader, "num_local_experts", experts));
  experts.ffn_dim = config.ffn_dim;
  experts.normalise = true;
  for (LayerConfig& layer : config.layers) layer.experts = true;
  return CheckExperts(experts);
}

absl::Status ParseQwen3MoeJson(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ParseQwen3Json(checkpoint, config));
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ExpertsConfig& experts = config.experts;
  RETURN_IF_ERROR(ReadJsonExpertCounts(reader, "num_experts", experts));
  ASSIGN_OR_RETURN(experts.ffn_dim, reader.Int("moe_intermediate_size", UpTo(kMaxFfnDim)));
  ASSIGN_OR_RETURN(experts.normalise, reader.Flag("norm_topk_prob", false));
  ASSIGN_OR_RETURN(const int step, reader.Int("decoder_sparse_step", UpTo(kMaxLayers), 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> dense,
                   reader.Integers("mlp_only_layers", kMaxLayers));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const bool is_dense = std::find(dense.begin(), dense.end(), layer) != dense.end();
    config.layers[layer].experts = !is_dense && (layer + 1) % step == 0;
  }
  return CheckExperts(experts);
}

// Experts as DeepSeek's configs describe them, but for their choice.
absl::Status ReadJsonRoutedExperts(const ParameterReader& reader, ModelConfig& config) {
  if (!reader.Has("n_routed_experts")) return absl::OkStatus();
  ExpertsConfig& experts = config.experts;
  RETURN_IF_ERROR(ReadJsonExpertCounts(reader, "n_routed_experts", experts));
  ASSIGN_OR_RETURN(experts.ffn_dim, reader.Int("moe_intermediate_size", UpTo(kMaxFfnDim)));
  ASSIGN_OR_RETURN(const int shared, reader.Int("n_shared_experts", FromZeroTo(kMaxExperts), 0));
  RETURN_IF_ERROR(SetSharedExperts(reader.FullKey("n_shared_experts"), shared, experts));
  ASSIGN_OR_RETURN(experts.scale, reader.Number("routed_scaling_factor", kScaleLimits, 1.0));
  ASSIGN_OR_RETURN(experts.normalise, reader.Flag("norm_topk_prob", false));
  ASSIGN_OR_RETURN(const int first, reader.Int("first_k_dense_replace", FromZeroTo(kMaxLayers), 0));
  ASSIGN_OR_RETURN(const int step, reader.Int("moe_layer_freq", UpTo(kMaxLayers), 1));
  for (int layer = 0; layer < config.num_layers; ++layer)
    config.layers[layer].experts = layer >= first && layer % step == 0;
  return absl::OkStatus();
}

// Their choice by a sigmoid and a bias, group by group.
absl::Status ReadJsonSigmoidChoice(const ParameterReader& reader, ExpertsConfig& experts) {
  for (const auto& [key, known] :
       {std::pair("scoring_func", "sigmoid"), std::pair("topk_method", "noaux_tc")}) {
    ASSIGN_OR_RETURN(const std::string value, reader.Text(key, known));
    if (value == known) continue;
    return absl::UnimplementedError(absl::StrCat(reader.FullKey(key), " is unknown: value=\"",
                                                 Printable(value), "\" known=", known));
  }
  experts.score = RouterScore::kSigmoid;
  experts.choice_bias = true;
  return ReadJsonExpertGroups(reader, 2, experts);
}

// What both generations of this family share: latent attention, and experts but for their choice.
absl::Status ParseDeepseekJson(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ReadJsonSizes(checkpoint, false, config));
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  MlaConfig& mla = config.mla;
  ASSIGN_OR_RETURN(mla.query_latent_dim, reader.Int("q_lora_rank", FromZeroTo(kMaxLatentDim), 0));
  ASSIGN_OR_RETURN(mla.latent_dim, reader.Int("kv_lora_rank", UpTo(kMaxLatentDim)));
  ASSIGN_OR_RETURN(mla.nope_dim, reader.Int("qk_nope_head_dim", UpTo(kMaxHeadDim)));
  ASSIGN_OR_RETURN(mla.rope_dim, reader.Int("qk_rope_head_dim", UpTo(kMaxHeadDim)));
  ASSIGN_OR_RETURN(mla.value_dim, reader.Int("v_head_dim", UpTo(kMaxHeadDim)));
  ASSIGN_OR_RETURN(const bool interleaved, reader.Flag("rope_interleave", true));
  ASSIGN_OR_RETURN(const RopeParameters rope,
                   ReadJsonRope(checkpoint.config(),
                                interleaved ? RotaryPairs::kInterleaved : RotaryPairs::kHalfSplit,
                                mla.rope_dim, config.context_length, ""));
  RETURN_IF_ERROR(SetLatentAttention(rope, config));
  ASSIGN_OR_RETURN(config.num_draft_layers,
                   reader.Int("num_nextn_predict_layers", FromZeroTo(kMaxLayers), 0));
  return ReadJsonRoutedExperts(reader, config);
}

absl::Status ParseDeepseek2Json(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ParseDeepseekJson(checkpoint, config));
  if (!config.has_experts()) return absl::OkStatus();
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ExpertsConfig& experts = config.experts;
  ASSIGN_OR_RETURN(const std::string score, reader.Text("scoring_func", "softmax"));
  if (score != "softmax") {
    return absl::UnimplementedError(absl::StrCat(reader.FullKey("scoring_func"),
                                                 " is unknown: value=\"", Printable(score),
                                                 "\" known=softmax"));
  }
  if (experts.normalise) experts.scale = 1;  // this generation does one or the other
  ASSIGN_OR_RETURN(const std::string method, reader.Text("topk_method", "greedy"));
  if (method == "greedy") return CheckExperts(experts);
  if (method == "group_limited_greedy") return ReadJsonExpertGroups(reader, 1, experts);
  return absl::UnimplementedError(absl::StrCat(reader.FullKey("topk_method"),
                                               " is unknown: value=\"", Printable(method),
                                               "\" known=greedy, group_limited_greedy"));
}

absl::Status ParseDeepseek3Json(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ParseDeepseekJson(checkpoint, config));
  if (!config.has_experts()) return absl::OkStatus();
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  return ReadJsonSigmoidChoice(reader, config.experts);
}

absl::Status ParseDots1Json(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ParseLlamaJson(checkpoint, config));
  config.qk_norm = true;
  RETURN_IF_ERROR(ReadJsonLateWindows(checkpoint, true, 62, config));
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  RETURN_IF_ERROR(ReadJsonRoutedExperts(reader, config));
  return ReadJsonSigmoidChoice(reader, config.experts);
}

// ------------------------------------------------------------------------------------------ GGUF

absl::Status ParseLlamaLikeGguf(const Checkpoint& checkpoint, RotaryPairs pairs,
                                ModelConfig& config) {
  const ParameterReader reader(&checkpoint.metadata(), config.architecture + ".");
  RETURN_IF_ERROR(ReadGgufSizes(checkpoint, reader, config));
  RETURN_IF_ERROR(ReadGgufHeads(checkpoint, reader, pairs, config));
  RETURN_IF_ERROR(ReadGgufWindows(reader, 0, config));
  RETURN_IF_ERROR(ReadGgufExperts(reader, config));
  config.experts.normalise = config.has_experts();
  return absl::OkStatus();
}

// Converters permute the rows of q and k for pairs that lie side by side.
absl::Status ParseLlamaGguf(const Checkpoint& checkpoint, ModelConfig& config) {
  return ParseLlamaLikeGguf(checkpoint, RotaryPairs::kInterleaved, config);
}

absl::Status ParseQwenGguf(const Checkpoint& checkpoint, ModelConfig& config) {
  return ParseLlamaLikeGguf(checkpoint, RotaryPairs::kHalfSplit, config);
}

// What both generations of this family share. One size of model scales by something else than the
// size of a head, which the files do not say.
absl::Status ParseGemmaGguf(const Checkpoint& checkpoint, int pattern, int layers_of_largest,
                            ModelConfig& config) {
  const ParameterReader reader(&checkpoint.metadata(), config.architecture + ".");
  RETURN_IF_ERROR(ReadGgufSizes(checkpoint, reader, config));
  RETURN_IF_ERROR(ReadGgufHeads(checkpoint, reader, RotaryPairs::kHalfSplit, config));
  RETURN_IF_ERROR(ReadGgufWindows(reader, pattern, config));
  config.post_norms = true;
  config.gate = FfnGate::kGeluTanh;
  config.embedding_scale = std::sqrt(static_cast<double>(config.model_dim));
  if (config.num_layers == layers_of_largest) {
    ASSIGN_OR_RETURN(const int scaled_dim, DefaultHeadDim(config));
    config.attention_scale = InverseRoot(scaled_dim);
  }
  return absl::OkStatus();
}

absl::Status ParseGemma2Gguf(const Checkpoint& checkpoint, ModelConfig& config) {
  return ParseGemmaGguf(checkpoint, 2, 46, config);
}

absl::Status ParseGemma3Gguf(const Checkpoint& checkpoint, ModelConfig& config) {
  RETURN_IF_ERROR(ParseGemmaGguf(checkpoint, 6, 62, config));
  const ParameterReader reader(&checkpoint.metadata(), config.architecture + ".");
  ASSIGN_OR_RETURN(const double base,
                   reader.Number("rope.freq_base_swa", kRopeBaseLimits, 10000.0));
  SetRopeOfWindows(PlainRope(RotaryPairs::kHalfSplit, config.ropes[0].rotary_dim, base), config);
  return absl::OkStatus();
}

// Experts of DeepSeek's kind, and their choice.
absl::Status ReadGgufRoutedExperts(const Checkpoint& checkpoint, const ParameterReader& reader,
                                   ModelConfig& config) {
  RETURN_IF_ERROR(ReadGgufExperts(reader, config));
  if (!config.has_experts()) return absl::OkStatus();
  ExpertsConfig& experts = config.experts;
  ASSIGN_OR_RETURN(const int shared, reader.Int("expert_shared_count", FromZeroTo(kMaxExperts), 0));
  RETURN_IF_ERROR(SetSharedExperts(reader.FullKey("expert_shared_count"), shared, experts));
  ASSIGN_OR_RETURN(experts.normalise, reader.Flag("expert_weights_norm", false));
  ASSIGN_OR_RETURN(const double scale, reader.Number("expert_weights_scale", kScaleLimits, 1.0));
  experts.scale = scale == 0 ? 1 : scale;  // 0 stands for none
  ASSIGN_OR_RETURN(const int score, reader.Int("expert_gating_func", {.min = 0, .max = 255}, 1));
  if (score > 2) {
    return absl::UnimplementedError(absl::StrCat(reader.FullKey("expert_gating_func"),
                                                 " is unknown: value=", score,
                                                 " known=1 (softmax), 2 (sigmoid)"));
  }
  experts.score = score == 2 ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  const std::string bias = WeightName(config, WeightRole::kRouterBias, config.num_layers - 1);
  experts.choice_bias = checkpoint.Find(bias) != nullptr;
  ASSIGN_OR_RETURN(experts.num_groups, reader.Int("expert_group_count", UpTo(kMaxExperts), 1));
  ASSIGN_OR_RETURN(experts.num_groups_kept,
                   reader.Int("expert_group_used_count", UpTo(kMaxExperts), 1));
  experts.group_top = score == 2 ? 2 : 1;
  return CheckExperts(experts);
}

absl::Status ParseDeepseekGguf(const Checkpoint& checkpoint, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.metadata(), config.architecture + ".");
  RETURN_IF_ERROR(ReadGgufSizes(checkpoint, reader, config));
  RETURN_IF_ERROR(ReadGgufLatentAttention(checkpoint, reader, config));
  return ReadGgufRoutedExperts(checkpoint, reader, config);
}

absl::Status ParseDots1Gguf(const Checkpoint& checkpoint, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.metadata(), config.architecture + ".");
  RETURN_IF_ERROR(ReadGgufSizes(checkpoint, reader, config));
  RETURN_IF_ERROR(ReadGgufHeads(checkpoint, reader, RotaryPairs::kHalfSplit, config));
  return ReadGgufRoutedExperts(checkpoint, reader, config);
}

// ----------------------------------------------------------------------------- the table

using ParseFunction = absl::Status (*)(const Checkpoint& checkpoint, ModelConfig& config);

struct Family {
  std::string_view name;        // GGUF's general.architecture; empty: another family's files serve
  ParseFunction parse_gguf;     // null: there is no such GGUF
  std::string_view model_type;  // config.json's, and the first of its architectures
  std::string_view architecture;
  ParseFunction parse_json;
  std::span<const NamedRole> names = {};  // in safetensors, where they are not those of most
  bool wide_activations = false;          // 8 bits lose too much
};

constexpr NamedRole kGemmaNames[] = {
    {WeightRole::kPostAttentionNorm, "model.layers.#.post_attention_layernorm.weight"},
    {WeightRole::kFfnNorm, "model.layers.#.pre_feedforward_layernorm.weight"},
    {WeightRole::kPostFfnNorm, "model.layers.#.post_feedforward_layernorm.weight"},
};
constexpr NamedRole kMixtralNames[] = {
    {WeightRole::kRouter, "model.layers.#.block_sparse_moe.gate.weight"},
    {WeightRole::kExpertGate, "model.layers.#.block_sparse_moe.experts.@.w1.weight"},
    {WeightRole::kExpertDown, "model.layers.#.block_sparse_moe.experts.@.w2.weight"},
    {WeightRole::kExpertUp, "model.layers.#.block_sparse_moe.experts.@.w3.weight"},
};

constexpr Family kFamilies[] = {
    {"llama", ParseLlamaGguf, "llama", "LlamaForCausalLM", ParseLlamaJson},
    {"", nullptr, "mistral", "MistralForCausalLM", ParseMistralJson},
    {"", nullptr, "mixtral", "MixtralForCausalLM", ParseMixtralJson, kMixtralNames},
    {"qwen2", ParseQwenGguf, "qwen2", "Qwen2ForCausalLM", ParseQwen2Json, {}, true},
    {"qwen3", ParseQwenGguf, "qwen3", "Qwen3ForCausalLM", ParseQwen3Json},
    {"qwen3moe", ParseQwenGguf, "qwen3_moe", "Qwen3MoeForCausalLM", ParseQwen3MoeJson},
    {"gemma2", ParseGemma2Gguf, "gemma2", "Gemma2ForCausalLM", ParseGemma2Json, kGemmaNames, true},
    {"gemma3", ParseGemma3Gguf, "gemma3_text", "Gemma3ForCausalLM", ParseGemma3Json, kGemmaNames,
     true},
    {"deepseek2", ParseDeepseekGguf, "deepseek_v2", "DeepseekV2ForCausalLM", ParseDeepseek2Json},
    {"", nullptr, "deepseek_v3", "DeepseekV3ForCausalLM", ParseDeepseek3Json},
    {"dots1", ParseDots1Gguf, "dots1", "Dots1ForCausalLM", ParseDots1Json},
};

// `column` is the name of a family in the format of the file.
absl::Status UnknownArchitecture(const std::string& name, std::string_view Family::*column) {
  std::vector<std::string_view> known;
  for (const Family& family : kFamilies)
    if (!(family.*column).empty()) known.push_back(family.*column);
  return absl::UnimplementedError(absl::StrCat(
      "the architecture is unknown: value=\"", Printable(name),
      "\" known=", absl::StrJoin(known, ", ", [](std::string* out, std::string_view each) {
        out->append(each);
      })));
}

absl::StatusOr<ModelConfig> LoadGguf(const Checkpoint& checkpoint) {
  const ParameterReader general(&checkpoint.metadata(), "general.");
  ASSIGN_OR_RETURN(const std::string architecture, general.Text("architecture"));
  for (const Family& family : kFamilies) {
    if (family.parse_gguf == nullptr || family.name != architecture) continue;
    ModelConfig config;
    config.architecture = architecture;
    config.tensor_names = GgufTensorNames();
    config.wide_activations = family.wide_activations;
    ASSIGN_OR_RETURN(config.name, general.Text("name", ""));
    RETURN_IF_ERROR(family.parse_gguf(checkpoint, config));
    return config;
  }
  return UnknownArchitecture(architecture, &Family::name);
}

absl::StatusOr<ModelConfig> LoadJson(const Checkpoint& checkpoint) {
  if (!checkpoint.config().is_object()) {
    return absl::InvalidArgumentError(
        "a safetensors file alone does not say what the model is: give the directory with its "
        "config.json");
  }
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ASSIGN_OR_RETURN(const std::string model_type, reader.Text("model_type", ""));
  constexpr int kMaxArchitectures = 16;
  ASSIGN_OR_RETURN(const std::vector<std::string> architectures,
                   reader.Texts("architectures", kMaxArchitectures));
  const std::string architecture = architectures.empty() ? "" : architectures.front();
  if (model_type.empty() && architecture.empty()) {
    return absl::InvalidArgumentError("config.json: neither model_type nor architectures is given");
  }
  for (const Family& family : kFamilies) {
    if (!model_type.empty() && family.model_type != model_type) continue;
    if (!architecture.empty() && family.architecture != architecture) continue;
    ModelConfig config;
    config.architecture = family.model_type;
    config.tensor_names = SafetensorsTensorNames();
    config.wide_activations = family.wide_activations;
    for (const auto& [role, name] : family.names)
      config.tensor_names[static_cast<size_t>(role)] = name;
    ASSIGN_OR_RETURN(config.name, reader.Text("_name_or_path", ""));
    RETURN_IF_ERROR(family.parse_json(checkpoint, config));
    return config;
  }
  return UnknownArchitecture(architecture.empty() ? model_type : architecture,
                             &Family::architecture);
}

}  // namespace

int64_t CachedValues(const ModelConfig& config, int64_t num_tokens) {
  const int64_t of_token = config.attention == AttentionKind::kMla
                               ? config.mla.cached_dim()
                               : int64_t{2} * config.num_kv_heads * config.head_dim;
  int64_t tokens_of_layers = 0;
  for (const LayerConfig& layer : config.layers)
    tokens_of_layers +=
        layer.window == 0 ? num_tokens : std::min<int64_t>(num_tokens, layer.window);
  return tokens_of_layers * of_token;
}

absl::StatusOr<ModelConfig> LoadModelConfig(const Checkpoint& checkpoint) {
  absl::StatusOr<ModelConfig> config =
      checkpoint.format() == CheckpointFormat::kGguf ? LoadGguf(checkpoint) : LoadJson(checkpoint);
  if (!config.ok()) return Annotate(config.status(), checkpoint.path());
  return config;
}

}  // namespace cairn
