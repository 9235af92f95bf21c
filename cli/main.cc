// cairn: the command line.
#include <cstdio>
#include <string>

#include "base/log.h"
#include "base/process_start.h"
#include "cli/verbs.h"
#include "model/utf8.h"

namespace cairn {
namespace {

struct Verb {
  const char* name;
  int (*run)(const Arguments& arguments);
  const char* summary;
};

constexpr Verb kVerbs[] = {
    {"serve", RunServe, "serve a model: a whole local cluster, until Ctrl-C"},
    {"chat", RunChat, "talk to the model that is served"},
    {"generate", RunGenerate, "continue a text; over gRPC, or offline in this process"},
    {"status", RunStatus, "who serves what, and what is waited for"},
    {"drain", RunDrain, "end the service when running requests have finished"},
    {"inspect", RunInspect, "what is in a model's files"},
    {"tokenize", RunTokenize, "texts to token ids"},
    {"detokenize", RunDetokenize, "token ids to texts"},
    {"render", RunRender, "a conversation through a chat template"},
    {"logits", RunLogits, "logits of given tokens, offline"},
    {"bench", RunBench, "prefill and decode rates, offline or of a served cluster"},
};

void PrintHelp() {
  std::printf(
      "Cairn serves language models from a cluster of workers, and never computes the same prefix "
      "twice.\n\n"
      "  cairn serve --model MODEL.gguf --tp 2      in one terminal\n"
      "  cairn chat \"Why is the sky blue?\"          in another\n\n"
      "usage: cairn VERB [flags]\n");
  for (const Verb& verb : kVerbs) std::printf("  %-12s%s\n", verb.name, verb.summary);
  std::printf("\n`cairn VERB --help` explains each.\n");
}

int Main(const Arguments& arguments) {
  SetLogTag("cairn");
  SetMinLogSeverity(LogSeverity::kWarning);
  if (arguments.empty()) {
    PrintHelp();
    return kExitUsage;
  }
  const std::string& name = arguments[0];
  if (name == "--help" || name == "-h" || name == "help") {
    PrintHelp();
    return 0;
  }
  if (name == "--version") {
    std::printf("cairn %s\n", CAIRN_VERSION);
    return 0;
  }
  for (const Verb& verb : kVerbs) {
    if (name == verb.name) return verb.run({arguments.begin() + 1, arguments.end()});
  }
  return ReportUsage("unknown verb '" + name + "': see cairn --help");
}

}  // namespace

ParsedVerb ParseVerb(const std::string& usage, FlagTable* flags, const Arguments& arguments,
                     size_t max_rest) {
  absl::StatusOr<CommandLine> line = ReadCommandLine(usage, flags, arguments, max_rest);
  if (!line.ok()) {
    return {.done = true, .exit_status = ReportUsage(std::string(line.status().message()))};
  }
  return {.done = line->done, .rest = std::move(line->rest)};
}

int ReportRefusal(const absl::Status& status) {
  // A template or a peer may have worded it: nothing of it steers the terminal.
  constexpr size_t kMaxBytes = 4096;
  const std::string message =
      Printable({status.message().data(), status.message().size()}, kMaxBytes);
  std::fprintf(stderr, "cairn: %s\n", message.c_str());
  return kExitRefused;
}

int ReportUsage(const std::string& message) {
  std::fprintf(stderr, "cairn: %s\n", message.c_str());
  return kExitUsage;
}

}  // namespace cairn

int main(int argc, char** argv) {
  cairn::StartProcess("cairn");
  const int exit_status = cairn::Main({argv + 1, argv + argc});
  const absl::Status written = cairn::FlushStandardOutput();
  return written.ok() || exit_status != 0 ? exit_status : cairn::ReportRefusal(written);
}
