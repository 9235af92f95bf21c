#include "worker/request_check.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/sampling_limits.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr RequestLimits kLimits = {.vocab_size = 100, .context_length = 64, .pool_tokens = 32};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

GenerateRequest GoodRequest() {
  GenerateRequest request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 5;
  return request;
}

TEST(RequestCheckTest, TakesWhatIsInsideEveryLimit) {
  EXPECT_TRUE(CheckRequest(GoodRequest(), kLimits).ok());
  GenerateRequest request = GoodRequest();
  request.prompt.assign(32, 99);
  request.max_tokens = std::numeric_limits<int32_t>::max();
  request.min_tokens = request.max_tokens;
  request.stop_ids = {0, 99};
  request.cache_salt = std::string(kMaxCacheSaltBytes, 's');
  request.sampling = {.temperature = kMaxTemperature,
                      .top_k = std::numeric_limits<int32_t>::max(),
                      .top_p = 1e-9f,
                      .min_p = 0.999f,
                      .repetition_penalty = kMinRepetitionPenalty,
                      .presence_penalty = -kMaxOutputPenalty,
                      .frequency_penalty = kMaxOutputPenalty,
                      .seed = ~uint64_t{0},
                      .choice = kMostChoices - 1,
                      .num_logprobs = kMaxLogprobs,
                      .logit_bias = {{0, kMaxLogitBias}, {99, -kMaxLogitBias}}};
  const absl::Status status = CheckRequest(request, kLimits);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

struct Case {
  std::string name;
  std::function<void(GenerateRequest*)> spoil;
  std::string message;  // a part of it: field and value
};

std::vector<Case> IdCases() {
  std::vector<Case> cases;
  for (const int32_t id :
       {-1, 100, 101, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const std::string shown = "id=" + std::to_string(id);
    cases.push_back({"prompt", [id](GenerateRequest* r) { r->prompt[1] = id; }, shown});
    cases.push_back({"stop_ids", [id](GenerateRequest* r) { r->stop_ids = {id}; }, shown});
    cases.push_back({"logit_bias",
                     [id](GenerateRequest* r) {
                       r->sampling.logit_bias = {{id, 1.0f}};
                     },
                     shown});
  }
  return cases;
}

std::vector<Case> SamplingCases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& field, float SamplingParams::*member,
                       const std::vector<float>& values) {
    for (const float value : values) {
      cases.push_back({field, [=](GenerateRequest* r) { r->sampling.*member = value; }, field});
    }
  };
  add("temperature", &SamplingParams::temperature, {-1, 1e-7f, 101, kNan, kInfinity});
  add("top_p", &SamplingParams::top_p, {0, -0.5f, 1.01f, kNan, kInfinity});
  add("min_p", &SamplingParams::min_p, {-0.1f, 1, 2, kNan});
  add("repetition_penalty", &SamplingParams::repetition_penalty, {0, -1, 1e-3f, 101, kNan});
  add("presence_penalty", &SamplingParams::presence_penalty, {-2.1f, 2.1f, kNan, kInfinity});
  add("frequency_penalty", &SamplingParams::frequency_penalty, {-2.1f, 1e30f, kNan});
  for (const float bias : {101.0f, -1e30f, kNan, kInfinity, -kInfinity}) {
    cases.push_back({"logit_bias",
                     [bias](GenerateRequest* r) {
                       r->sampling.logit_bias = {{5, bias}};
                     },
                     "logit_bias"});
  }
  cases.push_back({"logit_bias",
                   [](GenerateRequest* r) {
                     r->sampling.logit_bias = {{5, 1.0f}, {5, 2.0f}};
                   },
                   "twice: id=5"});
  cases.push_back({"logit_bias",
                   [](GenerateRequest* r) { r->sampling.logit_bias.resize(kMaxLogitBiases + 1); },
                   "size=1025 most=1024"});
  cases.push_back({"top_k", [](GenerateRequest* r) { r->sampling.top_k = -1; }, "value=-1"});
  for (const int32_t count : {-2, 101}) {
    cases.push_back({"num_logprobs",
                     [count](GenerateRequest* r) { r->sampling.num_logprobs = count; },
                     "value=" + std::to_string(count)});
  }
  cases.push_back({"choice", [](GenerateRequest* r) { r->sampling.choice = 128; }, "value=128"});
  return cases;
}

std::vector<Case> LengthCases() {
  return {
      {"prompt", [](GenerateRequest* r) { r->prompt.clear(); }, "empty"},
      {"prompt", [](GenerateRequest* r) { r->prompt.assign(33, 1); },
       "prompt_tokens=33 pool_tokens=32"},
      {"prompt", [](GenerateRequest* r) { r->prompt.assign(64, 1); },
       "prompt_tokens=64 context_tokens=64"},
      {"prompt", [](GenerateRequest* r) { r->prompt.assign(640, 1); },
       "prompt_tokens=640 context_tokens=64"},
      {"max_tokens", [](GenerateRequest* r) { r->max_tokens = 0; }, "value=0"},
      {"max_tokens", [](GenerateRequest* r) { r->max_tokens = -5; }, "value=-5"},
      {"min_tokens", [](GenerateRequest* r) { r->min_tokens = -1; }, "value=-1"},
      {"min_tokens", [](GenerateRequest* r) { r->min_tokens = 6; }, "value=6 least=0 most=5"},
      {"stop_ids", [](GenerateRequest* r) { r->stop_ids.resize(kMostStopIds + 1); }, "most=1024"},
      {"cache_salt", [](GenerateRequest* r) { r->cache_salt = std::string(257, 's'); },
       "size=257 most=256"},
      {"min_tokens",
       [](GenerateRequest* r) {
         r->min_tokens = 1;
         for (int32_t id = 0; id < 100; ++id) r->stop_ids.push_back(id);
       },
       "forbids the whole vocabulary"},
  };
}

TEST(RequestCheckTest, NamesTheFieldAndTheValueOfWhatIsOutside) {
  std::vector<Case> cases = IdCases();
  for (const std::vector<Case>& more : {SamplingCases(), LengthCases()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const Case& c : cases) {
    GenerateRequest request = GoodRequest();
    c.spoil(&request);
    const absl::Status status = CheckRequest(request, kLimits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name << " " << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.name));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(RequestCheckTest, TheLargestRequestIsBoundByContextAndPool) {
  EXPECT_EQ(MaxRequestTokens(kLimits), 33);  // 32 in the pool; the last token needs no place
  RequestLimits limits = kLimits;
  limits.pool_tokens = 400;
  EXPECT_EQ(MaxRequestTokens(limits), 64);
  limits.pool_tokens = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(MaxRequestTokens(limits), 64);
}

}  // namespace
}  // namespace cairn
