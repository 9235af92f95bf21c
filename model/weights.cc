// The weights of the graph: names, shapes, and the check that a checkpoint has just these.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "model/model_config.h"
#include "model/utf8.h"

namespace cairn {
namespace {

// Tensors that some converters leave in files and that hold nothing the config does not say.
constexpr std::string_view kRedundantSuffixes[] = {
    "rope_freqs.weight",
    "rotary_emb.inv_freq",
    "attn_rot_embd.weight",
};

std::string_view NamePattern(const ModelConfig& config, WeightRole role) {
  return config.tensor_names[static_cast<size_t>(role)];
}

// Layers that only draft tokens stand behind those of the graph.
bool IsOfDraftLayer(const ModelConfig& config, std::string_view name) {
  const std::string_view pattern = NamePattern(config, WeightRole::kAttentionNorm);
  const std::string_view before = pattern.substr(0, pattern.find('#'));
  if (config.num_draft_layers == 0 || !name.starts_with(before)) return false;
  name.remove_prefix(before.size());
  const size_t end = name.find('.');
  int layer = 0;
  return end != name.npos && absl::SimpleAtoi(absl::string_view(name.data(), end), &layer) &&
         absl::StrCat(layer).size() == end && layer >= config.num_layers &&
         layer < config.num_layers + config.num_draft_layers;
}

bool IsRedundant(const ModelConfig& config, const Tensor& tensor) {
  // A copy of the embedding that the graph reads from there.
  if (config.tied_output && tensor.name == WeightName(config, WeightRole::kOutput, 0)) return true;
  const std::string_view name = tensor.name;
  if (IsOfDraftLayer(config, name)) return true;
  return std::any_of(std::begin(kRedundantSuffixes), std::end(kRedundantSuffixes),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool HasAttentionWeight(const ModelConfig& config, WeightRole role) {
  const bool mla = config.attention == AttentionKind::kMla;
  const bool query_latent = mla && config.mla.query_latent_dim > 0;
  switch (role) {
    case WeightRole::kQuery:
      return !query_latent;
    case WeightRole::kKey:
    case WeightRole::kValue:
      return !mla;
    case WeightRole::kQueryBias:
    case WeightRole::kKeyBias:
    case WeightRole::kValueBias:
      return config.qkv_bias;
    case WeightRole::kQueryNorm:
    case WeightRole::kKeyNorm:
      return config.qk_norm;
    case WeightRole::kQueryDown:
    case WeightRole::kQueryDownNorm:
    case WeightRole::kQueryUp:
      return query_latent;
    case WeightRole::kKvDown:
    case WeightRole::kKvDownNorm:
      return mla;
    case WeightRole::kKvUp:
      return mla && !config.mla.split_up;
    case WeightRole::kKeyUp:
    case WeightRole::kValueUp:
      return mla && config.mla.split_up;
    default:
      return true;
  }
}

bool HasFfnWeight(const ModelConfig& config, WeightRole role, int layer) {
  const bool experts = config.layers[layer].experts;
  switch (role) {
    case WeightRole::kGate:
    case WeightRole::kUp:
    case WeightRole::kDown:
      return !experts;
    case WeightRole::kRouter:
    case WeightRole::kExpertGate:
    case WeightRole::kExpertUp:
    case WeightRole::kExpertDown:
      return experts;
    case WeightRole::kRouterBias:
      return experts && config.experts.choice_bias;
    case WeightRole::kSharedGate:
    case WeightRole::kSharedUp:
    case WeightRole::kSharedDown:
      return experts && config.experts.shared_ffn_dim > 0;
    default:
      return true;
  }
}

std::vector<int64_t> AttentionWeightShape(const ModelConfig& config, WeightRole role) {
  const MlaConfig& mla = config.mla;
  const int64_t model_dim = config.model_dim, heads = config.num_heads;
  const int64_t query_dim = heads * config.head_dim;
  const int64_t kv_dim = int64_t{config.num_kv_heads} * config.head_dim;
  switch (role) {
    case WeightRole::kQuery:
      return {query_dim, model_dim};
    case WeightRole::kKey:
    case WeightRole::kValue:
      return {kv_dim, model_dim};
    case WeightRole::kQueryBias:
      return {query_dim};
    case WeightRole::kKeyBias:
    case WeightRole::kValueBias:
      return {kv_dim};
    case WeightRole::kQueryNorm:
    case WeightRole::kKeyNorm:
      return {config.head_dim};
    case WeightRole::kQueryDown:
      return {mla.query_latent_dim, model_dim};
    case WeightRole::kQueryDownNorm:
      return {mla.query_latent_dim};
    case WeightRole::kQueryUp:
      return {query_dim, mla.query_latent_dim};
    case WeightRole::kKvDown:
      return {mla.cached_dim(), model_dim};
    case WeightRole::kKvDownNorm:
      return {mla.latent_dim};
    case WeightRole::kKvUp:
      return {heads * (mla.nope_dim + mla.value_dim), mla.latent_dim};
    case WeightRole::kKeyUp:
      return {heads, mla.latent_dim, mla.nope_dim};
    case WeightRole::kValueUp:
      return {heads, mla.value_dim, mla.latent_dim};
    default:  // kAttentionOutput
      return {model_dim,
              config.attention == AttentionKind::kMla ? heads * mla.value_dim : query_dim};
  }
}

// Of one expert; FindWeight knows that a tensor may hold them all.
std::vector<int64_t> FfnWeightShape(const ModelConfig& config, WeightRole role) {
  const int64_t model_dim = config.model_dim, num_experts = config.experts.num_experts;
  switch (role) {
    case WeightRole::kGate:
    case WeightRole::kUp:
      return {config.ffn_dim, model_dim};
    case WeightRole::kDown:
      return {model_dim, config.ffn_dim};
    case WeightRole::kRouter:
      return {num_experts, model_dim};
    case WeightRole::kRouterBias:
      return {num_experts};
    case WeightRole::kExpertGate:
    case WeightRole::kExpertUp:
      return {config.experts.ffn_dim, model_dim};
    case WeightRole::kExpertDown:
      return {model_dim, config.experts.ffn_dim};
    case WeightRole::kSharedGate:
    case WeightRole::kSharedUp:
      return {config.experts.shared_ffn_dim, model_dim};
    default:  // kSharedDown
      return {model_dim, config.experts.shared_ffn_dim};
  }
}

bool HasTensorPerExpert(const ModelConfig& config, WeightRole role) {
  return NamePattern(config, role).find('@') != std::string_view::npos;
}

}  // namespace

bool HasWeight(const ModelConfig& config, WeightRole role, int layer) {
  if (role >= WeightRole::kQuery && role <= WeightRole::kValueUp) {
    return HasAttentionWeight(config, role);
  }
  if (role >= WeightRole::kGate && role <= WeightRole::kSharedDown) {
    return HasFfnWeight(config, role, layer);
  }
  if (role == WeightRole::kPostAttentionNorm || role == WeightRole::kPostFfnNorm) {
    return config.post_norms;
  }
  return role != WeightRole::kOutput || !config.tied_output;
}

std::string WeightName(const ModelConfig& config, WeightRole role, int layer, int expert) {
  std::string name;
  for (const char c : NamePattern(config, role)) {
    if (c == '#')
      absl::StrAppend(&name, layer);
    else if (c == '@')
      absl::StrAppend(&name, expert);
    else
      name.push_back(c);
  }
  return name;
}

std::vector<int64_t> WeightShape(const ModelConfig& config, WeightRole role) {
  if (role >= WeightRole::kQuery && role <= WeightRole::kAttentionOutput) {
    return AttentionWeightShape(config, role);
  }
  if (role >= WeightRole::kGate && role <= WeightRole::kSharedDown) {
    std::vector<int64_t> shape = FfnWeightShape(config, role);
    if (IsExpertWeight(role) && !HasTensorPerExpert(config, role)) {
      shape.insert(shape.begin(), config.experts.num_experts);
    }
    return shape;
  }
  if (role == WeightRole::kTokenEmbedding || role == WeightRole::kOutput) {
    return {config.vocab_size, config.model_dim};
  }
  return {config.model_dim};  // a norm
}

absl::StatusOr<const Tensor*> FindWeight(const Checkpoint& checkpoint, const ModelConfig& config,
                                         WeightRole role, int layer, int expert) {
  CHECK(HasWeight(config, role, layer)) << static_cast<int>(role);
  const std::string name = WeightName(config, role, layer, expert);
  const Tensor* const tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint.path(), ": tensor ", name, " is missing"));
  }
  const std::vector<int64_t> shape = WeightShape(config, role);
  if (tensor->shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint.path(), ": tensor ", name, " has another shape: expected=", ShapeText(shape),
        " actual=", ShapeText(tensor->shape)));
  }
  // Vectors are read as numbers, never block by block.
  const bool is_vector = shape.size() == 1;
  if (!tensor->dtype.has_value() || (is_vector && Info(*tensor->dtype).quantised)) {
    return absl::UnimplementedError(
        absl::StrCat(checkpoint.path(), ": tensor ", name, " has a type that is not supported",
                     is_vector ? " for a vector" : "", ": type=", tensor->type_name));
  }
  return tensor;
}

