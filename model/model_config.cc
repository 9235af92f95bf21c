#include "model/model_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "model/float8_scales.h"
#include "model/parameter_reader.h"
#include "model/rope_config.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using TensorNames = std::array<std::string_view, kNumWeightRoles>;

// In the order of WeightRole.
constexpr TensorNames kGgufNames = {
    "blk.#.attn_norm.weight", "blk.#.attn_q.weight",      "blk.#.attn_k.weight",
    "blk.#.attn_v.weight",    "blk.#.attn_q.bias",        "blk.#.attn_k.bias",
    "blk.#.attn_v.bias",      "blk.#.attn_output.weight", "blk.#.ffn_norm.weight",
    "blk.#.ffn_gate.weight",  "blk.#.ffn_up.weight",      "blk.#.ffn_down.weight",
    "token_embd.weight",      "output_norm.weight",       "output.weight",
};
constexpr TensorNames kSafetensorsNames = {
    "model.layers.#.input_layernorm.weight",
    "model.layers.#.self_attn.q_proj.weight",
    "model.layers.#.self_attn.k_proj.weight",
    "model.layers.#.self_attn.v_proj.weight",
    "model.layers.#.self_attn.q_proj.bias",
    "model.layers.#.self_attn.k_proj.bias",
    "model.layers.#.self_attn.v_proj.bias",
    "model.layers.#.self_attn.o_proj.weight",
    "model.layers.#.post_attention_layernorm.weight",
    "model.layers.#.mlp.gate_proj.weight",
    "model.layers.#.mlp.up_proj.weight",
    "model.layers.#.mlp.down_proj.weight",
    "model.embed_tokens.weight",
    "model.norm.weight",
    "lm_head.weight",
};

constexpr NumberLimits kFactorLimits = {.min = 1e-6, .max = 1e6};
constexpr NumberLimits kRopeBaseLimits = {.min = 1, .max = 1e15};
constexpr NumberLimits kEpsilonLimits = {.min = 1e-12, .max = 0.1};

constexpr IntLimits UpTo(int limit) { return {.min = 1, .max = limit}; }

absl::Status NotInTheGraph(const std::string& setting) {
  return absl::UnimplementedError(
      absl::StrCat("the model needs something that the graph does not have: ", setting));
}

// ---------------------------------------------------------------------------------------- rope

absl::Status CheckRotaryDim(int rotary_dim, int head_dim) {
  if (rotary_dim % 2 == 0 && rotary_dim <= head_dim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the number of rotated elements is odd or more than a head has: rotary_dim=", rotary_dim,
      " head_dim=", head_dim));
}

