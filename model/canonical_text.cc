// The text of a config that goes into the identity of KV blocks.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "model/model_config.h"

namespace cairn {
namespace {

std::string Exact(double value) { return absl::StrFormat("%a", value); }

std::string RopeText(const RopeConfig& rope) {
  return absl::StrCat(
      "rope_pairs=", static_cast<int>(rope.pairs), "\nrotary_dim=", rope.rotary_dim,
      "\nrope_amplitude=", Exact(rope.amplitude), "\nrope_inverse_frequency=",
      absl::StrJoin(rope.inverse_frequency, ",",
                    [](std::string* out, double value) { out->append(Exact(value)); }),
      "\n");
}

std::string ExpertsText(const ExpertsConfig& experts) {
  return absl::StrCat("experts=", experts.num_experts, ",", experts.num_chosen, ",",
                      experts.ffn_dim, ",", experts.shared_ffn_dim, ",",
                      static_cast<int>(experts.score), ",", experts.choice_bias, ",",
                      experts.num_groups, ",", experts.num_groups_kept, ",", experts.group_top, ",",
                      experts.normalise, ",", Exact(experts.scale), "\n");
}

std::string MlaText(const MlaConfig& mla) {
  return absl::StrCat("mla=", mla.query_latent_dim, ",", mla.latent_dim, ",", mla.nope_dim, ",",
                      mla.rope_dim, ",", mla.value_dim, "\n");
}

}  // namespace

std::string CanonicalText(const ModelConfig& config) {
  std::string text = absl::StrCat(
      "architecture=", config.architecture, "\nlayers=", config.num_layers,
      "\nmodel_dim=", config.model_dim, "\nheads=", config.num_heads,
      "\nkv_heads=", config.num_kv_heads, "\nhead_dim=", config.head_dim,
      "\nffn_dim=", config.ffn_dim, "\nvocabulary=", config.vocab_size,
      "\nnorm_eps=", Exact(config.norm_eps), "\nnorm_offset=", Exact(config.norm_offset),
      "\npost_norms=", config.post_norms, "\nembedding_scale=", Exact(config.embedding_scale),
      "\nattention=", static_cast<int>(config.attention),
      "\nattention_scale=", Exact(config.attention_scale), "\nscore_cap=", Exact(config.score_cap),
      "\nlogit_cap=", Exact(config.logit_cap), "\nqk_norm=", config.qk_norm,
      "\nqkv_bias=", config.qkv_bias, "\ngate=", static_cast<int>(config.gate),
      "\ntied_output=", config.tied_output, "\n", MlaText(config.mla), ExpertsText(config.experts));
  for (const RopeConfig& rope : config.ropes) absl::StrAppend(&text, RopeText(rope));
  for (const LayerConfig& layer : config.layers)
    absl::StrAppend(&text, "layer=", layer.window, ",", layer.rope, ",", layer.experts, "\n");
  return text;
}

}  // namespace cairn
