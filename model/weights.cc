// The weights of the graph: names, shapes, and the check that a checkpoint has just these.
#include <algorithm>

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

bool IsRedundant(const ModelConfig& config, const Tensor& tensor) {
  // A copy of the embedding that the graph reads from there.
  if (config.tied_output && tensor.name == WeightName(config, WeightRole::kOutput, 0)) return true;
  const std::string_view name = tensor.name;
  return std::any_of(std::begin(kRedundantSuffixes), std::end(kRedundantSuffixes),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace

bool HasWeight(const ModelConfig& config, WeightRole role) {
  switch (role) {
    case WeightRole::kQueryBias:
    case WeightRole::kKeyBias:
    case WeightRole::kValueBias:
      return config.qkv_bias;
    case WeightRole::kOutput:
      return !config.tied_output;
    case WeightRole::kAttentionNorm:
    case WeightRole::kQuery:
    case WeightRole::kKey:
    case WeightRole::kValue:
    case WeightRole::kAttentionOutput:
    case WeightRole::kFfnNorm:
    case WeightRole::kGate:
    case WeightRole::kUp:
    case WeightRole::kDown:
    case WeightRole::kTokenEmbedding:
    case WeightRole::kFinalNorm:
      return true;
  }
  return false;
}

std::string WeightName(const ModelConfig& config, WeightRole role, int layer) {
  const std::string_view pattern = config.tensor_names[static_cast<size_t>(role)];
  const size_t mark = pattern.find('#');
  CHECK_EQ(mark != std::string_view::npos, IsLayerWeight(role));
  if (mark == std::string_view::npos) return std::string(pattern);
  std::string name(pattern);
  return name.replace(mark, 1, absl::StrCat(layer));
}

std::vector<int64_t> WeightShape(const ModelConfig& config, WeightRole role) {
  const int64_t model_dim = config.model_dim;
  const int64_t query_dim = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_dim = int64_t{config.num_kv_heads} * config.head_dim;
  switch (role) {
    case WeightRole::kAttentionNorm:
    case WeightRole::kFfnNorm:
    case WeightRole::kFinalNorm:
      return {model_dim};
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
    case WeightRole::kAttentionOutput:
      return {model_dim, query_dim};
    case WeightRole::kGate:
    case WeightRole::kUp:
      return {config.ffn_dim, model_dim};
    case WeightRole::kDown:
      return {model_dim, config.ffn_dim};
    case WeightRole::kTokenEmbedding:
    case WeightRole::kOutput:
      return {config.vocab_size, model_dim};
  }
  return {};
}

absl::StatusOr<const Tensor*> FindWeight(const Checkpoint& checkpoint, const ModelConfig& config,
                                         WeightRole role, int layer) {
  CHECK(HasWeight(config, role)) << static_cast<int>(role);
  const std::string name = WeightName(config, role, layer);
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
  std::vector<const Tensor*> found;
  for (int i = 0; i < kNumWeightRoles; ++i) {
    const auto role = static_cast<WeightRole>(i);
    if (!HasWeight(config, role)) continue;
    const int repeats = IsLayerWeight(role) ? config.num_layers : 1;
    for (int layer = 0; layer < repeats; ++layer) {
      ASSIGN_OR_RETURN(const Tensor* const tensor, FindWeight(checkpoint, config, role, layer));
      found.push_back(tensor);
      if (tensor->scales != nullptr) found.push_back(tensor->scales);
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
