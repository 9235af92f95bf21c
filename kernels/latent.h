// What multi-head latent attention does around its products: the append of latent vectors to the
// pool, and the queries on their way to it.
//
// Source: arXiv 2405.04434, with the up projection of the keys absorbed into the
// queries: scores are products with the latent vector itself, which the cache holds once for all
// heads.
#pragma once

#include <cstdint>

#include "kernels/activations.h"
#include "kernels/context.h"
#include "kernels/kv_layout.h"
#include "kernels/rope.h"

namespace cairn {

struct LatentAppendArgs {
  KvLayer kv = {};           // kLatent; head_dim: latent_dim + rope_dim, padded
  float* latents = nullptr;  // [T][stride]: latent_dim, then rope_dim elements; changed
  int64_t stride = 0;
  int latent_dim = 0;
  int rope_dim = 0;
  const float* norm = nullptr;  // [latent_dim]
  float norm_eps = 0;
  RopePairs pairs = RopePairs::kInterleaved;
  const float* angles = nullptr;       // [T][rope_dim / 2][cos, sin]
  const int32_t* positions = nullptr;  // [T]
  const int32_t* blocks = nullptr;     // [T] block of the pool that holds the row's position
  int64_t num_rows = 0;
};

// Normalises latent vectors (kernels/rms_norm.h), turns the parts of keys and stores both, rounded
// to kv.dtype. Divides rows among threads. Does not Sync.
void LatentAppend(const Context& context, const LatentAppendArgs& args);

struct LatentQueriesArgs {
  float* queries = nullptr;  // [T][query_stride]: heads of nope_dim, then rope_dim; changed
  int64_t query_stride = 0;
  int num_heads = 0;  // of the rank
  int nope_dim = 0;
  int rope_dim = 0;
  int latent_dim = 0;
  RopePairs pairs = RopePairs::kInterleaved;
  float scale = 1;                // multiplied into both parts
  const float* angles = nullptr;  // [T][rope_dim / 2][cos, sin]
  Activations nope = {};  // [T]: head h at block h * BlocksFor(nope_dim), each head a logical shard
  // [T][absorbed_stride]: head h at h * (latent_dim + rope_dim). Its last rope_dim elements are
  // written here, the others by the product with the up projection of the keys.
  float* absorbed = nullptr;
  int64_t absorbed_stride = 0;
  int64_t num_rows = 0;
};

// Divides (row, head) units among threads. Does not Sync.
void LatentQueries(const Context& context, const LatentQueriesArgs& args);

}  // namespace cairn
