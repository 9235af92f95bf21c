#include "cli/model_flags.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cairn {
namespace {

// ID:BIAS, several separated by commas.
absl::Status ParseBiases(const std::string& text, SamplingFlags* flags) {
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    const std::vector<std::string> parts = absl::StrSplit(entry, ':');
    int32_t id = 0;
    float bias = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &id) || id < 0 ||
        !absl::SimpleAtof(parts[1], &bias) || !(bias >= -1000 && bias <= 1000)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", entry, "' is not ID:BIAS with a bias in -1000..1000"));
    }
    flags->logit_bias.emplace_back(id, bias);
  }
  return absl::OkStatus();
}

}  // namespace

void AddEngineFlags(EngineFlags* flags, FlagTable* table) {
  table->Section("Model and computation");
  table->Add("model", &flags->model, "PATH", "GGUF file, safetensors file or model folder");
  table->Add("tp", &flags->tp, 1, 64, "ranks the weights are divided among");
  table->Add("threads", &flags->threads, 0, 256,
             "per rank; 0: the CPUs this process may use, divided among the ranks");
  table->AddChoice("isa", &flags->isa, {"avx2", "avx512", "auto"},
                   "instruction set of the kernels");
  table->AddChoice("activations", &flags->activations, {"f32", "int16", "int8", "auto"},
                   "auto is int8 where weights are quantised, int16 in models that need it");
  table->AddChoice("kv-dtype", &flags->kv_dtype, {"f32", "f16", "bf16", "auto"},
                   "auto is f16 where weights are quantised, else f32");
  table->AddChoice(
      "numerics", &flags->numerics, {"exact", "fast"},
      "exact: the same bits whatever the batch, chunk, cache state, ranks or threads; fast: "
      "sums in any order, latent attention expands keys for steps of many rows");
  table->AddChoice("block-tokens", &flags->block_tokens, {16, 32, 64, 128, 256},
                   "tokens of a KV block");
  table->Add("chunk", &flags->chunk, 0, 16384, "rows of a step at most; 0 is the default, 512");
  table->Add("context", &flags->context_tokens, 0, 1 << 27,
             "longest sequence in tokens; 0 is the model's");
  table->AddBytes(
      "kv-memory", &flags->kv_memory_bytes,
      "block pool per rank, such as 2GiB; by default what is needed, served at most 1GiB");
}

void AddSamplingFlags(SamplingFlags* flags, FlagTable* table) {
  table->Section("Choice of tokens");
  table->Add("greedy", &flags->greedy, "always the most likely token: temperature 0");
  table->Add("temperature", &flags->temperature, 0, 100, "0 is greedy");
  table->Add("top-k", &flags->top_k, 0, std::numeric_limits<int32_t>::max(), "0 is off");
  table->Add("top-p", &flags->top_p, 1e-6f, 1, "1 is off");
  table->Add("min-p", &flags->min_p, 0, 0.999999f, "0 is off");
  table->Add("repetition-penalty", &flags->repetition_penalty, 1e-6f, 100, "1 is off");
  table->Add("presence-penalty", &flags->presence_penalty, -100, 100, "0 is off");
  table->Add("frequency-penalty", &flags->frequency_penalty, -100, 100, "0 is off");
  table->AddParsed("seed", "N", "of the draws; by default one is drawn and reported",
                   [flags](const std::string& text) {
                     uint64_t seed = 0;
                     if (!absl::SimpleAtoi(text, &seed)) {
                       return absl::InvalidArgumentError(
                           absl::StrCat("'", text, "' is not a whole number of 64 bits"));
                     }
                     flags->seed = seed;
                     return absl::OkStatus();
                   });
  table->AddParsed("logit-bias", "ID:BIAS,...", "added to the logits of these tokens",
                   [flags](const std::string& text) { return ParseBiases(text, flags); });
  table->Add("logprobs", &flags->logprobs, -1, 20,
             "with --json: log-probabilities; 0: of the chosen token, N: also of the N best");
}

}  // namespace cairn
