#include "model/config_reader.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/float8_scales.h"
#include "model/sequence_ids.h"
#include "model/utf8.h"

namespace cairn {
namespace {

constexpr NumberLimits kEpsilonLimits = {.min = 1e-12, .max = 0.1};

absl::Status CheckHeads(const ModelConfig& config, const std::string& heads_key,
                        const std::string& kv_heads_key) {
  if (config.num_kv_heads > config.num_heads || config.num_heads % config.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(heads_key, " is no multiple of ", kv_heads_key,
                                                   ": query_heads=", config.num_heads,
                                                   " kv_heads=", config.num_kv_heads));
  }
  return absl::OkStatus();
}

// The sliding window of every layer but each `pattern`-th, which sees all; 0: of all layers.
void SetWindows(int window, int pattern, ModelConfig& config) {
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const bool is_full = pattern > 0 && (layer + 1) % pattern == 0;
    config.layers[layer].window = is_full ? 0 : window;
  }
}

absl::StatusOr<FfnGate> ParseGate(const std::string& name) {
  if (name == "silu" || name == "swish") return FfnGate::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return FfnGate::kGeluTanh;
  return absl::UnimplementedError(absl::StrCat("config.json: hidden_act is unknown: value=\"",
                                               Printable(name),
                                               "\" known=silu, gelu_pytorch_tanh"));
}

// Settings that would change the result, and that must be absent or zero.
constexpr std::string_view kGgufSettingsOutsideTheGraph[] = {
    "attention.scale", "attention.max_alibi_bias", "attention.clamp_kqv",
    "logit_scale",     "residual_scale",           "embedding_scale",
};

// Rows of the embedding, which are the vocabulary of the model.
absl::StatusOr<int> EmbeddingRows(const Checkpoint& checkpoint, const ModelConfig& config) {
  const std::string name = WeightName(config, WeightRole::kTokenEmbedding, 0);
  const Tensor* const embedding = checkpoint.Find(name);
  if (embedding == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing"));
  }
  if (embedding->shape.size() != 2 || embedding->shape[0] < 1 ||
      embedding->shape[0] > kMaxVocabSize) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is no table of ", 1, " to ",
                                                   kMaxVocabSize,
                                                   " rows: shape=", ShapeText(embedding->shape)));
  }
  return static_cast<int>(embedding->shape[0]);
}

}  // namespace

absl::Status NotInTheGraph(const std::string& setting) {
  return absl::UnimplementedError(
      absl::StrCat("the model needs something that the graph does not have: ", setting));
}

absl::StatusOr<int> DefaultHeadDim(const ModelConfig& config) {
  if (config.model_dim % config.num_heads == 0) return config.model_dim / config.num_heads;
  return absl::InvalidArgumentError(
      absl::StrCat("the model dimension is no multiple of the heads, and no head size is given: ",
                   "model_dim=", config.model_dim, " heads=", config.num_heads));
}

absl::Status CheckExperts(const ExpertsConfig& experts) {
  const auto refuse = [](const char* what, int a, int b) {
    return absl::InvalidArgumentError(absl::StrCat("experts: ", what, ": ", a, " and ", b));
  };
  if (experts.num_chosen > experts.num_experts) {
    return refuse("more are chosen than there are", experts.num_chosen, experts.num_experts);
  }
  if (experts.num_experts % experts.num_groups != 0) {
    return refuse("no multiple of their groups", experts.num_experts, experts.num_groups);
  }
  if (experts.num_groups_kept > experts.num_groups) {
    return refuse("more groups are kept than there are", experts.num_groups_kept,
                  experts.num_groups);
  }
  const int of_group = experts.num_experts / experts.num_groups;
  if (experts.num_chosen > of_group * experts.num_groups_kept) {
    return refuse("more are chosen than the kept groups have", experts.num_chosen,
                  of_group * experts.num_groups_kept);
  }
  if (experts.num_groups > 1 && experts.group_top > of_group) {
    return refuse("a group is worth more scores than it has", experts.group_top, of_group);
  }
  return absl::OkStatus();
}

void SetRopeOfWindows(RopeConfig rope, ModelConfig& config) {
  config.ropes.push_back(std::move(rope));
  for (LayerConfig& layer : config.layers)
    if (layer.window > 0) layer.rope = static_cast<int>(config.ropes.size()) - 1;
}

