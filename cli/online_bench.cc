#include "cli/online_bench.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "cli/api_client.h"
#include "cli/verbs.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

struct Stream {
  GenerateFlags request{};
  std::vector<Clock::time_point> tokens{};  // when each came
  Clock::time_point start{};
  TokenUsage usage{};
  absl::Status status{};
};

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);

// All streams start together once each has connected.
void RunStream(const std::string& endpoint, std::barrier<>* all_connected, Stream* stream) {
  const std::unique_ptr<ApiClient> client = ApiClient::Create(endpoint);
  stream->status = client->Connect(kConnectTimeout);
  all_connected->arrive_and_wait();
  if (!stream->status.ok()) return;
  AnswerCallbacks callbacks;
  callbacks.on_delta = [stream](int32_t, const std::string&, const std::vector<int32_t>& ids,
                                const std::vector<TokenChances>&) {
    stream->tokens.insert(stream->tokens.end(), ids.size(), Clock::now());
  };
  callbacks.on_ended = [stream](int32_t, const std::string&, const TokenUsage& usage) {
    stream->usage = usage;
  };
  stream->start = Clock::now();
  stream->status = client->Generate(stream->request, callbacks);
}

GenerateFlags Request(std::vector<int32_t> ids, int32_t max_tokens) {
  GenerateFlags request;
  request.ids = std::move(ids);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.sampling.greedy = true;
  return request;
}

// Any id below this is in the vocabulary of every real model.
constexpr uint32_t kRandomIds = 10000;

std::vector<int32_t> RandomIds(std::mt19937* random, int32_t n) {
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>((*random)() % kRandomIds);
  return ids;
}

// Tokens a second between the moment when the last stream has begun and the first has ended.
double SteadyRate(const std::vector<Stream>& streams) {
  Clock::time_point begin = Clock::time_point::min(), end = Clock::time_point::max();
  for (const Stream& stream : streams) {
    begin = std::max(begin, stream.tokens.front());
    end = std::min(end, stream.tokens.back());
  }
  if (end <= begin) return 0;
  int64_t count = 0;
  for (const Stream& stream : streams)
    for (const Clock::time_point token : stream.tokens) count += token > begin && token <= end;
  return static_cast<double>(count) / Seconds(end - begin);
}

nlohmann::json Measure(const std::vector<Stream>& streams) {
  std::vector<double> first;
  double longest_gap = 0, last = 0;
  int64_t tokens = 0, cached = 0;
  Clock::time_point start = streams[0].start;
  for (const Stream& stream : streams) {
    start = std::min(start, stream.start);
    first.push_back(Seconds(stream.tokens.front() - stream.start));
    tokens += static_cast<int64_t>(stream.tokens.size());
    cached += stream.usage.cached_tokens;
    for (size_t i = 1; i < stream.tokens.size(); ++i)
      longest_gap = std::max(longest_gap, Seconds(stream.tokens[i] - stream.tokens[i - 1]));
  }
  for (const Stream& stream : streams) last = std::max(last, Seconds(stream.tokens.back() - start));
  std::sort(first.begin(), first.end());
  return {{"streams", streams.size()},
          {"steady_tokens_per_s", SteadyRate(streams)},
          {"total_tokens_per_s", static_cast<double>(tokens) / last},
          {"first_token_s_median", first[first.size() / 2]},
          {"first_token_s_max", first.back()},
          {"longest_gap_s", longest_gap},
          {"cached_tokens", cached},
          {"tokens", tokens}};
}

}  // namespace

int RunOnlineBench(const OnlineBenchFlags& flags) {
  std::mt19937 random(std::random_device{}());  // new prompts: nothing is cached by an earlier run
  const std::vector<int32_t> shared = RandomIds(&random, flags.shared_prefix);
  if (flags.warm && flags.shared_prefix > 0) {
    Stream warm_up;
    warm_up.request = Request(shared, 1);
    std::barrier<> alone(1);
    RunStream(flags.endpoint, &alone, &warm_up);
    if (!warm_up.status.ok()) return ReportRefusal(warm_up.status);
  }
  std::vector<Stream> streams(flags.streams);
  for (Stream& stream : streams) {
    std::vector<int32_t> ids = shared;
    const std::vector<int32_t> own = RandomIds(&random, flags.prompt_tokens);
    ids.insert(ids.end(), own.begin(), own.end());
    stream.request = Request(std::move(ids), flags.gen);
  }
  {
    std::barrier<> all_connected(flags.streams);
    std::vector<std::jthread> threads;
    for (Stream& stream : streams)
      threads.emplace_back([&] { RunStream(flags.endpoint, &all_connected, &stream); });
  }
  for (const Stream& stream : streams) {
    if (!stream.status.ok()) return ReportRefusal(stream.status);
    if (stream.tokens.empty())
      return ReportRefusal(absl::InternalError("a stream ended without a token"));
  }
  const nlohmann::json result = Measure(streams);
  if (flags.json) {
    std::printf("%s\n", result.dump().c_str());
    return 0;
  }
  for (const auto& [name, value] : result.items())
    std::printf("%-22s %s\n", name.c_str(), value.dump().c_str());
  return 0;
}

}  // namespace cairn
