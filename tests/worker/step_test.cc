#include "worker/step.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

// A plan in which every field has a value of its own.
StepPlan FullPlan() {
  StepPlan plan;
  plan.step = 1234567890123;
  plan.finished = {3, 0};
  SequenceStart start;
  start.slot = 3;
  start.tokens = {0, 1, 127, 128, 49151, std::numeric_limits<int32_t>::max()};
  start.num_prompt_tokens = 4;
  start.num_cached_tokens = 5;
  start.tables = {{.first_block = 0, .blocks = {7, 300, 2}}, {.first_block = 3, .blocks = {9}}};
  start.sampling = {.temperature = 0.7f,
                    .top_k = 40,
                    .top_p = 0.9f,
                    .min_p = 0.05f,
                    .repetition_penalty = 1.1f,
                    .presence_penalty = -0.5f,
                    .frequency_penalty = 0.25f,
                    .seed = 0xfedcba9876543210,
                    .choice = 2,
                    .num_logprobs = 5,
                    .logit_bias = {{1, -100.0f}, {70000, 2.5f}}};
  start.banned_ids = {2, 49152};
  start.banned_before = 14;
  plan.starts = {start, start};
  plan.starts[1].slot = 0;
  plan.starts[1].sampling = {};  // num_logprobs is -1
  plan.starts[1].banned_ids.clear();
  plan.appends = {{.slot = 1, .table = 0, .block = 9}, {.slot = 2, .table = 1, .block = 10}};
  plan.copies = {{.from = 4, .to = 7, .num_tokens = 15}};
  plan.segments = {{.slot = 1, .num_tokens = 1, .sample = true, .capture_logits = false},
                   {.slot = 3, .num_tokens = 511, .sample = false, .capture_logits = true}};
  return plan;
}

void ExpectEqual(const SamplingParams& a, const SamplingParams& b) {
  EXPECT_EQ(a.temperature, b.temperature);
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_EQ(a.top_p, b.top_p);
  EXPECT_EQ(a.min_p, b.min_p);
  EXPECT_EQ(a.repetition_penalty, b.repetition_penalty);
  EXPECT_EQ(a.presence_penalty, b.presence_penalty);
  EXPECT_EQ(a.frequency_penalty, b.frequency_penalty);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.choice, b.choice);
  EXPECT_EQ(a.num_logprobs, b.num_logprobs);
  EXPECT_EQ(a.logit_bias, b.logit_bias);
}

void ExpectEqual(const StepPlan& a, const StepPlan& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.finished, b.finished);
  ASSERT_EQ(a.starts.size(), b.starts.size());
  for (size_t i = 0; i < a.starts.size(); ++i) {
    EXPECT_EQ(a.starts[i].slot, b.starts[i].slot);
    EXPECT_EQ(a.starts[i].tokens, b.starts[i].tokens);
    EXPECT_EQ(a.starts[i].num_prompt_tokens, b.starts[i].num_prompt_tokens);
    EXPECT_EQ(a.starts[i].num_cached_tokens, b.starts[i].num_cached_tokens);
    EXPECT_EQ(a.starts[i].tables, b.starts[i].tables);
    ExpectEqual(a.starts[i].sampling, b.starts[i].sampling);
    EXPECT_EQ(a.starts[i].banned_ids, b.starts[i].banned_ids);
    EXPECT_EQ(a.starts[i].banned_before, b.starts[i].banned_before);
  }
  ASSERT_EQ(a.appends.size(), b.appends.size());
  for (size_t i = 0; i < a.appends.size(); ++i) {
    EXPECT_EQ(a.appends[i].slot, b.appends[i].slot);
    EXPECT_EQ(a.appends[i].table, b.appends[i].table);
    EXPECT_EQ(a.appends[i].block, b.appends[i].block);
  }
  ASSERT_EQ(a.copies.size(), b.copies.size());
  for (size_t i = 0; i < a.copies.size(); ++i) {
    EXPECT_EQ(a.copies[i].from, b.copies[i].from);
    EXPECT_EQ(a.copies[i].to, b.copies[i].to);
    EXPECT_EQ(a.copies[i].num_tokens, b.copies[i].num_tokens);
  }
  ASSERT_EQ(a.segments.size(), b.segments.size());
  for (size_t i = 0; i < a.segments.size(); ++i) {
    EXPECT_EQ(a.segments[i].slot, b.segments[i].slot);
    EXPECT_EQ(a.segments[i].num_tokens, b.segments[i].num_tokens);
    EXPECT_EQ(a.segments[i].sample, b.segments[i].sample);
    EXPECT_EQ(a.segments[i].capture_logits, b.segments[i].capture_logits);
  }
}

TEST(StepPlanTest, ComesOutAsItWentIn) {
  for (const StepPlan& plan : {StepPlan(), FullPlan()}) {
    const absl::StatusOr<StepPlan> decoded = DecodeStepPlan(EncodeStepPlan(plan));
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    ExpectEqual(*decoded, plan);
  }
}

TEST(StepPlanTest, AStepOfDecodesIsSmall) {
  StepPlan plan;
  plan.step = 1000;
  for (int32_t slot = 0; slot < 64; ++slot) {
    plan.segments.push_back({.slot = slot, .num_tokens = 1, .sample = true});
  }
  EXPECT_LE(EncodeStepPlan(plan).size(), 64u * 4 + 16);
}