// Reads "rope_scaling" (older files) or "rope_parameters" (newer ones, which also hold the base).
absl::Status ReadJsonRope(const nlohmann::json& json, ModelConfig& config) {
  const ParameterReader top(&json, "config.json: ");
  const bool is_new = top.Has("rope_parameters");
  const char* const section = is_new ? "rope_parameters" : "rope_scaling";
  const auto found = json.find(section);
  const nlohmann::json empty = nlohmann::json::object();
  const bool is_given = found != json.end() && !found->is_null();
  if (is_given && !found->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json: ", section, " is neither null nor an object"));
  }
  const nlohmann::json& object = is_given ? *found : empty;
  const ParameterReader scaling(&object, absl::StrCat("config.json: ", section, "."));
  const ParameterReader& base_reader = scaling.Has("rope_theta") ? scaling : top;
  ASSIGN_OR_RETURN(const double base, base_reader.Number("rope_theta", kRopeBaseLimits, 10000.0));
  ASSIGN_OR_RETURN(const double share, top.Number("partial_rotary_factor", {0, 1}, 1.0));
  if (share != 1) return NotInTheGraph(absl::StrCat("partial_rotary_factor=", share));

  RopeConfig& rope = config.rope;
  rope.pairs = RotaryPairs::kHalfSplit;
  rope.rotary_dim = config.head_dim;
  RETURN_IF_ERROR(CheckRotaryDim(rope.rotary_dim, config.head_dim));
  rope.inverse_frequency = InverseFrequencies(base, rope.rotary_dim);

  const char* const kind_key = scaling.Has("rope_type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const std::string kind, scaling.Text(kind_key, "default"));
  if (kind == "default") return absl::OkStatus();
  if (kind == "linear") {
    ASSIGN_OR_RETURN(const double factor, scaling.Number("factor", kFactorLimits));
    ScaleLinear(factor, rope.inverse_frequency);
    return absl::OkStatus();
  }
  if (kind == "llama3") {
    WavelengthScaling waves;
    ASSIGN_OR_RETURN(waves.factor, scaling.Number("factor", kFactorLimits));
    ASSIGN_OR_RETURN(waves.low_frequency_factor, scaling.Number("low_freq_factor", kFactorLimits));
    ASSIGN_OR_RETURN(waves.high_frequency_factor,
                     scaling.Number("high_freq_factor", kFactorLimits));
    ASSIGN_OR_RETURN(waves.original_context_length,
                     scaling.Number("original_max_position_embeddings", {1, kMaxContextLength}));
    if (waves.low_frequency_factor >= waves.high_frequency_factor) {
      return absl::InvalidArgumentError(
          absl::StrCat(scaling.FullKey("low_freq_factor"), " is not below high_freq_factor: low=",
                       waves.low_frequency_factor, " high=", waves.high_frequency_factor));
    }
    ScaleByWavelength(waves, rope.inverse_frequency);
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(scaling.FullKey(kind_key), " is unknown: value=\"",
                                               Printable(kind),
                                               "\" known=default, linear, llama3"));
}

// GGUF keeps the result of a scaling that treats frequencies apart as a tensor of divisors.
absl::Status ApplyRopeFactors(const Checkpoint& checkpoint, RopeConfig& rope) {
  const Tensor* const tensor = checkpoint.Find("rope_freqs.weight");
  if (tensor == nullptr) return absl::OkStatus();
  const auto wanted = static_cast<int64_t>(rope.inverse_frequency.size());
  if (tensor->dtype != DType::kF32 || tensor->shape != std::vector<int64_t>{wanted}) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor rope_freqs.weight has another type or shape: expected=F32 [", wanted,
                     "] actual=", tensor->type_name, " ", ShapeText(tensor->shape)));
  }
  std::vector<float> factors(static_cast<size_t>(wanted));
  std::memcpy(factors.data(), tensor->data.data(), tensor->data.size());
  for (const float factor : factors) {
    if (!(factor >= kFactorLimits.min && factor <= kFactorLimits.max)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor rope_freqs.weight has a factor out of range: value=", factor,
                       " min=", kFactorLimits.min, " max=", kFactorLimits.max));
    }
  }
  DivideByFactors(factors, rope.inverse_frequency);
  return absl::OkStatus();
}

absl::Status ReadGgufRope(const Checkpoint& checkpoint, const ParameterReader& reader,
                          ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.pairs = RotaryPairs::kInterleaved;  // converters permute the rows of q and k for it
  ASSIGN_OR_RETURN(rope.rotary_dim,
                   reader.Int("rope.dimension_count", UpTo(kMaxHeadDim), config.head_dim));
  RETURN_IF_ERROR(CheckRotaryDim(rope.rotary_dim, config.head_dim));
  ASSIGN_OR_RETURN(const double base, reader.Number("rope.freq_base", kRopeBaseLimits, 10000.0));
  rope.inverse_frequency = InverseFrequencies(base, rope.rotary_dim);
  ASSIGN_OR_RETURN(rope.amplitude, reader.Number("rope.scaling.attn_factor", kFactorLimits, 1.0));
  ASSIGN_OR_RETURN(const std::string kind, reader.Text("rope.scaling.type", "linear"));
  if (kind != "none" && kind != "linear") {
    return absl::UnimplementedError(absl::StrCat(reader.FullKey("rope.scaling.type"),
                                                 " is unknown: value=\"", Printable(kind),
                                                 "\" known=none, linear"));
  }
  // Files of before 2024 call the factor scale_linear; 0 stands for none.
  const char* const key = reader.Has("rope.scaling.factor") ? "rope.scaling.factor"  //
                                                            : "rope.scale_linear";
  ASSIGN_OR_RETURN(const double factor, reader.Number(key, {0, kFactorLimits.max}, 1.0));
  if (kind == "linear" && factor != 0) {
    if (factor < kFactorLimits.min) {
      return absl::InvalidArgumentError(absl::StrCat(
          reader.FullKey(key), " is out of range: value=", factor, " min=", kFactorLimits.min));
    }
    ScaleLinear(factor, rope.inverse_frequency);
  }
  return ApplyRopeFactors(checkpoint, rope);
}

