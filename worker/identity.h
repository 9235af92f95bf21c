// What the KV of a loaded model depends on, for the block keys of kvstore/key.h.
// Thread: any.
#pragma once

#include <cstdint>
#include <string>

#include "kvstore/key.h"
#include "model/model_config.h"
#include "model/tokenizer.h"
#include "worker/rank.h"

namespace cairn {

// Rises whenever a change to kernels or decoder changes a bit of a result. A test of golden digests
// of logits fails until it does.
inline constexpr int32_t kNumericsVersion = 1;
// Rises whenever the bytes of a block change their meaning (kernels/kv_layout.h).
inline constexpr int32_t kKvLayoutVersion = 1;

// Hash of every id's bytes: equal for both loaders of one vocabulary.
std::string TokenizerFingerprint(const Tokenizer& tokenizer);

// `weights`: the content hash of model/fingerprint.h.
KvIdentity ModelIdentity(const ModelConfig& config, const ResolvedRankOptions& options,
                         const std::string& weights, const std::string& tokenizer);

}  // namespace cairn
