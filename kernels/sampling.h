// Choosing the next token from a row of logits.
//
// Draws are a pure function of (seed, choice, position) by Philox4x32-10 (Salmon et al., "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011), so a resumed, preempted or batched request draws
// what a lone run draws. All arithmetic runs in a fixed order, the same on every instruction set.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/context.h"

namespace cairn {

// The 10-round block function itself: 128 bits from a counter and a key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1) with 24 bits: the first word at counter (position, choice, 0, 0) under key
// seed.
float PhiloxUniform(uint64_t seed, uint32_t choice, uint32_t position);

struct SamplingParams {
  float temperature = 1.0f;         // 0: greedy, the first of equals
  int32_t top_k = 0;                // 0: off
  float top_p = 1.0f;               // in (0, 1]; 1: off
  float min_p = 0.0f;               // in [0, 1); 0: off
  float repetition_penalty = 1.0f;  // > 0; 1: off; over prompt and output (Keskar et al. 2019)
  float presence_penalty = 0.0f;    // over output tokens
  float frequency_penalty = 0.0f;   // over output tokens
  uint64_t seed = 0;
  uint32_t choice = 0;        // index of the choice when n > 1
  int32_t num_logprobs = -1;  // -1: none; 0: the chosen token's; n: also the n best
  // Added to logits; ids are checked against the vocabulary before.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
};

// Counts of tokens a request has seen, for the penalties. Sorted by id.
struct TokenCount {
  int32_t token = 0;
  int32_t in_output = 0;  // times generated
  bool in_prompt = false;
};

struct SampleArgs {
  float* logits = nullptr;  // [vocab], overwritten
  int32_t vocab = 0;        // ids that may be chosen: 0 .. vocab - 1
  const SamplingParams* params = nullptr;
  std::span<const TokenCount> counts = {};  // empty when no penalty is on
  std::span<const int32_t> banned = {};     // ids that must not be chosen (EOS before min_tokens)
  uint32_t position = 0;                    // of the token being chosen
};

// What is chosen where there is nothing to choose from.
inline constexpr int32_t kNoToken = -1;

struct SampledToken {
  int32_t token = kNoToken;
  // log softmax of the raw logits (before temperature and filters, after nothing): as other engines
  // report them. Filled when params->num_logprobs >= 0; -infinity where the logit is NaN.
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top_logprobs = {};  // best first, ties by lower id
};

// Order: bias, banned, penalties, (greedy: argmax) temperature, top-k, top-p, min-p, draw.
// top-p keeps the smallest set of most probable tokens whose mass reaches top_p; ties by lower id.
// A NaN counts as -infinity. Where the largest logit is not finite (all are NaN, banned or
// -infinity, or one is infinite) there is no distribution: kNoToken; else the token is in range.
// Thread: any; scratch is memory of the call.
SampledToken SampleToken(const CpuKernels& cpu, const SampleArgs& args);

// The probabilities left after temperature and filters, as SampleToken draws from them, all 0 for
// kNoToken; for tests.
std::vector<float> FilteredProbabilities(const CpuKernels& cpu, const SampleArgs& args);

// Index of the largest of n values, the first of equals; a NaN counts as -infinity.
int32_t Argmax(const CpuKernels& cpu, const float* values, int64_t n);

}  // namespace cairn