// ------------------------------------------------------------------------------------ token ids

// Ids of the model itself must be inside the vocabulary; a negative one stands for none.
absl::StatusOr<std::vector<int32_t>> ReadIds(const ParameterReader& reader, std::string_view key,
                                             int vocab_size) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, reader.Integers(key, kMaxEndOfSequenceIds));
  std::vector<int32_t> result;
  for (const int64_t id : ids) {
    if (id >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          reader.FullKey(key), " is not in the vocabulary: id=", id, " vocabulary=", vocab_size));
    }
    if (id >= 0) result.push_back(static_cast<int32_t>(id));
  }
  return result;
}

absl::Status AddEosIds(const ParameterReader& reader, std::string_view key, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(reader, key, config.vocab_size));
  std::vector<int32_t>& known = config.eos_ids;
  for (const int32_t id : ids) {
    if (std::find(known.begin(), known.end(), id) == known.end()) known.push_back(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> ReadId(const ParameterReader& reader, std::string_view key,
                               int vocab_size) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(reader, key, vocab_size));
  return ids.empty() ? -1 : ids.front();
}

// Padding is often a token that was added to the tokenizer but not to the embedding: nothing here
// needs one, so that is none rather than an error.
absl::StatusOr<int32_t> ReadPadId(const ParameterReader& reader, std::string_view key,
                                  int vocab_size) {
  ASSIGN_OR_RETURN(const int32_t id, ReadId(reader, key, kMaxVocabSize));
  return id < vocab_size ? id : -1;
}

absl::Status ReadGgufIds(const Metadata& metadata, ModelConfig& config) {
  const ParameterReader reader(&metadata, "tokenizer.ggml.");
  ASSIGN_OR_RETURN(config.bos_id, ReadId(reader, "bos_token_id", config.vocab_size));
  ASSIGN_OR_RETURN(config.pad_id, ReadPadId(reader, "padding_token_id", config.vocab_size));
  for (const char* const key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    RETURN_IF_ERROR(AddEosIds(reader, key, config));
  }
  if (reader.Has("add_bos_token")) {
    ASSIGN_OR_RETURN(config.add_bos, reader.Flag("add_bos_token", false));
  }
  if (reader.Has("add_eos_token")) {
    ASSIGN_OR_RETURN(config.add_eos, reader.Flag("add_eos_token", false));
  }
  return absl::OkStatus();
}

absl::Status ReadJsonIds(const Checkpoint& checkpoint, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ASSIGN_OR_RETURN(config.bos_id, ReadId(reader, "bos_token_id", config.vocab_size));
  ASSIGN_OR_RETURN(config.pad_id, ReadPadId(reader, "pad_token_id", config.vocab_size));
  RETURN_IF_ERROR(AddEosIds(reader, "eos_token_id", config));
  if (!checkpoint.generation_config().is_object()) return absl::OkStatus();
  const ParameterReader generation(&checkpoint.generation_config(), "generation_config.json: ");
  return AddEosIds(generation, "eos_token_id", config);
}

// ------------------------------------------------------------------------------------- families

absl::StatusOr<FfnGate> ParseGate(const std::string& name) {
  if (name == "silu" || name == "swish") return FfnGate::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return FfnGate::kGeluTanh;
  return absl::UnimplementedError(absl::StrCat("config.json: hidden_act is unknown: value=\"",
                                               Printable(name),
                                               "\" known=silu, gelu_pytorch_tanh"));
}

absl::Status CheckHeads(const ModelConfig& config) {
  if (config.num_kv_heads > config.num_heads || config.num_heads % config.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the query heads are no multiple of the key heads: query_heads=", config.num_heads,
        " kv_heads=", config.num_kv_heads));
  }
  return absl::OkStatus();
}

// Head size of a file that gives none.
absl::StatusOr<int> DefaultHeadDim(const ModelConfig& config) {
  if (config.model_dim % config.num_heads == 0) return config.model_dim / config.num_heads;
  return absl::InvalidArgumentError(
      absl::StrCat("the model dimension is no multiple of the heads, and no head size is given: ",
                   "model_dim=", config.model_dim, " heads=", config.num_heads));
}

