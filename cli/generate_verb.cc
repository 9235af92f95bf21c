// generate, logits and bench: reading their command lines. Offline they run in cli/offline_*.cc,
// generate with --endpoint over gRPC in here.
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/answer_json.h"
#include "cli/api_client.h"
#include "cli/model_flags.h"
#include "cli/offline.h"
#include "cli/online_bench.h"
#include "cli/verbs.h"
#include "model/json_text.h"
#include "model/utf8.h"

namespace cairn {
namespace {

constexpr int32_t kMaxInt32 = std::numeric_limits<int32_t>::max();

void AddFlags(GenerateFlags* flags, FlagTable* table) {
  table->Add("prompt", &flags->prompt, "TEXT", "the text to continue");
  table->AddParsed("ids", "JSON", "the prompt as a JSON array of token ids: needs no tokenizer",
                   [flags](const std::string& text) {
                     ASSIGN_OR_RETURN(const nlohmann::json array, ParseJson(text, {}));
                     ASSIGN_OR_RETURN(flags->ids, ReadIds(array));
                     return absl::OkStatus();
                   });
  table->AddHostPort("endpoint", &flags->endpoint,
                     "ask the coordinator there; without it the model is computed in this process");
  table->Add("max-tokens", &flags->max_tokens, 1, kMaxInt32, "new tokens at most");
  table->Add("min-tokens", &flags->min_tokens, 0, kMaxInt32, "no end before so many");
  table->Add("n", &flags->n, 1, 16, "choices");
  table->Add("ignore-eos", &flags->ignore_eos, "end tokens do not end the text");
  table->Add("stop", &flags->stop, "TEXT", "end before this text; may be given several times");
  table->Add("no-prefix-cache", &flags->no_prefix_cache, "compute every token of the prompt");
  table->Add("json", &flags->json, "one JSON object: ids, text, finish_reason, seed, usage");
  AddSamplingFlags(&flags->sampling, table);
  AddEngineFlags(&flags->engine, table);
}

int GenerateOverGrpc(const GenerateFlags& flags) {
  if (flags.prompt.has_value() && !IsValidUtf8(*flags.prompt)) {
    return ReportRefusal(absl::InvalidArgumentError("--prompt is not UTF-8"));
  }
  const std::unique_ptr<ApiClient> client = ApiClient::Create(flags.endpoint);
  std::vector<AnswerChoice> choices(flags.n);
  uint64_t seed = 0;
  const bool stream = !flags.json && flags.n == 1;
  AnswerCallbacks callbacks;
  callbacks.on_started = [&](uint64_t chosen) { seed = chosen; };
  callbacks.on_delta = [&](int32_t index, const std::string& text, const std::vector<int32_t>& ids,
                           const std::vector<TokenChances>& chances) {
    if (index < 0 || index >= flags.n) return;
    AnswerChoice& choice = choices[index];
    choice.ids.insert(choice.ids.end(), ids.begin(), ids.end());
    choice.text += text;
    choice.logprobs.insert(choice.logprobs.end(), chances.begin(), chances.end());
    if (!stream) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  callbacks.on_ended = [&](int32_t index, const std::string& reason, const TokenUsage& usage) {
    if (index < 0 || index >= flags.n) return;
    choices[index].finish_reason = reason;
    choices[index].usage = usage;
  };
  const absl::Status status = client->Generate(flags, callbacks);
  if (stream) std::printf("\n");
  if (!status.ok()) return ReportRefusal(status);
  if (flags.json) {
    std::printf("%s\n", AnswerJson(choices, seed, flags.sampling.logprobs >= 0).c_str());
  }
  if (!flags.json && !stream) {
    for (const AnswerChoice& choice : choices) std::printf("%s\n", choice.text.c_str());
  }
  return 0;
}

}  // namespace

int RunGenerate(const Arguments& arguments) {
  GenerateFlags generate;
  FlagTable flags;
  AddFlags(&generate, &flags);
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn generate --prompt TEXT | --ids JSON, with --model PATH | --endpoint HOST:PORT\n"
      "Continues a text. With --endpoint over gRPC, otherwise offline in this process:\n"
      "  cairn generate --model MODEL.gguf --prompt 'The capital of France is' --greedy",
      &flags, arguments, 0);
  if (parsed.done) return parsed.exit_status;
  if (generate.prompt.has_value() == generate.ids.has_value()) {
    return ReportUsage("give one of --prompt and --ids");
  }
  if (generate.min_tokens > generate.max_tokens) {
    return ReportUsage(absl::StrCat("--min-tokens ", generate.min_tokens,
                                    " is more than --max-tokens ", generate.max_tokens));
  }
  if (!generate.endpoint.empty()) return GenerateOverGrpc(generate);
  if (generate.engine.model.empty()) return ReportUsage("give one of --model and --endpoint");
  return RunOfflineGenerate(generate);
}

int RunLogits(const Arguments& arguments) {
  LogitsFlags logits;
  FlagTable flags;
  flags.Add("out", &logits.out, "FILE", "safetensors: logits.<i> float32 [positions, vocabulary]");
  AddEngineFlags(&logits.engine, &flags);
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn logits --model PATH --out FILE [flags] < LINES\n"
      "Reads a JSON array of ids a line, or {\"ids\": [...], \"positions\": [...]}, and writes "
      "the\n"
      "logits of all (or these) positions.",
      &flags, arguments, 0);
  if (parsed.done) return parsed.exit_status;
  if (logits.engine.model.empty()) return ReportUsage("--model is missing: see --help");
  if (logits.out.empty()) return ReportUsage("--out is missing: see --help");
  return RunOfflineLogits(logits);
}