absl::Status SetLatentAttention(const RopeParameters& rope, ModelConfig& config) {
  if (rope.rope.rotary_dim != config.mla.rope_dim) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rotated part of a head has two sizes: ", rope.rope.rotary_dim, " and ",
                     config.mla.rope_dim));
  }
  constexpr int kLatentUnit = 16;
  if (config.mla.latent_dim % kLatentUnit != 0) {
    return NotInTheGraph(absl::StrCat("a latent vector that is no multiple of ", kLatentUnit,
                                      " elements: kv_lora_rank=", config.mla.latent_dim));
  }
  config.attention = AttentionKind::kMla;
  config.num_kv_heads = 1;
  config.head_dim = config.mla.query_dim();
  config.ropes = {rope.rope};
  config.attention_scale = InverseRoot(config.head_dim) * rope.score_factor;
  return absl::OkStatus();
}

absl::Status SetSharedExperts(const std::string& key, int count, ExpertsConfig& experts) {
  if (int64_t{count} * experts.ffn_dim > kMaxFfnDim) {
    return absl::InvalidArgumentError(absl::StrCat(key, " is out of range: value=", count,
                                                   " max=", kMaxFfnDim / experts.ffn_dim));
  }
  experts.shared_ffn_dim = count * experts.ffn_dim;
  return absl::OkStatus();
}

// ----------------------------------------------------------------------------------- config.json

absl::Status ReadJsonSizes(const Checkpoint& checkpoint, bool tied, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  for (const char* const key : {"attention_bias", "mlp_bias"}) {
    ASSIGN_OR_RETURN(const bool has_bias, reader.Flag(key, false));
    if (has_bias) return NotInTheGraph(absl::StrCat(reader.FullKey(key), "=true"));
  }
  const auto quantization = checkpoint.config().find("quantization_config");
  if (quantization != checkpoint.config().end() && !quantization->is_null()) {
    RETURN_IF_ERROR(Annotate(CheckQuantization(*quantization), "config.json"));
  }
  ASSIGN_OR_RETURN(config.num_layers, reader.Int("num_hidden_layers", UpTo(kMaxLayers)));
  config.layers.resize(config.num_layers);
  ASSIGN_OR_RETURN(config.model_dim, reader.Int("hidden_size", UpTo(kMaxModelDim)));
  ASSIGN_OR_RETURN(config.num_heads, reader.Int("num_attention_heads", UpTo(kMaxHeads)));
  ASSIGN_OR_RETURN(config.ffn_dim, reader.Int("intermediate_size", UpTo(kMaxFfnDim)));
  ASSIGN_OR_RETURN(config.vocab_size, reader.Int("vocab_size", UpTo(kMaxVocabSize)));
  ASSIGN_OR_RETURN(config.context_length,
                   reader.Int("max_position_embeddings", UpTo(kMaxContextLength)));
  ASSIGN_OR_RETURN(config.norm_eps, reader.Number("rms_norm_eps", kEpsilonLimits, 1e-6));
  const char* const gate_key = reader.Has("hidden_activation") ? "hidden_activation" : "hidden_act";
  ASSIGN_OR_RETURN(const std::string gate, reader.Text(gate_key, "silu"));
  ASSIGN_OR_RETURN(config.gate, ParseGate(gate));
  ASSIGN_OR_RETURN(config.tied_output, reader.Flag("tie_word_embeddings", tied));
  return ReadJsonIds(checkpoint, config);
}

absl::Status ReadJsonHeads(const Checkpoint& checkpoint, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ASSIGN_OR_RETURN(config.num_kv_heads,
                   reader.Int("num_key_value_heads", UpTo(kMaxHeads), config.num_heads));
  RETURN_IF_ERROR(CheckHeads(config, reader.FullKey("num_attention_heads"), "num_key_value_heads"));
  if (!reader.Has("head_dim")) {
    ASSIGN_OR_RETURN(config.head_dim, DefaultHeadDim(config));
  }
  ASSIGN_OR_RETURN(config.head_dim, reader.Int("head_dim", UpTo(kMaxHeadDim), config.head_dim));
  config.attention_scale = InverseRoot(config.head_dim);
  ASSIGN_OR_RETURN(RopeParameters rope,
                   ReadJsonRope(checkpoint.config(), RotaryPairs::kHalfSplit, config.head_dim,
                                config.context_length, "full_attention"));
  config.ropes = {std::move(rope.rope)};
  return absl::OkStatus();
}

