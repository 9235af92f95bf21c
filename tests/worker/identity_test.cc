#include "worker/identity.h"

#include <gtest/gtest.h>

#include <set>

namespace cairn {
namespace {

ModelConfig Config() {
  ModelConfig config;
  config.architecture = "test";
  config.num_layers = 2;
  config.model_dim = 64;
  config.ropes.push_back({.inverse_frequency = {1.0, 0.1}});
  return config;
}

BlockKey RootOf(const ModelConfig& config, const ResolvedRankOptions& options,
                const std::string& weights = "w", const std::string& tokenizer = "t") {
  return IdentityRoot(ModelIdentity(config, options, weights, tokenizer));
}

TEST(ModelIdentityTest, WhateverChangesTheKvChangesTheRoot) {
  std::set<BlockKey> roots;
  const ResolvedRankOptions options;
  roots.insert(RootOf(Config(), options));
  roots.insert(RootOf(Config(), options, "other"));
  roots.insert(RootOf(Config(), options, "w", "other"));
  ModelConfig config = Config();
  config.num_layers = 3;
  roots.insert(RootOf(config, options));
  config = Config();
  config.ropes[0].inverse_frequency[1] = 0.2;
  roots.insert(RootOf(config, options));
  ResolvedRankOptions other = options;
  for (const ActivationFormat format : {ActivationFormat::kInt8, ActivationFormat::kInt16}) {
    other.activations = format;
    roots.insert(RootOf(Config(), other));
  }
  other = options;
  other.kv_dtype = DType::kF16;
  roots.insert(RootOf(Config(), other));
  other = options;
  other.options.numerics.exact = false;
  roots.insert(RootOf(Config(), other));
  other = options;
  other.options.block_tokens = 32;
  roots.insert(RootOf(Config(), other));
  EXPECT_EQ(roots.size(), 10u);
}

TEST(ModelIdentityTest, RanksThreadsAndLimitsDoNotChangeTheRoot) {
  const ResolvedRankOptions options;
  ResolvedRankOptions other = options;
  other.options.size = 4;
  other.options.rank = 3;
  other.options.num_threads = 8;
  other.options.isa = Isa::kAvx512;
  other.options.num_blocks = 1000;
  other.options.max_step_tokens = 7;
  EXPECT_EQ(RootOf(Config(), options), RootOf(Config(), other));
}

}  // namespace
}  // namespace cairn