int RunBench(const Arguments& arguments) {
  BenchFlags bench;
  OnlineBenchFlags online;
  FlagTable flags;
  flags.Add("prompt", &bench.prompt_tokens, 0, 1 << 24, "tokens prefilled; 0: no prefill");
  flags.Add("gen", &bench.gen, 0, 1 << 24, "tokens decoded; 0: no decode");
  flags.Add("depth", &bench.depth, 0, 1 << 24, "tokens already in the context");
  flags.Add("batch", &bench.batch, 1, 4096, "sequences decoded at once");
  flags.Add("repeat", &bench.repeat, 1, 1000, "runs, of which the median counts");
  flags.Add("json", &bench.json, "one JSON object");
  flags.AddHostPort(
      "endpoint", &online.endpoint,
      "measure streams against the cluster served there; of the flags above --prompt, --gen "
      "and --json count");
  flags.Add("streams", &online.streams, 1, 1024, "requests at once, with --endpoint");
  flags.Add("shared-prefix", &online.shared_prefix, 0, 1 << 20,
            "leading tokens that all prompts share, with --endpoint");
  flags.Add("warm", &online.warm, "compute the shared prefix before the measurement");
  AddEngineFlags(&bench.engine, &flags);
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn bench --model PATH [flags]\n"
      "       cairn bench --endpoint HOST:PORT [--streams N] [flags]\n"
      "Prefill and decode rates in tokens per second, as llama-bench defines pp, tg and depth; or\n"
      "what several streams at once get from a served cluster.",
      &flags, arguments, 0);
  if (parsed.done) return parsed.exit_status;
  if (!online.endpoint.empty()) {
    online.prompt_tokens = bench.prompt_tokens;
    online.gen = bench.gen;
    online.json = bench.json;
    if (online.prompt_tokens < 1 || online.gen < 1)
      return ReportUsage("--prompt and --gen must be at least 1 with --endpoint");
    return RunOnlineBench(online);
  }
  if (bench.engine.model.empty()) return ReportUsage("--model is missing: see --help");
  return RunOfflineBench(bench);
}

}  // namespace cairn
