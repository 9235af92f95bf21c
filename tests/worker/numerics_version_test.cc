// Golden digests of logits: when one changes, a bit of a result has changed, KV of an older build
// no longer fits, and kNumericsVersion must go up together with the digest here.

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/sha256.h"
#include "tests/worker/model_runner.h"
#include "worker/identity.h"

namespace cairn {
namespace {

using testing::GoldenInts;
using testing::ModelRunner;
using testing::RunnerOptions;
using testing::RunRequest;
using testing::RunResult;

// Of the logits of all positions of a prompt and of eight greedy tokens after it.
std::string DigestOf(const std::string& model, const std::vector<int32_t>& prompt) {
  auto runner = ModelRunner::Start(model, {});
  if (!runner.ok()) return runner.status().ToString();
  RunRequest request;
  request.prompt = prompt;
  request.max_tokens = 9;
  const RunResult result = (*runner)->Run(request);
  Sha256 hash;
  for (const auto& [position, digest] : result.digests) hash.Update(digest);
  return ToHex(hash.Finish()).substr(0, 16);
}

std::vector<int32_t> Prompt(const std::string& golden, const std::string& name) {
  auto checkpoint = Checkpoint::Open(golden);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return GoldenInts(**checkpoint, name);
}

TEST(NumericsVersionTest, BitsOfThisVersionAreTheseBits) {
  ASSERT_EQ(kNumericsVersion, 1) << "a new version has new digests";
  const std::string folder = std::string(CAIRN_TEST_DATA) + "/golden/models/";
  const auto llama = Prompt(folder + "llama/golden.safetensors", "p300.ids");
  EXPECT_EQ(DigestOf(folder + "llama/f32", llama), "fa5ef14fa92fb4bb");
  EXPECT_EQ(DigestOf(folder + "llama/model.gguf", llama), "c0755ff22b3b158a");
  const auto llama3 = Prompt(folder + "llama3_rope/golden.safetensors", "p300.ids");
  EXPECT_EQ(DigestOf(folder + "llama3_rope/bf16", llama3), "3a0387c4fcd60b3a");
}

TEST(NumericsVersionTest, BitsOfQuantisedWeightsToo) {
  const std::string model = std::string(CAIRN_MODEL_CACHE) + "/smollm2-135m-instruct-q4_1.gguf";
  if (!std::ifstream(model).good()) GTEST_SKIP() << "no model: " << model;
  EXPECT_EQ(DigestOf(model, {504, 3575, 282, 4649, 314}), "9fb6f18eddb18643");
}

}  // namespace
}  // namespace cairn
