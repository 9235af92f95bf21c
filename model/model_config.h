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

inline constexpr int kMaxLatentDim = 1 << 14;
inline constexpr int kMaxExperts = 4096;
inline constexpr int kMaxExpertsPerToken = 64;
inline constexpr double kMaxScoreCap = 1e6;

// Which elements of a head turn together: (2i, 2i+1), or (i, i + rotary_dim/2).
enum class RotaryPairs : uint8_t { kInterleaved, kHalfSplit };

struct RopeConfig {
  RotaryPairs pairs = RotaryPairs::kHalfSplit;
  int rotary_dim = 0;  // elements of a head that turn; even, at most head_dim
  // [rotary_dim / 2] radians per position, every scaling rule already applied.
  std::vector<double> inverse_frequency;
  double amplitude = 1;  // multiplies cos and sin

  bool operator==(const RopeConfig&) const = default;
};

// The activation of the gated feed-forward network.
enum class FfnGate : uint8_t { kSilu, kGeluTanh };

// kGqa: every KV head has keys and values of its own, shared by a group of query heads (one group
// is MQA, groups of one are MHA). kMla: all heads share one latent vector a token.
enum class AttentionKind : uint8_t { kGqa, kMla };

// Multi-head latent attention (arXiv 2405.04434).
struct MlaConfig {
  int query_latent_dim = 0;  // the queries come through a latent vector too; 0: they do not
  int latent_dim = 0;        // of keys and values
  int nope_dim = 0;          // elements of a query head that meet the latent vector
  int rope_dim = 0;          // elements of a query head that turn; one key part for all heads
  int value_dim = 0;         // of a head
  bool split_up = false;     // the files hold the up projections of keys and values apart
  int query_dim() const { return nope_dim + rope_dim; }
  int cached_dim() const { return latent_dim + rope_dim; }  // what a token leaves in the cache

  bool operator==(const MlaConfig&) const = default;
};

// How the router turns its logits into the score of an expert.
enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

// A feed-forward network of experts, of which the router chooses some for each token.
struct ExpertsConfig {
  int num_experts = 0;
  int num_chosen = 0;      // for each token
  int ffn_dim = 0;         // of one expert
  int shared_ffn_dim = 0;  // of the network that every token takes beside them; 0: none
  RouterScore score = RouterScore::kSoftmax;
  bool choice_bias = false;  // a weight per expert is added to the scores, for choosing only
  // The experts lie in groups; the best groups are kept before experts are chosen. A group is worth
  // the sum of its `group_top` best scores.
  int num_groups = 1;
  int num_groups_kept = 1;
  int group_top = 1;
  bool normalise = false;  // divide the chosen scores by their sum
  double scale = 1;        // of the chosen scores, afterwards

  bool operator==(const ExpertsConfig&) const = default;
};

struct LayerConfig {
  int window = 0;        // tokens that a position sees, itself included; 0: all before it
  int rope = 0;          // of ModelConfig::ropes
  bool experts = false;  // the feed-forward network is one of experts

  bool operator==(const LayerConfig&) const = default;
};

// The weights of the graph. Roles before kTokenEmbedding repeat in every layer that has them.
enum class WeightRole : uint8_t {
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kQueryNorm,  // over a head, before it turns
  kKeyNorm,
  kQueryDown,  // latent attention: to the latent vector of the queries, its norm, and from it
  kQueryDownNorm,
  kQueryUp,
  kKvDown,  // rows: the latent vector, then the part of the key that turns
  kKvDownNorm,
  kKvUp,     // rows: each head's keys, then its values
  kKeyUp,    // [heads, latent, nope], if the files hold keys and values apart
  kValueUp,  // [heads, value, latent]
  kAttentionOutput,
  kPostAttentionNorm,
  kFfnNorm,
  kGate,
  kUp,
  kDown,
  kRouter,
  kRouterBias,
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kPostFfnNorm,
  kTokenEmbedding,
  kFinalNorm,
  kOutput,  // absent if config.tied_output: the embedding serves
};
inline constexpr int kNumWeightRoles = static_cast<int>(WeightRole::kOutput) + 1;
inline constexpr bool IsLayerWeight(WeightRole role) { return role < WeightRole::kTokenEmbedding; }
inline constexpr bool IsExpertWeight(WeightRole role) {
  return role >= WeightRole::kExpertGate && role <= WeightRole::kExpertDown;
}

