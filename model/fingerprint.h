// The content hash of a checkpoint's weights, for the identity of KV blocks.
// Thread: any.
#pragma once

#include <string>

#include "base/sha256.h"
#include "model/checkpoint.h"

namespace cairn {

// Tensors are hashed in tiles of this size, so that the work can be cut anywhere and still gives
// the same digest.
inline constexpr int64_t kFingerprintTileBytes = 1 << 20;

// Hashes names, types, shapes and all bytes of all tensors, in the order of the names. It does not
// depend on the order or place of tensors in files, on shards, or on how a model is cut for ranks.
// Reads the whole model once: seconds per few gigabytes.
Sha256Digest WeightsFingerprint(const Checkpoint& checkpoint);

// The same, remembered in a small file in `cache_directory` under the identity (inode, size, times)
// of the checkpoint's files. A cache that cannot be read or written costs time, never the answer.
Sha256Digest CachedWeightsFingerprint(const Checkpoint& checkpoint,
                                      const std::string& cache_directory);

}  // namespace cairn
