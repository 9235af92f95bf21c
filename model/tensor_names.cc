#include "model/tensor_names.h"

#include <cstddef>

namespace cairn {
namespace {

template <size_t kCount>
TensorNames NamesOf(const NamedRole (&named)[kCount]) {
  TensorNames names;
  for (const auto& [role, name] : named) names[static_cast<size_t>(role)] = name;
  return names;
}

}  // namespace

TensorNames GgufTensorNames() {
  static constexpr NamedRole kNames[] = {
      {WeightRole::kAttentionNorm, "blk.#.attn_norm.weight"},
      {WeightRole::kQuery, "blk.#.attn_q.weight"},
      {WeightRole::kKey, "blk.#.attn_k.weight"},
      {WeightRole::kValue, "blk.#.attn_v.weight"},
      {WeightRole::kQueryBias, "blk.#.attn_q.bias"},
      {WeightRole::kKeyBias, "blk.#.attn_k.bias"},
      {WeightRole::kValueBias, "blk.#.attn_v.bias"},
      {WeightRole::kQueryNorm, "blk.#.attn_q_norm.weight"},
      {WeightRole::kKeyNorm, "blk.#.attn_k_norm.weight"},
      {WeightRole::kQueryDown, "blk.#.attn_q_a.weight"},
      {WeightRole::kQueryDownNorm, "blk.#.attn_q_a_norm.weight"},
      {WeightRole::kQueryUp, "blk.#.attn_q_b.weight"},
      {WeightRole::kKvDown, "blk.#.attn_kv_a_mqa.weight"},
      {WeightRole::kKvDownNorm, "blk.#.attn_kv_a_norm.weight"},
      {WeightRole::kKvUp, "blk.#.attn_kv_b.weight"},
      {WeightRole::kKeyUp, "blk.#.attn_k_b.weight"},
      {WeightRole::kValueUp, "blk.#.attn_v_b.weight"},
      {WeightRole::kAttentionOutput, "blk.#.attn_output.weight"},
      {WeightRole::kPostAttentionNorm, "blk.#.post_attention_norm.weight"},
      {WeightRole::kFfnNorm, "blk.#.ffn_norm.weight"},
      {WeightRole::kGate, "blk.#.ffn_gate.weight"},
      {WeightRole::kUp, "blk.#.ffn_up.weight"},
      {WeightRole::kDown, "blk.#.ffn_down.weight"},
      {WeightRole::kRouter, "blk.#.ffn_gate_inp.weight"},
      {WeightRole::kRouterBias, "blk.#.exp_probs_b.bias"},
      {WeightRole::kExpertGate, "blk.#.ffn_gate_exps.weight"},
      {WeightRole::kExpertUp, "blk.#.ffn_up_exps.weight"},
      {WeightRole::kExpertDown, "blk.#.ffn_down_exps.weight"},
      {WeightRole::kSharedGate, "blk.#.ffn_gate_shexp.weight"},
      {WeightRole::kSharedUp, "blk.#.ffn_up_shexp.weight"},
      {WeightRole::kSharedDown, "blk.#.ffn_down_shexp.weight"},
      {WeightRole::kPostFfnNorm, "blk.#.post_ffw_norm.weight"},
      {WeightRole::kTokenEmbedding, "token_embd.weight"},
      {WeightRole::kFinalNorm, "output_norm.weight"},
      {WeightRole::kOutput, "output.weight"},
  };
  return NamesOf(kNames);
}

TensorNames SafetensorsTensorNames() {
  static constexpr NamedRole kNames[] = {
      {WeightRole::kAttentionNorm, "model.layers.#.input_layernorm.weight"},
      {WeightRole::kQuery, "model.layers.#.self_attn.q_proj.weight"},
      {WeightRole::kKey, "model.layers.#.self_attn.k_proj.weight"},
      {WeightRole::kValue, "model.layers.#.self_attn.v_proj.weight"},
      {WeightRole::kQueryBias, "model.layers.#.self_attn.q_proj.bias"},
      {WeightRole::kKeyBias, "model.layers.#.self_attn.k_proj.bias"},
      {WeightRole::kValueBias, "model.layers.#.self_attn.v_proj.bias"},
      {WeightRole::kQueryNorm, "model.layers.#.self_attn.q_norm.weight"},
      {WeightRole::kKeyNorm, "model.layers.#.self_attn.k_norm.weight"},
      {WeightRole::kQueryDown, "model.layers.#.self_attn.q_a_proj.weight"},
      {WeightRole::kQueryDownNorm, "model.layers.#.self_attn.q_a_layernorm.weight"},
      {WeightRole::kQueryUp, "model.layers.#.self_attn.q_b_proj.weight"},
      {WeightRole::kKvDown, "model.layers.#.self_attn.kv_a_proj_with_mqa.weight"},
      {WeightRole::kKvDownNorm, "model.layers.#.self_attn.kv_a_layernorm.weight"},
      {WeightRole::kKvUp, "model.layers.#.self_attn.kv_b_proj.weight"},
      {WeightRole::kAttentionOutput, "model.layers.#.self_attn.o_proj.weight"},
      {WeightRole::kFfnNorm, "model.layers.#.post_attention_layernorm.weight"},
      {WeightRole::kGate, "model.layers.#.mlp.gate_proj.weight"},
      {WeightRole::kUp, "model.layers.#.mlp.up_proj.weight"},
      {WeightRole::kDown, "model.layers.#.mlp.down_proj.weight"},
      {WeightRole::kRouter, "model.layers.#.mlp.gate.weight"},
      {WeightRole::kRouterBias, "model.layers.#.mlp.gate.e_score_correction_bias"},
      {WeightRole::kExpertGate, "model.layers.#.mlp.experts.@.gate_proj.weight"},
      {WeightRole::kExpertUp, "model.layers.#.mlp.experts.@.up_proj.weight"},
      {WeightRole::kExpertDown, "model.layers.#.mlp.experts.@.down_proj.weight"},
      {WeightRole::kSharedGate, "model.layers.#.mlp.shared_experts.gate_proj.weight"},
      {WeightRole::kSharedUp, "model.layers.#.mlp.shared_experts.up_proj.weight"},
      {WeightRole::kSharedDown, "model.layers.#.mlp.shared_experts.down_proj.weight"},
      {WeightRole::kTokenEmbedding, "model.embed_tokens.weight"},
      {WeightRole::kFinalNorm, "model.norm.weight"},
      {WeightRole::kOutput, "lm_head.weight"},
  };
  return NamesOf(kNames);
}

}  // namespace cairn
