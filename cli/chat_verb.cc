// chat: one question, or a conversation.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/signal_watch.h"
#include "cli/api_client.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "model/utf8.h"

namespace cairn {
namespace {

struct ChatFlags {
  std::string endpoint = kDefaultEndpoint;
  std::string system;
  int32_t max_tokens = 0;
  SamplingFlags sampling;
};

// Prints the answer to `turns` as it comes; it is added to them.
absl::Status Answer(ApiClient* client, const ChatFlags& flags, std::vector<ChatTurn>* turns) {
  std::string answer;
  AnswerCallbacks callbacks;
  callbacks.on_delta = [&](int32_t, const std::string& text, const std::vector<int32_t>&,
                           const std::vector<TokenChances>&) {
    answer += text;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const absl::Status status = client->Chat(*turns, flags.sampling, flags.max_tokens, callbacks);
  if (!answer.empty()) std::printf("\n");
  std::fflush(stdout);
  turns->push_back({"assistant", answer});
  return status;
}

std::vector<ChatTurn> FirstTurns(const ChatFlags& flags) {
  if (flags.system.empty()) return {};
  return {{"system", flags.system}};
}

int Converse(ApiClient* client, const ChatFlags& flags) {
  const bool terminal = isatty(STDIN_FILENO) == 1;
  std::vector<ChatTurn> turns = FirstTurns(flags);
  if (terminal) std::printf("Empty line or Ctrl-D ends; /new starts over.\n");
  while (true) {
    if (terminal) {
      std::printf("> ");
      std::fflush(stdout);
    }
    std::string line;
    if (!std::getline(std::cin, line) || line.empty()) return 0;
    if (line == "/new") {
      turns = FirstTurns(flags);
      continue;
    }
    if (!IsValidUtf8(line)) {
      std::fprintf(stderr, "cairn: that line is not UTF-8\n");
      continue;
    }
    turns.push_back({"user", line});
    const absl::Status status = Answer(client, flags, &turns);
    // Ctrl-C ends the answer, not the conversation.
    if (!status.ok() && !(terminal && absl::IsCancelled(status))) return ReportRefusal(status);
  }
}

}  // namespace

int RunChat(const Arguments& arguments) {
  ChatFlags chat;
  // Small models wander at temperature 1; an answer should stay on its question.
  chat.sampling.temperature = 0.3f;
  chat.sampling.top_p = 0.9f;
  FlagTable flags;
  flags.AddHostPort("endpoint", &chat.endpoint, "the coordinator");
  flags.Add("system", &chat.system, "TEXT", "system message");
  flags.Add("max-tokens", &chat.max_tokens, 0, 1 << 30, "of an answer; 0: what the context leaves");
  AddSamplingFlags(&chat.sampling, &flags);
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn chat [QUESTION] [flags]\n"
      "Streams the answer word by word. Without a question it is a conversation: one line a turn,\n"
      "Ctrl-C ends an answer.",
      &flags, arguments, 1);
  if (parsed.done) return parsed.exit_status;
  const std::unique_ptr<ApiClient> client = ApiClient::Create(chat.endpoint);
  const bool interactive = parsed.rest.empty() && isatty(STDIN_FILENO) == 1;
  std::unique_ptr<SignalWatch> signals;
  if (interactive) signals = std::make_unique<SignalWatch>([&](int) { client->Cancel(); });
  if (parsed.rest.empty()) return Converse(client.get(), chat);
  if (!IsValidUtf8(parsed.rest[0])) {
    return ReportRefusal(absl::InvalidArgumentError("the question is not UTF-8"));
  }
  std::vector<ChatTurn> turns = FirstTurns(chat);
  turns.push_back({"user", parsed.rest[0]});
  const absl::Status status = Answer(client.get(), chat, &turns);
  return status.ok() ? 0 : ReportRefusal(status);
}

}  // namespace cairn
