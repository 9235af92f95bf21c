#include "model/rope_parameters.h"

#include <cstring>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/json_text.h"
#include "model/rope_config.h"
#include "model/utf8.h"

namespace cairn {
namespace {

constexpr NumberLimits kFactorLimits = {.min = 1e-6, .max = 1e6};
constexpr NumberLimits kBaseLimits = {.min = 1, .max = 1e15};
constexpr NumberLimits kBaseOfYarnLimits = {.min = 1 + 1e-6, .max = 1e15};
constexpr NumberLimits kContextLimits = {.min = 1, .max = kMaxContextLength};
constexpr NumberLimits kTurnsLimits = {.min = 1e-3, .max = 1e6};

absl::Status CheckRotaryDim(int rotary_dim, int head_dim) {
  if (rotary_dim % 2 == 0 && rotary_dim <= head_dim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the number of rotated elements is odd or more than a head has: rotary_dim=", rotary_dim,
      " head_dim=", head_dim));
}

struct YarnKeys {
  std::string_view factor, original_context_length, fast_turns, slow_turns;
};
constexpr YarnKeys kJsonYarnKeys = {"factor", "original_max_position_embeddings", "beta_fast",
                                    "beta_slow"};
constexpr YarnKeys kGgufYarnKeys = {"rope.scaling.factor", "rope.scaling.original_context_length",
                                    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"};

absl::StatusOr<YarnScaling> ReadYarn(const ParameterReader& reader, const YarnKeys& keys,
                                     int context_length, double base) {
  YarnScaling yarn = {.base = base};
  ASSIGN_OR_RETURN(yarn.factor, reader.Number(keys.factor, kFactorLimits));
  ASSIGN_OR_RETURN(yarn.original_context_length,
                   reader.Number(keys.original_context_length, kContextLimits,
                                 static_cast<double>(context_length)));
  ASSIGN_OR_RETURN(yarn.fast_turns, reader.Number(keys.fast_turns, kTurnsLimits, 32.0));
  ASSIGN_OR_RETURN(yarn.slow_turns, reader.Number(keys.slow_turns, kTurnsLimits, 1.0));
  if (yarn.fast_turns < yarn.slow_turns) {
    return absl::InvalidArgumentError(
        absl::StrCat(reader.FullKey(keys.fast_turns), " is below ", std::string(keys.slow_turns),
                     ": fast=", yarn.fast_turns, " slow=", yarn.slow_turns));
  }
  return yarn;
}

// The scores are scaled by the square of YaRN's amplitude.
double ScoreFactor(double factor, double scale) {
  const double amplitude = YarnAmplitude(factor, scale);
  return amplitude * amplitude;
}

// ----------------------------------------------------------------------------------- config.json

absl::Status ScaleJsonByWavelength(const ParameterReader& scaling, RopeConfig& rope) {
  WavelengthScaling waves;
  ASSIGN_OR_RETURN(waves.factor, scaling.Number("factor", kFactorLimits));
  ASSIGN_OR_RETURN(waves.low_frequency_factor, scaling.Number("low_freq_factor", kFactorLimits));
  ASSIGN_OR_RETURN(waves.high_frequency_factor, scaling.Number("high_freq_factor", kFactorLimits));
  ASSIGN_OR_RETURN(waves.original_context_length,
                   scaling.Number("original_max_position_embeddings", kContextLimits));
  if (waves.low_frequency_factor >= waves.high_frequency_factor) {
    return absl::InvalidArgumentError(
        absl::StrCat(scaling.FullKey("low_freq_factor"), " is not below high_freq_factor: low=",
                     waves.low_frequency_factor, " high=", waves.high_frequency_factor));
  }
  ScaleByWavelength(waves, rope.inverse_frequency);
  return absl::OkStatus();
}

absl::Status ScaleJsonByYarn(const ParameterReader& scaling, int context_length, double base,
                             RopeParameters& parameters) {
  ASSIGN_OR_RETURN(YarnScaling yarn, ReadYarn(scaling, kJsonYarnKeys, context_length, base));
  ASSIGN_OR_RETURN(yarn.whole_elements, scaling.Flag("truncate", true));
  ScaleByYarn(yarn, parameters.rope.inverse_frequency);

  constexpr NumberLimits kScaleLimits = {.min = 0, .max = kFactorLimits.max};
  ASSIGN_OR_RETURN(const double scale, scaling.Number("mscale", kScaleLimits, 0.0));
  ASSIGN_OR_RETURN(const double scale_of_all, scaling.Number("mscale_all_dim", kScaleLimits, 0.0));
  double amplitude = YarnAmplitude(yarn.factor, 1);
  if (scale != 0 && scale_of_all != 0) {
    amplitude = YarnAmplitude(yarn.factor, scale) / YarnAmplitude(yarn.factor, scale_of_all);
  }
  ASSIGN_OR_RETURN(parameters.rope.amplitude,
                   scaling.Number("attention_factor", kFactorLimits, amplitude));
  parameters.score_factor = ScoreFactor(yarn.factor, scale_of_all);
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------ GGUF

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

absl::Status ScaleGgufLinearly(const ParameterReader& reader, RopeConfig& rope) {
  // Files of before 2024 call the factor scale_linear; 0 stands for none.
  const char* const key = reader.Has("rope.scaling.factor") ? "rope.scaling.factor"  //
                                                            : "rope.scale_linear";
  ASSIGN_OR_RETURN(const double factor, reader.Number(key, {0, kFactorLimits.max}, 1.0));
  if (factor == 0) return absl::OkStatus();
  if (factor < kFactorLimits.min) {
    return absl::InvalidArgumentError(absl::StrCat(
        reader.FullKey(key), " is out of range: value=", factor, " min=", kFactorLimits.min));
  }
  ScaleLinear(factor, rope.inverse_frequency);
  return absl::OkStatus();
}

// The log multiplier is 0.1 of the scale of the scores; where it is given, the two amplitudes of
// the rotation cancel.
absl::Status ScaleGgufByYarn(const ParameterReader& reader, int context_length, double base,
                             RopeParameters& parameters) {
  ASSIGN_OR_RETURN(const YarnScaling yarn, ReadYarn(reader, kGgufYarnKeys, context_length, base));
  ASSIGN_OR_RETURN(const double extrapolation,
                   reader.Number("rope.scaling.yarn_ext_factor", {-1, kFactorLimits.max}, 1.0));
  if (extrapolation != 1 && extrapolation != -1) {  // -1: the kind of scaling decides
    return absl::UnimplementedError(
        absl::StrCat(reader.FullKey("rope.scaling.yarn_ext_factor"),
                     " is neither 1 nor -1, which the graph does not have: value=", extrapolation));
  }
  ScaleByYarn(yarn, parameters.rope.inverse_frequency);
  ASSIGN_OR_RETURN(const double multiplier,
                   reader.Number("rope.scaling.yarn_log_multiplier", {0, kFactorLimits.max}, 0.0));
  parameters.score_factor = ScoreFactor(yarn.factor, 10 * multiplier);
  if (multiplier == 0) parameters.rope.amplitude *= YarnAmplitude(yarn.factor, 1);
  return absl::OkStatus();
}

}  // namespace

RopeConfig PlainRope(RotaryPairs pairs, int rotary_dim, double base) {
  return {.pairs = pairs,
          .rotary_dim = rotary_dim,
          .inverse_frequency = InverseFrequencies(base, rotary_dim)};
}

absl::StatusOr<RopeParameters> ReadJsonRope(const nlohmann::json& config, RotaryPairs pairs,
                                            int rotary_dim, int context_length,
                                            std::string_view layer_type) {
  const ParameterReader top(&config, "config.json: ");
  const bool is_newer = top.Has("rope_parameters");
  if (is_newer && top.Has("rope_scaling")) {
    return absl::InvalidArgumentError(
        "config.json: rope_parameters and rope_scaling are both given; only one may be");
  }
  std::string section = is_newer ? "rope_parameters" : "rope_scaling";
  const nlohmann::json none;
  const auto found = config.find(section);
  const nlohmann::json* object = found == config.end() ? &none : &*found;
  if (const auto own = object->is_object() ? object->find(layer_type) : object->end();
      object->is_object() && own != object->end()) {
    absl::StrAppend(&section, ".", std::string(layer_type));
    object = &*own;
  }
  if (!object->is_null() && !object->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "config.json: ", section, " is neither null nor an object: value=", ShortJson(*object)));
  }
  const nlohmann::json empty = nlohmann::json::object();
  const ParameterReader scaling(object->is_null() ? &empty : object,
                                absl::StrCat("config.json: ", section, "."));
  const ParameterReader& base_reader = scaling.Has("rope_theta") ? scaling : top;
  ASSIGN_OR_RETURN(const double base, base_reader.Number("rope_theta", kBaseLimits, 10000.0));
  ASSIGN_OR_RETURN(const double share, top.Number("partial_rotary_factor", {0, 1}, 1.0));
  if (share != 1) {
    return absl::UnimplementedError(absl::StrCat(
        "the model needs something that the graph does not have: partial_rotary_factor=", share));
  }
  RETURN_IF_ERROR(CheckRotaryDim(rotary_dim, rotary_dim));
  RopeParameters parameters = {.rope = PlainRope(pairs, rotary_dim, base)};

