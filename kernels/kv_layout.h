// Where keys and values of one layer lie in the block pool.
//
// A block holds S = block_tokens consecutive tokens of a sequence; per KV head it has two extents:
// keys as [D][S] (lanes are tokens, so a score needs no sum across lanes) and values as [S][D].
// Latent attention keeps one extent for all heads, [S][D]: a latent vector, then the part of the
// key that turns; the first value_dim elements of what is a key are the value too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace cairn {

// The context is split at absolute multiples of this many tokens, whatever the block size.
inline constexpr int kAttentionTile = 256;

// Dimensions are padded to whole vectors.
constexpr int PaddedDim(int dim) { return (dim + 15) / 16 * 16; }

enum class KvLayout : uint8_t { kKeysAndValues, kLatent };

struct KvLayer {
  KvLayout layout = KvLayout::kKeysAndValues;
  DType dtype = DType::kF16;  // kF32, kF16 or kBF16
  int block_tokens = 16;      // S: 16, 32, 64, 128 or 256
  int head_dim = 0;           // D: a multiple of 16 (the pool pads; padding is zero)
  int num_kv_heads = 0;
  int value_dim = 0;          // of kLatent: a multiple of 16
  std::byte* base = nullptr;  // of this layer
  int64_t head_stride = 0;    // bytes between KV heads
  int64_t block_stride = 0;   // bytes between blocks of one head

  int64_t extent_bytes() const {
    return static_cast<int64_t>(block_tokens) * head_dim * Info(dtype).block_bytes;
  }
  // What a head keeps of a block.
  int64_t block_bytes() const {
    return layout == KvLayout::kLatent ? extent_bytes() : 2 * extent_bytes();
  }
  std::byte* keys(int head, int32_t block) const {
    return base + head * head_stride + block * block_stride;
  }
  std::byte* values(int head, int32_t block) const {
    return keys(head, block) + (layout == KvLayout::kLatent ? 0 : extent_bytes());
  }
};

}  // namespace cairn