TEST(StepPlanTest, RefusesEveryCutAndEveryAddition) {
  const std::string bytes = EncodeStepPlan(FullPlan());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(DecodeStepPlan(bytes.substr(0, length)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << length;
  }
  EXPECT_THAT(std::string(DecodeStepPlan(bytes + '\0').status().message()), HasSubstr("after"));
}

struct Case {
  std::string message;
  void (*spoil)(StepPlan*);
};

TEST(StepPlanTest, NamesTheFieldThatIsWrong) {
  const std::vector<Case> cases = {
      {"finished", [](StepPlan* p) { p->finished[0] = -1; }},
      {"starts.slot", [](StepPlan* p) { p->starts[0].slot = -1; }},
      {"starts.tokens", [](StepPlan* p) { p->starts[0].tokens[2] = -7; }},
      {"starts.num_prompt_tokens", [](StepPlan* p) { p->starts[0].num_prompt_tokens = 0; }},
      {"starts.num_prompt_tokens", [](StepPlan* p) { p->starts[0].num_prompt_tokens = 7; }},
      {"starts.num_cached_tokens", [](StepPlan* p) { p->starts[0].num_cached_tokens = 6; }},
      {"starts.num_cached_tokens", [](StepPlan* p) { p->starts[0].num_cached_tokens = -1; }},
      {"starts.tables.blocks", [](StepPlan* p) { p->starts[0].tables[0].blocks[1] = -1; }},
      {"starts.tables.first_block", [](StepPlan* p) { p->starts[0].tables[1].first_block = -1; }},
      {"temperature", [](StepPlan* p) { p->starts[0].sampling.temperature = -1; }},
      {"top_p",
       [](StepPlan* p) { p->starts[0].sampling.top_p = std::numeric_limits<float>::quiet_NaN(); }},
      {"choice", [](StepPlan* p) { p->starts[0].sampling.choice = 1u << 31; }},
      {"num_logprobs", [](StepPlan* p) { p->starts[0].sampling.num_logprobs = -2; }},
      {"logit_bias", [](StepPlan* p) { p->starts[0].sampling.logit_bias[0].first = -1; }},
      {"starts.banned_ids", [](StepPlan* p) { p->starts[0].banned_ids[0] = -1; }},
      {"starts.banned_before", [](StepPlan* p) { p->starts[0].banned_before = -1; }},
      {"appends.slot", [](StepPlan* p) { p->appends[0].slot = -1; }},
      {"appends.table", [](StepPlan* p) { p->appends[0].table = -1; }},
      {"appends.block", [](StepPlan* p) { p->appends[0].block = -1; }},
      {"copies.from", [](StepPlan* p) { p->copies[0].from = -1; }},
      {"copies.to", [](StepPlan* p) { p->copies[0].to = p->copies[0].from; }},
      {"copies.num_tokens", [](StepPlan* p) { p->copies[0].num_tokens = 0; }},
      {"segments.slot", [](StepPlan* p) { p->segments[0].slot = -1; }},
      {"segments.num_tokens", [](StepPlan* p) { p->segments[0].num_tokens = 0; }},
  };
  for (const Case& c : cases) {
    StepPlan plan = FullPlan();
    c.spoil(&plan);
    const absl::Status status = DecodeStepPlan(EncodeStepPlan(plan)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(StepPlanTest, AHugeCountInAFewBytesTakesNoMemory) {
  const std::string huge = "\xff\xff\xff\xff\x7f";
  const absl::Status finished = DecodeStepPlan("\x01\x05" + huge).status();
  EXPECT_THAT(std::string(finished.message()), HasSubstr("finished is longer than the message"));
  const absl::Status starts = DecodeStepPlan(std::string("\x01\x05\x00", 3) + huge).status();
  EXPECT_THAT(std::string(starts.message()), HasSubstr("starts is longer than the message"));
  const std::string endless(20, '\xff');
  EXPECT_THAT(std::string(DecodeStepPlan("\x01" + endless).status().message()),
              HasSubstr("step is cut off or too long"));
  EXPECT_THAT(std::string(DecodeStepPlan("\x02").status().message()), HasSubstr("version"));
}

// Whatever the bytes, the answer is a plan that is written and read alike, or one clear error.
TEST(StepPlanTest, SurvivesRandomDamage) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string good = EncodeStepPlan(FullPlan());
  int num_accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string bytes = good;
    for (uint32_t n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.erase(at, 1 + random() % 3);
          break;
        case 3:
          bytes.insert(at, 1 + random() % 3, static_cast<char>(random()));
          break;
      }
      if (bytes.empty()) bytes = good;
    }
    const absl::StatusOr<StepPlan> decoded = DecodeStepPlan(bytes);
    if (!decoded.ok()) {
      EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++num_accepted;
    const absl::StatusOr<StepPlan> again = DecodeStepPlan(EncodeStepPlan(*decoded));
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    ExpectEqual(*again, *decoded);
  }
  EXPECT_GT(num_accepted, 100);
}

}  // namespace
}  // namespace cairn
