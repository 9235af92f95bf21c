#include "kernels/routing.h"

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "kernels/cpu_kernels.h"

namespace cairn {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();  // never taken

// A NaN or -infinity must not stop the choice: it comes last, but can be taken.
float Rank(float score) {
  constexpr float kLast = std::numeric_limits<float>::lowest();
  return score > kLast ? score : kLast;
}

// A NaN counts as -infinity.
void ScoreExperts(const CpuKernels& cpu, const RoutingRule& rule, const float* logits,
                  float* scores) {
  const int n = rule.num_experts;
  if (rule.score == ExpertScore::kSigmoid) {
    for (int i = 0; i < n; ++i) scores[i] = logits[i] > kNever ? -logits[i] : -kNever;
    cpu.logit_weights(scores, n, 0, 1, scores);
    for (int i = 0; i < n; ++i) scores[i] = 1 / (1 + scores[i]);
    return;
  }
  float max = kNever;
  for (int i = 0; i < n; ++i) max = std::max(max, logits[i]);
  cpu.logit_weights(logits, n, max, 1, scores);
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += scores[i];
  for (int i = 0; i < n; ++i) scores[i] /= sum;
}

// The sum of the `top` best of n scores.
float WorthOf(const float* scores, int n, int top) {
  float best[kMaxChosenExperts];
  int num_best = 0;
  for (int i = 0; i < n; ++i) {
    int at = num_best < top ? num_best++ : top;
    for (; at > 0 && scores[i] > best[at - 1]; --at)
      if (at < top) best[at] = best[at - 1];
    if (at < top) best[at] = scores[i];
  }
  float sum = 0;
  for (int i = 0; i < num_best; ++i) sum += best[i];
  return sum;
}

// Takes the best of n scores away.
int TakeBest(float* scores, int n) {
  int best = -1;
  for (int i = 0; i < n; ++i)
    if (scores[i] != kNever && (best < 0 || scores[i] > scores[best])) best = i;
  if (best >= 0) scores[best] = kNever;
  return best;
}

// Scores outside the best groups become kNever.
void KeepBestGroups(const RoutingRule& rule, float* scores) {
  const int size = rule.num_experts / rule.num_groups;
  float worth[kMaxRoutedExperts];
  bool keeps[kMaxRoutedExperts] = {};
  for (int g = 0; g < rule.num_groups; ++g)
    worth[g] = Rank(WorthOf(scores + g * size, size, rule.group_top));
  for (int i = 0; i < rule.num_groups_kept; ++i) {
    const int best = TakeBest(worth, rule.num_groups);
    if (best >= 0) keeps[best] = true;
  }
  for (int i = 0; i < rule.num_experts; ++i)
    if (!keeps[i / size]) scores[i] = kNever;
}

}  // namespace

void ChooseExperts(const Context& context, const RoutingRule& rule, const float* logits,
                   const float* bias, ExpertChoice* choices) {
  CHECK(rule.num_experts > 0 && rule.num_experts <= kMaxRoutedExperts) << rule.num_experts;
  CHECK(rule.num_chosen > 0 && rule.num_chosen <= kMaxChosenExperts) << rule.num_chosen;
  CHECK_LE(rule.group_top, kMaxChosenExperts);
  float scores[kMaxRoutedExperts], ranked[kMaxRoutedExperts];
  ScoreExperts(context.cpu(), rule, logits, scores);
  for (int i = 0; i < rule.num_experts; ++i)
    ranked[i] = Rank(bias == nullptr ? scores[i] : scores[i] + bias[i]);
  if (rule.num_groups > 1) KeepBestGroups(rule, ranked);

  float sum = 0;
  for (int i = 0; i < rule.num_chosen; ++i) {
    const int best = TakeBest(ranked, rule.num_experts);
    CHECK(best >= 0) << "fewer experts than are chosen";
    choices[i] = {best, scores[best]};
    sum += scores[best];
  }
  for (int i = 0; i < rule.num_chosen; ++i) {
    float& weight = choices[i].weight;
    if (rule.normalise) weight /= sum + 1e-20f;
    weight *= rule.scale;
  }
  std::sort(choices, choices + rule.num_chosen,
            [](const ExpertChoice& a, const ExpertChoice& b) { return a.expert < b.expert; });
}

}  // namespace cairn