  const char* const kind_key = scaling.Has("rope_type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const std::string kind, scaling.Text(kind_key, "default"));
  if (kind == "default") {
    if (!scaling.Has(kind_key) && scaling.Has("factor"))
      return absl::InvalidArgumentError(
          absl::StrCat(scaling.FullKey("factor"), " is given, but no rope_type"));
    return parameters;
  }
  if (kind == "linear") {
    ASSIGN_OR_RETURN(const double factor, scaling.Number("factor", kFactorLimits));
    ScaleLinear(factor, parameters.rope.inverse_frequency);
    return parameters;
  }
  if (kind == "llama3") {
    RETURN_IF_ERROR(ScaleJsonByWavelength(scaling, parameters.rope));
    return parameters;
  }
  if (kind == "yarn") {
    RETURN_IF_ERROR(base_reader.Number("rope_theta", kBaseOfYarnLimits, 10000.0).status());
    RETURN_IF_ERROR(ScaleJsonByYarn(scaling, context_length, base, parameters));
    return parameters;
  }
  return absl::UnimplementedError(absl::StrCat(scaling.FullKey(kind_key), " is unknown: value=\"",
                                               Printable(kind),
                                               "\" known=default, linear, llama3, yarn"));
}

absl::StatusOr<RopeParameters> ReadGgufRope(const Checkpoint& checkpoint,
                                            const ParameterReader& reader, RotaryPairs pairs,
                                            int rotary_dim, int head_dim, int context_length) {
  ASSIGN_OR_RETURN(rotary_dim,
                   reader.Int("rope.dimension_count", {.min = 1, .max = kMaxHeadDim}, rotary_dim));
  RETURN_IF_ERROR(CheckRotaryDim(rotary_dim, head_dim));
  ASSIGN_OR_RETURN(const std::string kind, reader.Text("rope.scaling.type", "linear"));
  ASSIGN_OR_RETURN(
      const double base,
      reader.Number("rope.freq_base", kind == "yarn" ? kBaseOfYarnLimits : kBaseLimits, 10000.0));
  RopeParameters parameters = {.rope = PlainRope(pairs, rotary_dim, base)};
  ASSIGN_OR_RETURN(parameters.rope.amplitude,
                   reader.Number("rope.scaling.attn_factor", kFactorLimits, 1.0));
  if (kind == "linear") {
    RETURN_IF_ERROR(ScaleGgufLinearly(reader, parameters.rope));
  } else if (kind == "yarn") {
    RETURN_IF_ERROR(ScaleGgufByYarn(reader, context_length, base, parameters));
  } else if (kind != "none") {
    return absl::UnimplementedError(absl::StrCat(reader.FullKey("rope.scaling.type"),
                                                 " is unknown: value=\"", Printable(kind),
                                                 "\" known=none, linear, yarn"));
  }
  RETURN_IF_ERROR(ApplyRopeFactors(checkpoint, parameters.rope));
  return parameters;
}

}  // namespace cairn
