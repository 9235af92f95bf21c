// The offline verbs: a model computed inside the command line's own process, without a cluster.
//
// Plain structs of flags, filled and range-checked by cli/main.cc, and one function per verb. Each
// function writes its result to stdout (logits to a file) and returns the exit status: 0, or 1
// after one line on stderr that says what was refused. Thread: the main thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

// How a model is computed; the same flags on logits, generate, bench and serve.
struct EngineFlags {
  std::string model;                 // a .gguf file, a .safetensors file or a model directory
  int32_t tp = 1;                    // ranks; offline they are threads teams of this process
  int32_t threads = 0;               // per rank; 0: the usable CPUs divided among the ranks
  std::string isa = "auto";          // avx2 | avx512 | auto
  std::string activations = "auto";  // f32 | int16 | int8 | auto
  std::string kv_dtype = "auto";     // f32 | f16 | bf16 | auto
  std::string numerics = "exact";    // exact | fast
  int32_t block_tokens = 16;
  int32_t chunk = 0;            // rows of a step at most; 0: the default
  int32_t context_tokens = 0;   // longest sequence; 0: the model's
  int64_t kv_memory_bytes = 0;  // of the block pool per rank; 0: what the call needs
};

struct SamplingFlags {
  bool greedy = false;  // temperature 0, whatever --temperature says
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::optional<uint64_t> seed;  // drawn and reported if absent
  int32_t logprobs = -1;         // -1: none; 0: the chosen token's; n: also the n best
  std::vector<std::pair<int32_t, float>> logit_bias;
};

struct GenerateFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string endpoint;                     // not empty: over gRPC, the engine flags are unused
  std::optional<std::string> prompt;        // text, or
  std::optional<std::vector<int32_t>> ids;  // token ids; exactly one of the two is given
  int32_t max_tokens = 128;
  int32_t min_tokens = 0;
  int32_t n = 1;  // choices
  bool ignore_eos = false;
  std::vector<std::string> stop;
  bool no_prefix_cache = false;
  bool json = false;  // one JSON object instead of the text
};

// stdin: JSON lines, each an id array or {"ids": [...], "positions": [...]}.
struct LogitsFlags {
  EngineFlags engine;
  std::string out;  // safetensors: logits.<i> float32 [positions or tokens, vocabulary]
};

struct BenchFlags {
  EngineFlags engine;
  int32_t prompt_tokens = 512;  // of the prefill measurement; 0: skip it
  int32_t gen = 128;            // tokens of the decode measurement; 0: skip it
  int32_t depth = 0;            // tokens already in the context
  int32_t batch = 1;            // sequences decoded at once
  int32_t repeat = 5;
  bool json = false;
};

int RunOfflineGenerate(const GenerateFlags& flags);
int RunOfflineLogits(const LogitsFlags& flags);
int RunOfflineBench(const BenchFlags& flags);

}  // namespace cairn