absl::Status ReadJsonWindows(const Checkpoint& checkpoint, int pattern, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ASSIGN_OR_RETURN(const bool is_used, reader.Flag("use_sliding_window", true));
  if (!is_used || !reader.Has("sliding_window")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int window, reader.Int("sliding_window", UpTo(kMaxContextLength)));
  SetWindows(window, pattern, config);
  ASSIGN_OR_RETURN(const std::vector<std::string> types, reader.Texts("layer_types", kMaxLayers));
  if (types.empty()) return absl::OkStatus();
  if (static_cast<int>(types.size()) != config.num_layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        reader.FullKey("layer_types"), " has another length: expected=", config.num_layers,
        " actual=", types.size()));
  }
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const bool is_full = types[layer] == "full_attention";
    if (!is_full && types[layer] != "sliding_attention") {
      return absl::UnimplementedError(absl::StrCat(reader.FullKey("layer_types"),
                                                   " is unknown: value=\"", Printable(types[layer]),
                                                   "\" known=full_attention, sliding_attention"));
    }
    config.layers[layer].window = is_full ? 0 : window;
  }
  return absl::OkStatus();
}

absl::Status ReadJsonLateWindows(const Checkpoint& checkpoint, bool used, int first,
                                 ModelConfig& config) {
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ASSIGN_OR_RETURN(used, reader.Flag("use_sliding_window", used));
  if (!used) return absl::OkStatus();
  RETURN_IF_ERROR(ReadJsonWindows(checkpoint, 0, config));
  if (reader.Has("layer_types")) return absl::OkStatus();
  ASSIGN_OR_RETURN(first, reader.Int("max_window_layers", FromZeroTo(kMaxLayers), first));
  for (int layer = 0; layer < std::min(first, config.num_layers); ++layer)
    config.layers[layer].window = 0;
  return absl::OkStatus();
}

absl::Status ReadJsonExpertCounts(const ParameterReader& reader, std::string_view count_key,
                                  ExpertsConfig& experts) {
  ASSIGN_OR_RETURN(experts.num_experts, reader.Int(count_key, UpTo(kMaxExperts)));
  ASSIGN_OR_RETURN(experts.num_chosen,
                   reader.Int("num_experts_per_tok", UpTo(kMaxExpertsPerToken)));
  return absl::OkStatus();
}

absl::Status ReadJsonExpertGroups(const ParameterReader& reader, int group_top,
                                  ExpertsConfig& experts) {
  ASSIGN_OR_RETURN(experts.num_groups, reader.Int("n_group", UpTo(kMaxExperts), 1));
  ASSIGN_OR_RETURN(experts.num_groups_kept, reader.Int("topk_group", UpTo(kMaxExperts), 1));
  experts.group_top = group_top;
  return CheckExperts(experts);
}

// ------------------------------------------------------------------------------------------ GGUF

absl::Status ReadGgufSizes(const Checkpoint& checkpoint, const ParameterReader& reader,
                           ModelConfig& config) {
  for (const std::string_view key : kGgufSettingsOutsideTheGraph) {
    ASSIGN_OR_RETURN(const double value, reader.Number(key, {-1e30, 1e30}, 0.0));
    if (value != 0) return NotInTheGraph(absl::StrCat(reader.FullKey(key), "=", value));
  }
  ASSIGN_OR_RETURN(config.num_layers, reader.Int("block_count", UpTo(kMaxLayers)));
  config.layers.resize(config.num_layers);
  ASSIGN_OR_RETURN(config.model_dim, reader.Int("embedding_length", UpTo(kMaxModelDim)));
  ASSIGN_OR_RETURN(config.num_heads, reader.Int("attention.head_count", UpTo(kMaxHeads)));
  ASSIGN_OR_RETURN(config.ffn_dim, reader.Int("feed_forward_length", UpTo(kMaxFfnDim)));
  ASSIGN_OR_RETURN(config.context_length, reader.Int("context_length", UpTo(kMaxContextLength)));
  ASSIGN_OR_RETURN(config.norm_eps,
                   reader.Number("attention.layer_norm_rms_epsilon", kEpsilonLimits));
  ASSIGN_OR_RETURN(config.score_cap, reader.Number("attn_logit_softcapping", kCapLimits, 0.0));
  ASSIGN_OR_RETURN(config.logit_cap, reader.Number("final_logit_softcapping", kCapLimits, 0.0));
  ASSIGN_OR_RETURN(const int rows, EmbeddingRows(checkpoint, config));
  ASSIGN_OR_RETURN(config.vocab_size, reader.Int("vocab_size", UpTo(kMaxVocabSize), rows));
  config.tied_output = checkpoint.Find(WeightName(config, WeightRole::kOutput, 0)) == nullptr;
  return ReadGgufIds(checkpoint.metadata(), config);
}