absl::StatusOr<int64_t> ValidateWeights(const Checkpoint& checkpoint, const ModelConfig& config) {
  if (checkpoint.files().empty())
    return absl::InvalidArgumentError(absl::StrCat(checkpoint.path(), " alone has no weights"));
  std::vector<const Tensor*> found;
  for (int i = 0; i < kNumWeightRoles; ++i) {
    const auto role = static_cast<WeightRole>(i);
    const int num_layers = IsLayerWeight(role) ? config.num_layers : 1;
    const int num_experts =
        IsExpertWeight(role) && HasTensorPerExpert(config, role) ? config.experts.num_experts : 1;
    for (int layer = 0; layer < num_layers; ++layer) {
      if (!HasWeight(config, role, layer)) continue;
      for (int expert = 0; expert < num_experts; ++expert) {
        ASSIGN_OR_RETURN(const Tensor* const tensor,
                         FindWeight(checkpoint, config, role, layer, expert));
        found.push_back(tensor);
        if (tensor->scales != nullptr) found.push_back(tensor->scales);
      }
    }
  }
  // Views into one sorted array, so pointers have an order.
  std::sort(found.begin(), found.end());
  for (const Tensor& tensor : checkpoint.tensors()) {
    if (IsRedundant(config, tensor) || std::binary_search(found.begin(), found.end(), &tensor)) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint.path(), ": tensor ", Printable(tensor.name),
                     " has no place in the graph: expected_tensors=", found.size(),
                     " tensors_in_file=", checkpoint.tensors().size()));
  }
  return static_cast<int64_t>(found.size());
}

}  // namespace cairn
