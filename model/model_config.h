// What a model is, as data: the fields say what the graph does, never which model it is.
//
// One config describes both formats of a checkpoint. Families differ only in the row of a table in
// model_config.cc: how their hyper-parameters are read, and the names of their tensors.
// Thread: any; plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/checkpoint.h"

namespace cairn {

// Limits on what a file may ask for, far above any published model.
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxModelDim = 1 << 18;
inline constexpr int kMaxHeads = 4096;
inline constexpr int kMaxHeadDim = 1024;
inline constexpr int kMaxFfnDim = 1 << 22;
inline constexpr int kMaxVocabSize = 1 << 24;
inline constexpr int kMaxContextLength = 1 << 27;
inline constexpr int kMaxEndOfSequenceIds = 64;

// Which elements of a head turn together: (2i, 2i+1), or (i, i + rotary_dim/2).
enum class RotaryPairs : uint8_t { kInterleaved, kHalfSplit };

struct RopeConfig {
  RotaryPairs pairs = RotaryPairs::kHalfSplit;
  int rotary_dim = 0;  // leading elements of a head that turn; even, at most head_dim
  // [rotary_dim / 2] radians per position, every scaling rule already applied.
  std::vector<double> inverse_frequency;
  double amplitude = 1;  // multiplies cos and sin
};

// The activation of the gated feed-forward network.
enum class FfnGate : uint8_t { kSilu, kGeluTanh };

// The weights of the graph. Roles before kTokenEmbedding repeat in every layer.
enum class WeightRole : uint8_t {
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kQueryBias,  // the three biases only if config.qkv_bias
  kKeyBias,
  kValueBias,
  kAttentionOutput,
  kFfnNorm,
  kGate,
  kUp,
  kDown,
  kTokenEmbedding,
  kFinalNorm,
  kOutput,  // absent if config.tied_output: the embedding serves
};
inline constexpr int kNumWeightRoles = 15;
inline constexpr bool IsLayerWeight(WeightRole role) { return role < WeightRole::kTokenEmbedding; }

struct ModelConfig {
  std::string architecture;  // for display and identity only; nothing branches on it
  std::string name;          // for display; may be empty

  int num_layers = 0;
  int model_dim = 0;
  int num_heads = 0;  // query heads, a multiple of num_kv_heads
  int num_kv_heads = 0;
  int head_dim = 0;
  int ffn_dim = 0;
  int vocab_size = 0;  // rows of the embedding; the tokenizer may know fewer
  int context_length = 0;

  double norm_eps = 0;
  RopeConfig rope;
  double attention_scale = 0;  // multiplies q.k
  FfnGate gate = FfnGate::kSilu;
  bool tied_output = false;
  bool qkv_bias = false;

  // Token ids as the files give them; -1 if they give none. All are below vocab_size.
  int32_t bos_id = -1;
  int32_t pad_id = -1;
  std::vector<int32_t> eos_ids;  // any of them ends a sequence; the first is the one to write
  // What the model's files say about raw text; unset if they are silent.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;

  // By role; '#' stands for the layer.
  std::array<std::string_view, kNumWeightRoles> tensor_names;
};

// Reads and checks the hyper-parameters of a checkpoint.
// Errors: InvalidArgument naming the field, its value and the limit; Unimplemented for an
// architecture or a setting that the graph does not have, naming it and what is known.
absl::StatusOr<ModelConfig> LoadModelConfig(const Checkpoint& checkpoint);

// Every field that changes a value the model computes, in one canonical text: two configs with
// equal texts and equal weights compute the same. For the identity of KV blocks.
std::string CanonicalText(const ModelConfig& config);

// Name and shape ([rows, columns], or [n] for a vector) that the graph wants for a role.
// `layer` is ignored for weights outside the layers.
std::string WeightName(const ModelConfig& config, WeightRole role, int layer);
std::vector<int64_t> WeightShape(const ModelConfig& config, WeightRole role);
// Whether the graph of this config has the weight at all (biases, an output of its own).
bool HasWeight(const ModelConfig& config, WeightRole role);

// The tensor of a role, its shape and dtype checked. Only for a role that HasWeight.
// Errors: InvalidArgument naming the tensor, the expected and the actual shape, or that it is
// missing; Unimplemented naming its type if the runtime cannot compute with it.
absl::StatusOr<const Tensor*> FindWeight(const Checkpoint& checkpoint, const ModelConfig& config,
                                         WeightRole role, int layer);

// Checks that the checkpoint holds exactly the weights of the graph: each is there with its shape
// and a supported dtype, none is left over. Returns their number.
absl::StatusOr<int64_t> ValidateWeights(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace cairn