absl::Status ReadGgufHeads(const Checkpoint& checkpoint, const ParameterReader& reader,
                           RotaryPairs pairs, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.num_kv_heads,
                   reader.Int("attention.head_count_kv", UpTo(kMaxHeads), config.num_heads));
  RETURN_IF_ERROR(CheckHeads(config, reader.FullKey("attention.head_count"),
                             reader.FullKey("attention.head_count_kv")));
  if (!reader.Has("attention.key_length")) {
    ASSIGN_OR_RETURN(config.head_dim, DefaultHeadDim(config));
  }
  ASSIGN_OR_RETURN(config.head_dim,
                   reader.Int("attention.key_length", UpTo(kMaxHeadDim), config.head_dim));
  ASSIGN_OR_RETURN(const int value_dim,
                   reader.Int("attention.value_length", UpTo(kMaxHeadDim), config.head_dim));
  if (value_dim != config.head_dim) {
    return NotInTheGraph(absl::StrCat("values of another size than keys: key_length=",
                                      config.head_dim, " value_length=", value_dim));
  }
  config.attention_scale = InverseRoot(config.head_dim);
  config.qkv_bias = checkpoint.Find(WeightName(config, WeightRole::kQueryBias, 0)) != nullptr;
  config.qk_norm = checkpoint.Find(WeightName(config, WeightRole::kQueryNorm, 0)) != nullptr;
  ASSIGN_OR_RETURN(RopeParameters rope, ReadGgufRope(checkpoint, reader, pairs, config.head_dim,
                                                     config.head_dim, config.context_length));
  config.ropes = {std::move(rope.rope)};
  return absl::OkStatus();
}

absl::Status ReadGgufWindows(const ParameterReader& reader, int pattern, ModelConfig& config) {
  ASSIGN_OR_RETURN(const int window,
                   reader.Int("attention.sliding_window", FromZeroTo(kMaxContextLength), 0));
  ASSIGN_OR_RETURN(pattern,
                   reader.Int("attention.sliding_window_pattern", FromZeroTo(kMaxLayers), pattern));
  SetWindows(window, pattern, config);
  return absl::OkStatus();
}

absl::Status ReadGgufExperts(const ParameterReader& reader, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  ASSIGN_OR_RETURN(experts.num_experts, reader.Int("expert_count", FromZeroTo(kMaxExperts), 0));
  if (experts.num_experts == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(experts.num_chosen, reader.Int("expert_used_count", UpTo(kMaxExpertsPerToken)));
  ASSIGN_OR_RETURN(experts.ffn_dim,
                   reader.Int("expert_feed_forward_length", UpTo(kMaxFfnDim), config.ffn_dim));
  ASSIGN_OR_RETURN(const int dense,
                   reader.Int("leading_dense_block_count", FromZeroTo(kMaxLayers), 0));
  for (int layer = dense; layer < config.num_layers; ++layer) config.layers[layer].experts = true;
  return CheckExperts(experts);
}

absl::Status ReadGgufLatentAttention(const Checkpoint& checkpoint, const ParameterReader& reader,
                                     ModelConfig& config) {
  MlaConfig& mla = config.mla;
  mla.split_up = checkpoint.Find(WeightName(config, WeightRole::kKeyUp, 0)) != nullptr;
  ASSIGN_OR_RETURN(mla.query_latent_dim,
                   reader.Int("attention.q_lora_rank", FromZeroTo(kMaxLatentDim), 0));
  ASSIGN_OR_RETURN(mla.latent_dim, reader.Int("attention.kv_lora_rank", UpTo(kMaxLatentDim)));
  ASSIGN_OR_RETURN(mla.rope_dim, reader.Int("rope.dimension_count", UpTo(kMaxHeadDim)));
  const bool has_own_keys = reader.Has("attention.key_length_mla");
  ASSIGN_OR_RETURN(const int query_dim,
                   reader.Int(has_own_keys ? "attention.key_length_mla" : "attention.key_length",
                              UpTo(kMaxHeadDim)));
  ASSIGN_OR_RETURN(mla.value_dim, reader.Int(has_own_keys ? "attention.value_length_mla"
                                                          : "attention.value_length",
                                             UpTo(kMaxHeadDim)));
  mla.nope_dim = query_dim - mla.rope_dim;
  if (mla.nope_dim < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a head has no element that does not turn: key_length=", query_dim,
                     " rope.dimension_count=", mla.rope_dim));
  }
  ASSIGN_OR_RETURN(const RopeParameters rope,
                   ReadGgufRope(checkpoint, reader, RotaryPairs::kInterleaved, mla.rope_dim,
                                mla.rope_dim, config.context_length));
  return SetLatentAttention(rope, config);
}

}  // namespace cairn
