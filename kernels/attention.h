// Paged flash attention: exact softmax attention over blocks of the pool, for prefill, decode and
// mixed batches in one call; grouped query heads share each load of a key or value.
//
// Source: FlashAttention (Dao et al. 2022), online softmax (Milakov and Gimelshein 2018); paging
// after PagedAttention (Kwon et al. 2023).
//
// Order of operations, the same for one query row or many: the context is cut into tiles of
// kAttentionTile tokens at absolute multiples. Per tile: scores summed over D in order (fma), the
// tile's maximum, weights exp(score - maximum), their sum over 16 virtual lanes (token t in lane
// t mod 16) and a fixed tree, values summed in token order (fma). Tiles merge in ascending order.
// Keys and values of masked or unwritten positions are never used in arithmetic that reaches the
// output (a NaN there changes nothing). With a cap a score s becomes cap * tanh(s / cap), before
// the tile's maximum. With a window, and in the latent layout, the order is the same.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/activations.h"
#include "kernels/attention_plan.h"
#include "kernels/context.h"
#include "kernels/kv_layout.h"

namespace cairn {

struct AttentionArgs {
  KvLayer kv = {};
  const float* queries = nullptr;  // [T][query_stride]: num_heads * head_dim, rotated and scaled
  int64_t query_stride = 0;
  // Query heads of the rank, in the order of their KV heads, which have `group` of them each in the
  // model. 0: num_heads / num_kv_heads. The first KV head's first `skipped_heads` may be another
  // rank's, and so what is missing of the last KV head's.
  int num_heads = 0;
  int group = 0, skipped_heads = 0;
  int head_dim = 0;                     // D_true of queries and keys; kv.head_dim is padded
  int value_dim = 0;                    // of values and of each head of out; 0: head_dim
  float score_cap = 0;                  // 0: none
  const AttentionPlan* plan = nullptr;  // of the step, for this pool, its KV heads and the team
  Activations out = {};  // [T]: head h at block h * BlocksFor(value_dim), each head a logical shard
};

// Scratch of a team, sized once for the largest step. Grows never.
class AttentionScratch {
 public:
  struct Limits {
    int num_threads = 1;
    int64_t max_rows = 0;       // of a step
    int64_t max_sequences = 0;  // of a step
    int64_t max_context = 0;    // tokens of one sequence
    int num_heads = 0, num_kv_heads = 0, head_dim = 0;
    int group = 0;      // the largest; 0: num_heads / num_kv_heads
    int value_dim = 0;  // 0: head_dim
    KvLayout layout = KvLayout::kKeysAndValues;
    // Bounds the (sequence position, KV head, tile) softmax states in flight at once, where the
    // context is split; more than these take another round. 0: chosen from the above.
    int64_t max_split_units = 0;
  };
  static std::unique_ptr<AttentionScratch> Create(const Limits& limits);
  virtual ~AttentionScratch() = default;
};

// Every thread of the team calls it with the same args. Syncs inside; results of all threads are
// visible to the caller after its next Sync, and only then may the scratch be used again.
void PagedAttention(const Context& context, const AttentionArgs& args, AttentionScratch& scratch);

}  // namespace cairn
