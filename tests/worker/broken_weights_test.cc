// Weights that are no numbers: refused at load where they are few and would spoil every request,
// otherwise an error for the requests that meet them, and for nobody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/worker/model_runner.h"
#include "tests/worker/random_model.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ModelRunner;
using testing::RunRequest;
using testing::RunResult;
using testing::WriteRandomModel;

constexpr int kModelDim = 64, kVocab = 100, kBadToken = 7;

nlohmann::json Config() {
  return {{"model_type", "llama"},          {"architectures", {"LlamaForCausalLM"}},
          {"num_hidden_layers", 2},         {"hidden_size", kModelDim},
          {"intermediate_size", 96},        {"num_attention_heads", 4},
          {"num_key_value_heads", 2},       {"vocab_size", kVocab},
          {"max_position_embeddings", 128}, {"rms_norm_eps", 1e-5}};
}

RunRequest Request(int32_t first_token, float temperature) {
  RunRequest request;
  for (int32_t i = 0; i < 20; ++i) request.prompt.push_back(10 + (first_token + 3 * i) % 80);
  request.prompt.back() = first_token;
  request.sampling.temperature = temperature;
  request.max_tokens = 8;
  // A token that spoils what comes after it is never drawn.
  request.sampling.logit_bias = {{kBadToken, -100.0f}};
  return request;
}

// With and without a temperature, in one step: greedy rows of ranks and drawn ones are chosen on
// different ways.
TEST(BrokenWeightsTest, ATokenWithoutNumbersFailsTheRequestsThatHoldIt) {
  TemporaryFolder folder;
  WriteRandomModel(Config(), &folder, [](WeightRole role, std::span<float> values) {
    if (role == WeightRole::kTokenEmbedding) values[kBadToken * kModelDim + 5] = std::nanf("");
  });
  for (const int size : {1, 2}) {
    auto runner = ModelRunner::Start(folder.path(), {.size = size});
    ASSERT_TRUE(runner.ok()) << runner.status();
    const std::vector<RunResult> alone = {(*runner)->Run(Request(20, 0)),
                                          (*runner)->Run(Request(30, 1))};
    for (const bool bias : {true, false}) {
      std::vector<RunRequest> requests = {Request(20, 0), Request(kBadToken, 0), Request(30, 1),
                                          Request(kBadToken, 1)};
      // Without: all rows of the first steps are greedy, and each rank looks at its part.
      if (!bias) {
        requests = {Request(20, 0), Request(kBadToken, 0)};
        for (RunRequest& request : requests) request.sampling.logit_bias.clear();
      }
      for (int round = 0; round < 2; ++round) {  // the second finds prefixes of the first
        const std::vector<RunResult> results = (*runner)->Run(requests);
        for (size_t i = 0; i < results.size(); ++i) {
          SCOPED_TRACE(::testing::Message() << size << " ranks, request " << i << " bias " << bias);
          if (i % 2 == 0) {
            EXPECT_TRUE(results[i].error.ok()) << results[i].error;
            EXPECT_EQ(results[i].tokens, alone[i / 2].tokens);
            continue;
          }
          EXPECT_EQ(results[i].finish_reason, FinishReason::kError);
          EXPECT_EQ(results[i].error.code(), absl::StatusCode::kInternal);
          EXPECT_THAT(std::string(results[i].error.message()),
                      AllOf(HasSubstr("no finite logit"), HasSubstr("position=20")));
          EXPECT_TRUE(results[i].tokens.empty());
        }
      }
    }
    EXPECT_EQ((*runner)->stats().num_running, 0);
  }
}

TEST(BrokenWeightsTest, ANormThatIsNotFiniteIsRefusedByName) {
  for (const float value : {std::nanf(""), INFINITY}) {
    TemporaryFolder folder;
    WriteRandomModel(Config(), &folder, [&](WeightRole role, std::span<float> values) {
      if (role == WeightRole::kFinalNorm) values[3] = value;
    });
    for (const int size : {1, 2}) {
      const absl::Status status = ModelRunner::Start(folder.path(), {.size = size}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("model.norm.weight"), HasSubstr("index=3"), HasSubstr("value=")));
    }
  }
}

}  // namespace
}  // namespace cairn