// By role; '#' stands for the layer, '@' for the expert. Without '@' one tensor holds the matrices
// of all experts, one behind the other.
using TensorNames = std::array<std::string_view, kNumWeightRoles>;

struct ModelConfig {
  std::string architecture;  // for display and identity only; nothing branches on it
  std::string name;          // for display; may be empty

  int num_layers = 0;
  int model_dim = 0;
  int num_heads = 0;     // query heads, a multiple of num_kv_heads
  int num_kv_heads = 0;  // 1 for kMla
  int head_dim = 0;      // of queries; of keys and values too for kGqa
  int ffn_dim = 0;       // of layers without experts
  int vocab_size = 0;    // rows of the embedding; the tokenizer may know fewer
  int context_length = 0;

  double norm_eps = 0;
  double norm_offset = 0;   // added to the weights of all norms
  bool post_norms = false;  // what attention and feed-forward network add is normalised first
  double embedding_scale = 1;
  AttentionKind attention = AttentionKind::kGqa;
  MlaConfig mla;  // of kMla
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;  // [num_layers]
  double attention_scale = 0;       // multiplies q.k
  double score_cap = 0;             // c: a score s becomes c * tanh(s / c); 0: it stays
  double logit_cap = 0;             // the same for the logits
  bool qk_norm = false;
  bool qkv_bias = false;
  FfnGate gate = FfnGate::kSilu;
  bool wide_activations = false;  // neighbours differ too much for 8 bits with one scale
  ExpertsConfig experts;
  bool tied_output = false;
  int num_draft_layers =
      0;  // behind the others in the files, for speculation; not part of the graph

  // Token ids as the files give them; -1 if they give none. All are below vocab_size.
  int32_t bos_id = -1;
  int32_t pad_id = -1;
  std::vector<int32_t> eos_ids;  // any of them ends a sequence; the first is the one to write
  // What the model's files say about raw text; unset if they are silent.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;

  TensorNames tensor_names;

  bool has_experts() const { return experts.num_experts > 0; }
};

// Reads and checks the hyper-parameters of a checkpoint.
// Errors: InvalidArgument naming the field, its value and the limit; Unimplemented for an
// architecture or a setting that the graph does not have, naming it and what is known.
absl::StatusOr<ModelConfig> LoadModelConfig(const Checkpoint& checkpoint);

// Values that the cache needs to continue a sequence of num_tokens, of all layers and heads, before
// any padding: a layer with a window keeps what lies inside it.
int64_t CachedValues(const ModelConfig& config, int64_t num_tokens);

// Every field that changes a value the model computes, in one canonical text: two configs with
// equal texts and equal weights compute the same. For the identity of KV blocks.
std::string CanonicalText(const ModelConfig& config);

// Whether the graph of this config has the weight. `layer` is ignored for weights outside the
// layers, here and below.
bool HasWeight(const ModelConfig& config, WeightRole role, int layer);
// Name and shape that the graph wants: [rows, columns], [n] for a vector, [matrices, rows, columns]
// for several in one tensor. `expert` matters only where each has a tensor of its own.
std::string WeightName(const ModelConfig& config, WeightRole role, int layer, int expert = 0);
std::vector<int64_t> WeightShape(const ModelConfig& config, WeightRole role);

// The tensor of a role, its shape and dtype checked. Only for a role that HasWeight.
// Errors: InvalidArgument naming the tensor, the expected and the actual shape, or that it is
// missing; Unimplemented naming its type if the runtime cannot compute with it.
absl::StatusOr<const Tensor*> FindWeight(const Checkpoint& checkpoint, const ModelConfig& config,
                                         WeightRole role, int layer, int expert = 0);

// Checks that the checkpoint holds exactly the weights of the graph: each is there with its shape
// and a supported dtype, none is left over. Returns their number.
absl::StatusOr<int64_t> ValidateWeights(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace cairn
