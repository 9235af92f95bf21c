#include "model/model_digest.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

std::string DigestOf(const std::string& model) {
  const auto checkpoint =
      Checkpoint::Open(std::string(CAIRN_TEST_DATA) + "/golden/models/" + model);
  if (!checkpoint.ok()) return checkpoint.status().ToString();
  const auto config = LoadModelConfig(**checkpoint);
  if (!config.ok()) return config.status().ToString();
  return ModelDigest(**checkpoint, *config);
}

TEST(ModelDigestTest, IsEqualForTheSameModelAndDiffersForAnother) {
  EXPECT_EQ(DigestOf("llama/f32").size(), 64u) << DigestOf("llama/f32");
  EXPECT_EQ(DigestOf("llama/f32"), DigestOf("llama/f32"));
  EXPECT_NE(DigestOf("llama/f32"), DigestOf("llama3_rope/f32"));
}

TEST(ModelDigestTest, TellsElementTypesApart) {
  EXPECT_EQ(DigestOf("llama/bf16").size(), 64u) << DigestOf("llama/bf16");
  EXPECT_NE(DigestOf("llama/f32"), DigestOf("llama/bf16"));
}

}  // namespace
}  // namespace cairn
