// Many clients at once against a served cluster, some of which give up at any moment.
//
// usage: stream_load ENDPOINT STREAMS SECONDS SEED
// Every stream asks for the greedy continuation of one of a few prompts; whatever neighbours it has
// and whatever was cancelled before, the tokens must be those of the first answer. Prints counts;
// exit status 1 if an answer differed or failed.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/api_client.h"

namespace cairn {
namespace {

constexpr int kPrompts = 8;
constexpr int32_t kMaxTokens = 160;

struct Load {
  std::string endpoint;
  absl::Time end;
  std::vector<std::vector<int32_t>> want;  // by prompt
  std::atomic<int64_t> completed{0}, cancelled{0}, wrong{0}, failed{0}, tokens{0};
};

GenerateFlags Ask(int prompt, int32_t max_tokens) {
  GenerateFlags flags;
  flags.prompt = absl::StrCat("a heap of stones, number ", prompt,
                              std::string(static_cast<size_t>(prompt) * 40, 'x'));
  flags.sampling.greedy = true;
  flags.ignore_eos = true;
  flags.max_tokens = max_tokens;
  return flags;
}

bool IsPrefix(const std::vector<int32_t>& part, const std::vector<int32_t>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

void RunStream(Load* load, uint32_t seed) {
  std::mt19937 random(seed);
  while (absl::Now() < load->end) {
    // A client of its own each time: a cancel may come before the call.
    const std::unique_ptr<ApiClient> client = ApiClient::Create(load->endpoint);
    const int prompt = static_cast<int>(random() % kPrompts);
    const auto max_tokens = static_cast<int32_t>(1 + random() % kMaxTokens);
    const bool gives_up = random() % 2 == 0;
    const auto deltas_before = static_cast<int>(random() % 60);
    std::vector<int32_t> ids;
    int deltas = 0;
    AnswerCallbacks callbacks;
    callbacks.on_delta = [&](int32_t, const std::string&, const std::vector<int32_t>& more,
                             const std::vector<TokenChances>&) {
      ids.insert(ids.end(), more.begin(), more.end());
      if (gives_up && ++deltas > deltas_before) client->Cancel();
    };
    // Some give up in the queue or in prefill, before any token.
    std::thread impatient;
    if (gives_up && random() % 3 == 0) {
      impatient = std::thread([&client, wait_ms = random() % 30] {
        absl::SleepFor(absl::Milliseconds(wait_ms));
        client->Cancel();
      });
    }
    const absl::Status status = client->Generate(Ask(prompt, max_tokens), callbacks);
    if (impatient.joinable()) impatient.join();
    load->tokens.fetch_add(static_cast<int64_t>(ids.size()));
    if (!IsPrefix(ids, load->want[prompt])) load->wrong.fetch_add(1);
    if (status.ok()) {
      load->completed.fetch_add(1);
      if (static_cast<int32_t>(ids.size()) != max_tokens) load->wrong.fetch_add(1);
    } else if (gives_up && absl::IsCancelled(status)) {
      load->cancelled.fetch_add(1);
    } else {
      load->failed.fetch_add(1);
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
    }
  }
}

int Main(const std::string& endpoint, int streams, int seconds, uint32_t seed) {
  Load load;
  load.endpoint = endpoint;
  const std::unique_ptr<ApiClient> client = ApiClient::Create(endpoint);
  for (int prompt = 0; prompt < kPrompts; ++prompt) {
    std::vector<int32_t>& ids = load.want.emplace_back();
    AnswerCallbacks callbacks;
    callbacks.on_delta = [&](int32_t, const std::string&, const std::vector<int32_t>& more,
                             const std::vector<TokenChances>&) {
      ids.insert(ids.end(), more.begin(), more.end());
    };
    const absl::Status status = client->Generate(Ask(prompt, kMaxTokens), callbacks);
    if (!status.ok() || ids.size() != kMaxTokens) {
      std::fprintf(stderr, "no reference: %s\n", status.ToString().c_str());
      return 1;
    }
  }
  load.end = absl::Now() + absl::Seconds(seconds);
  std::vector<std::thread> threads;
  for (int i = 0; i < streams; ++i) {
    threads.emplace_back(RunStream, &load, seed + static_cast<uint32_t>(i));
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("seed %u: %ld completed, %ld cancelled, %ld failed, %ld wrong, %ld tokens\n", seed,
              load.completed.load(), load.cancelled.load(), load.failed.load(), load.wrong.load(),
              load.tokens.load());
  return load.failed.load() == 0 && load.wrong.load() == 0 && load.completed.load() > 0 ? 0 : 1;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  int streams = 0, seconds = 0, seed = 0;
  if (argc != 5 || !absl::SimpleAtoi(argv[2], &streams) || !absl::SimpleAtoi(argv[3], &seconds) ||
      !absl::SimpleAtoi(argv[4], &seed)) {
    std::fprintf(stderr, "usage: stream_load ENDPOINT STREAMS SECONDS SEED\n");
    return 2;
  }
  return cairn::Main(argv[1], streams, seconds, static_cast<uint32_t>(seed));
}
