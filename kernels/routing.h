// The choice of experts: which of them compute a token, and with what weight.
//
// Sources: arXiv 2401.04088 (the best by softmax), 2405.04434 (groups), 2412.19437 (sigmoid, bias).
#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace cairn {

inline constexpr int kMaxChosenExperts = 64;
inline constexpr int kMaxRoutedExperts = 4096;

enum class ExpertScore : uint8_t { kSoftmax, kSigmoid };

struct RoutingRule {
  int num_experts = 0;  // at most kMaxRoutedExperts
  int num_chosen = 0;   // at most kMaxChosenExperts and what the kept groups have
  ExpertScore score = ExpertScore::kSoftmax;
  // Groups of num_experts / num_groups neighbours; the best num_groups_kept, by the sum of their
  // group_top best scores, may be chosen from.
  int num_groups = 1, num_groups_kept = 1, group_top = 1;
  bool normalise = false;  // divide the chosen scores by their sum
  float scale = 1;         // of the weights, afterwards
};

struct ExpertChoice {
  int32_t expert = 0;
  float weight = 0;
};

// Chooses for one row: logits[num_experts]; bias[num_experts] is added to the scores for choosing
// only, or null. Of equal scores the lower index wins; a NaN is never better than a number. Writes
// num_chosen choices in ascending order of their expert. Thread: any.
void ChooseExperts(const Context& context, const RoutingRule& rule, const float* logits,
                   const float* bias, ExpertChoice* choices);

}  // namespace cairn