absl::Status ParseLlamaJson(const Checkpoint& checkpoint, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  for (const char* const key : {"attention_bias", "mlp_bias"}) {
    ASSIGN_OR_RETURN(const bool has_bias, reader.Flag(key, false));
    if (has_bias) return NotInTheGraph(absl::StrCat(reader.FullKey(key), "=true"));
  }
  const auto quantization = checkpoint.config().find("quantization_config");
  if (quantization != checkpoint.config().end()) {
    RETURN_IF_ERROR(Annotate(CheckQuantization(*quantization), "config.json"));
  }
  ASSIGN_OR_RETURN(config.num_layers, reader.Int("num_hidden_layers", UpTo(kMaxLayers)));
  ASSIGN_OR_RETURN(config.model_dim, reader.Int("hidden_size", UpTo(kMaxModelDim)));
  ASSIGN_OR_RETURN(config.num_heads, reader.Int("num_attention_heads", UpTo(kMaxHeads)));
  ASSIGN_OR_RETURN(config.num_kv_heads,
                   reader.Int("num_key_value_heads", UpTo(kMaxHeads), config.num_heads));
  RETURN_IF_ERROR(CheckHeads(config));
  if (!reader.Has("head_dim")) {
    ASSIGN_OR_RETURN(config.head_dim, DefaultHeadDim(config));
  }
  ASSIGN_OR_RETURN(config.head_dim, reader.Int("head_dim", UpTo(kMaxHeadDim), config.head_dim));
  ASSIGN_OR_RETURN(config.ffn_dim, reader.Int("intermediate_size", UpTo(kMaxFfnDim)));
  ASSIGN_OR_RETURN(config.vocab_size, reader.Int("vocab_size", UpTo(kMaxVocabSize)));
  ASSIGN_OR_RETURN(config.context_length,
                   reader.Int("max_position_embeddings", UpTo(kMaxContextLength)));
  ASSIGN_OR_RETURN(config.norm_eps, reader.Number("rms_norm_eps", kEpsilonLimits, 1e-6));
  ASSIGN_OR_RETURN(const std::string gate, reader.Text("hidden_act", "silu"));
  ASSIGN_OR_RETURN(config.gate, ParseGate(gate));
  ASSIGN_OR_RETURN(config.tied_output, reader.Flag("tie_word_embeddings", false));
  RETURN_IF_ERROR(ReadJsonRope(checkpoint.config(), config));
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  return ReadJsonIds(checkpoint, config);
}

// Settings that would change the result, and that must be absent or zero.
constexpr std::string_view kGgufSettingsOutsideTheGraph[] = {
    "expert_count",
    "attention.sliding_window",
    "attention.scale",
    "attention.max_alibi_bias",
    "attention.clamp_kqv",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
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

absl::Status ParseLlamaGguf(const Checkpoint& checkpoint, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.metadata(), config.architecture + ".");
  for (const std::string_view key : kGgufSettingsOutsideTheGraph) {
    ASSIGN_OR_RETURN(const double value, reader.Number(key, {-1e30, 1e30}, 0.0));
    if (value != 0) return NotInTheGraph(absl::StrCat(reader.FullKey(key), "=", value));
  }
  ASSIGN_OR_RETURN(config.num_layers, reader.Int("block_count", UpTo(kMaxLayers)));
  ASSIGN_OR_RETURN(config.model_dim, reader.Int("embedding_length", UpTo(kMaxModelDim)));
  ASSIGN_OR_RETURN(config.num_heads, reader.Int("attention.head_count", UpTo(kMaxHeads)));
  ASSIGN_OR_RETURN(config.num_kv_heads,
                   reader.Int("attention.head_count_kv", UpTo(kMaxHeads), config.num_heads));
  RETURN_IF_ERROR(CheckHeads(config));
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
  ASSIGN_OR_RETURN(config.ffn_dim, reader.Int("feed_forward_length", UpTo(kMaxFfnDim)));
  ASSIGN_OR_RETURN(config.context_length, reader.Int("context_length", UpTo(kMaxContextLength)));
  ASSIGN_OR_RETURN(config.norm_eps,
                   reader.Number("attention.layer_norm_rms_epsilon", kEpsilonLimits));
  ASSIGN_OR_RETURN(const int rows, EmbeddingRows(checkpoint, config));
  ASSIGN_OR_RETURN(config.vocab_size, reader.Int("vocab_size", UpTo(kMaxVocabSize), rows));
  config.gate = FfnGate::kSilu;
  config.tied_output = checkpoint.Find(WeightName(config, WeightRole::kOutput, 0)) == nullptr;
  config.qkv_bias = checkpoint.Find(WeightName(config, WeightRole::kQueryBias, 0)) != nullptr;
  RETURN_IF_ERROR(ReadGgufRope(checkpoint, reader, config));
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  return ReadGgufIds(checkpoint.metadata(), config);
}

using ParseFunction = absl::Status (*)(const Checkpoint& checkpoint, ModelConfig& config);

struct Family {
  std::string_view name;  // GGUF's general.architecture
  ParseFunction parse_gguf;
  const TensorNames& gguf_names;
  std::string_view model_type;  // config.json's, and the first of its architectures
  std::string_view architecture;
  ParseFunction parse_json;
  const TensorNames& safetensors_names;
};

constexpr Family kFamilies[] = {
    {"llama", ParseLlamaGguf, kGgufNames, "llama", "LlamaForCausalLM", ParseLlamaJson,
     kSafetensorsNames},
};

// `column` is the name of a family in the format of the file.
absl::Status UnknownArchitecture(const std::string& name, std::string_view Family::*column) {
  const std::string known =
      absl::StrJoin(kFamilies, ", ",
                    [&](std::string* out, const Family& family) { out->append(family.*column); });
  return absl::UnimplementedError(
      absl::StrCat("the architecture is unknown: value=\"", Printable(name), "\" known=", known));
}

absl::StatusOr<ModelConfig> LoadGguf(const Checkpoint& checkpoint) {
  const ParameterReader general(&checkpoint.metadata(), "general.");
  ASSIGN_OR_RETURN(const std::string architecture, general.Text("architecture"));
  for (const Family& family : kFamilies) {
    if (family.name != architecture) continue;
    ModelConfig config;
    config.architecture = architecture;
    config.tensor_names = family.gguf_names;
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
  ASSIGN_OR_RETURN(const std::string architecture, reader.FirstText("architectures"));
  if (model_type.empty() && architecture.empty()) {
    return absl::InvalidArgumentError("config.json: neither model_type nor architectures is given");
  }
  for (const Family& family : kFamilies) {
    if (!model_type.empty() && family.model_type != model_type) continue;
    if (!architecture.empty() && family.architecture != architecture) continue;
    ModelConfig config;
    config.architecture = family.name;
    config.tensor_names = family.safetensors_names;
    ASSIGN_OR_RETURN(config.name, reader.Text("_name_or_path", ""));
    RETURN_IF_ERROR(family.parse_json(checkpoint, config));
    return config;
  }
  return UnknownArchitecture(architecture.empty() ? model_type : architecture,
                             &Family::architecture);
}

}  // namespace

absl::StatusOr<ModelConfig> LoadModelConfig(const Checkpoint& checkpoint) {
  absl::StatusOr<ModelConfig> config =
      checkpoint.format() == CheckpointFormat::kGguf ? LoadGguf(checkpoint) : LoadJson(checkpoint);
  if (!config.ok()) return Annotate(config.status(), checkpoint.path());
  return config;
}

std::string CanonicalText(const ModelConfig& config) {
  const auto exact = [](double value) { return absl::StrFormat("%a", value); };
  const std::string frequencies =
      absl::StrJoin(config.rope.inverse_frequency, ",",
                    [&](std::string* out, double value) { out->append(exact(value)); });
  return absl::StrCat(
      "architecture=", config.architecture, "\nlayers=", config.num_layers,
      "\nmodel_dim=", config.model_dim, "\nheads=", config.num_heads,
      "\nkv_heads=", config.num_kv_heads, "\nhead_dim=", config.head_dim,
      "\nffn_dim=", config.ffn_dim, "\nvocabulary=", config.vocab_size,
      "\nnorm_eps=", exact(config.norm_eps), "\nrope_pairs=", static_cast<int>(config.rope.pairs),
      "\nrotary_dim=", config.rope.rotary_dim, "\nrope_amplitude=", exact(config.rope.amplitude),
      "\nrope_inverse_frequency=", frequencies, "\nattention_scale=", exact(config.attention_scale),
      "\ngate=", static_cast<int>(config.gate), "\ntied_output=", config.tied_output,
      "\nqkv_bias=", config.qkv_bias, "\n");
}

}  // namespace cairn
