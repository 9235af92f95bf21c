// Sequences with random queries, keys and values, a pool of blocks that holds them, and attention
// of any rows of them in one call: what tests and benchmarks of attention arrange.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "kernels/attention.h"
#include "kernels/context.h"

namespace cairn {

struct AttentionShape {
  int num_heads = 4, num_kv_heads = 2, head_dim = 32;
  // Of the latent layout: how many leading elements of a key are the value. 0: keys and values.
  int latent_value_dim = 0;

  int value_dim() const { return latent_value_dim > 0 ? latent_value_dim : head_dim; }
  int padded() const { return (head_dim + 15) / 16 * 16; }
};

// Rounds a value to a KV type and back.
inline float RoundedTo(DType dtype, float x) {
  if (dtype == DType::kF16) return _cvtsh_ss(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
  if (dtype == DType::kF32) return x;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
  std::memcpy(&x, &bits, sizeof(bits));
  return x;
}

// Queries [T][H][D], scaled; keys and values [T][K][D], exact in `dtype`. The latent layout has no
// values of its own.
struct AttentionTokens {
  AttentionShape shape;
  int num_tokens = 0;
  std::vector<float> queries = {}, keys = {}, values = {};

  const std::vector<float>& seen_values() const {
    return shape.latent_value_dim > 0 ? keys : values;
  }

  static AttentionTokens Random(const AttentionShape& shape, int num_tokens, DType dtype,
                                uint32_t seed) {
    AttentionTokens out = {.shape = shape, .num_tokens = num_tokens};
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    const auto fill = [&](int heads, std::vector<float>* to) {
      to->resize(static_cast<size_t>(num_tokens) * heads * shape.head_dim);
      for (float& x : *to) x = normal(random);
    };
    fill(shape.num_heads, &out.queries);
    fill(shape.num_kv_heads, &out.keys);
    if (shape.latent_value_dim == 0) fill(shape.num_kv_heads, &out.values);
    for (float& x : out.queries) x *= 1.5f * scale;
    for (float& x : out.keys) x = RoundedTo(dtype, x);
    for (float& x : out.values) x = RoundedTo(dtype, x);
    return out;
  }
};

// A pool whose unwritten bytes are all ones: a NaN in each of the types.
class AttentionPool {
 public:
  AttentionPool(const AttentionShape& shape, DType dtype, int block_tokens, int num_blocks)
      : shape_(shape), free_(static_cast<size_t>(num_blocks)) {
    if (shape.latent_value_dim > 0) layer_.layout = KvLayout::kLatent;
    layer_.value_dim = shape.latent_value_dim;
    layer_.dtype = dtype;
    layer_.block_tokens = block_tokens;
    layer_.head_dim = shape.padded();
    layer_.num_kv_heads = shape.num_kv_heads;
    layer_.block_stride = layer_.block_bytes();
    layer_.head_stride = layer_.block_stride * num_blocks;
    const int64_t bytes = layer_.head_stride * shape.num_kv_heads;
    memory_.reset(static_cast<std::byte*>(
        std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))));
    CHECK(memory_ != nullptr);
    layer_.base = memory_.get();
    std::memset(layer_.base, 0xff, static_cast<size_t>(bytes));
    for (size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<int32_t>(i);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(7));
  }

  const KvLayer& layer() const { return layer_; }

  // Writes tokens [first, end), taking blocks for the table where it ends. The padding of keys and
  // values stays what it is.
  void Append(const AttentionTokens& tokens, int first, int end, std::vector<int32_t>* table) {
    for (int t = first; t < end; ++t) {
      const size_t index = static_cast<size_t>(t / layer_.block_tokens);
      if (index == table->size()) {
        CHECK(!free_.empty());
        table->push_back(free_.back());
        free_.pop_back();
      }
      const int slot = t % layer_.block_tokens;
      for (int h = 0; h < shape_.num_kv_heads; ++h) {
        const size_t from = (static_cast<size_t>(t) * shape_.num_kv_heads + h) * shape_.head_dim;
        for (int d = 0; d < shape_.head_dim; ++d) {
          if (layer_.layout == KvLayout::kLatent) {
            Put(layer_.keys(h, (*table)[index]), slot * layer_.head_dim + d, tokens.keys[from + d]);
            continue;
          }
          Put(layer_.keys(h, (*table)[index]), d * layer_.block_tokens + slot,
              tokens.keys[from + d]);
          Put(layer_.values(h, (*table)[index]), slot * layer_.head_dim + d,
              tokens.values[from + d]);
        }
      }
    }
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };

  void Put(std::byte* extent, int index, float x) const {
    if (layer_.dtype == DType::kF32) {
      std::memcpy(extent + index * 4, &x, 4);
      return;
    }
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    const uint16_t half = layer_.dtype == DType::kF16
                              ? static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT))
                              : static_cast<uint16_t>(bits >> 16);
    std::memcpy(extent + index * 2, &half, 2);
  }

  const AttentionShape shape_;
  std::vector<int32_t> free_;
  std::unique_ptr<std::byte, Free> memory_;
  KvLayer layer_;
};

using OutputRow = std::vector<std::byte>;

// Rows [first, first + num_rows) of a sequence.
struct AttentionRows {
  const AttentionTokens* tokens = nullptr;
  const std::vector<int32_t>* table = nullptr;
  int first = 0;
  int num_rows = 0;
};

struct AttentionSetup {
  Isa isa = Isa::kAvx2;
  int num_threads = 1;
  ActivationFormat format = ActivationFormat::kF32;
  int64_t max_split_units = 0;
  int window = 0;
  float score_cap = 0;
  // Of a rank that has only these query heads, and the KV heads they read; 0: all.
  int first_head = 0, num_heads = 0;
};

// Attention of all rows in one step. Returns the bytes of each row.
inline std::vector<OutputRow> Attend(KvLayer layer, std::span<const AttentionRows> batch,
                                     const AttentionSetup& setup) {
  const AttentionShape shape = batch[0].tokens->shape;
  const int64_t width = int64_t{shape.num_heads} * shape.head_dim;
  const int group = shape.num_heads / shape.num_kv_heads;
  const int num_heads = setup.num_heads > 0 ? setup.num_heads : shape.num_heads;
  const int first_kv_head = setup.first_head / group;
  layer.num_kv_heads = (setup.first_head + num_heads - 1) / group + 1 - first_kv_head;
  layer.base += first_kv_head * layer.head_stride;
  std::vector<float> queries;
  std::vector<AttentionSequence> sequences;
  AttentionScratch::Limits limits = {.num_threads = setup.num_threads,
                                     .max_sequences = static_cast<int64_t>(batch.size()),
                                     .num_heads = num_heads,
                                     .num_kv_heads = layer.num_kv_heads,
                                     .head_dim = shape.head_dim,
                                     .group = std::min(group, num_heads),
                                     .value_dim = shape.latent_value_dim,
                                     .layout = layer.layout,
                                     .max_split_units = setup.max_split_units};
  for (const AttentionRows& rows : batch) {
    sequences.push_back({.block_table = rows.table->data(),
                         .first_row = limits.max_rows,
                         .first_position = rows.first,
                         .num_rows = rows.num_rows});
    const float* from = rows.tokens->queries.data() + rows.first * width;
    queries.insert(queries.end(), from, from + rows.num_rows * width);
    limits.max_rows += rows.num_rows;
    limits.max_context = std::max<int64_t>(limits.max_context, rows.first + rows.num_rows);
  }

  Activations activations = {.format = setup.format,
                             .num_blocks = num_heads * BlocksFor(shape.value_dim())};
  const auto row_bytes = static_cast<size_t>(activations.row_bytes());
  // Zeroed: a field of a block that nobody reads is never written.
  std::vector<std::byte> out(row_bytes * static_cast<size_t>(limits.max_rows) + 64);
  activations.data = out.data() + (64 - reinterpret_cast<uintptr_t>(out.data()) % 64) % 64;
  const AttentionPlan plan = PlanAttention(sequences, layer.block_tokens, layer.num_kv_heads,
                                           setup.num_threads, setup.window);
  const AttentionArgs args = {.kv = layer,
                              .queries = queries.data() + setup.first_head * shape.head_dim,
                              .query_stride = width,
                              .num_heads = num_heads,
                              .group = group,
                              .skipped_heads = setup.first_head % group,
                              .head_dim = shape.head_dim,
                              .value_dim = shape.latent_value_dim,
                              .score_cap = setup.score_cap,
                              .plan = &plan,
                              .out = activations};

  auto team = ThreadTeam::Create({.num_threads = setup.num_threads, .isa = setup.isa});
  CHECK(team.ok());
  const std::unique_ptr<AttentionScratch> scratch = AttentionScratch::Create(limits);
  (*team)->Run([&](const Context& context) { PagedAttention(context, args, *scratch); });

  std::vector<OutputRow> result;
  for (int64_t r = 0; r < limits.max_rows; ++r)
    result.emplace_back(activations.row(r), activations.row(r) + row_bytes);
  return result;
}

// One sequence with all of its tokens in a pool of its own.
struct StoredTokens {
  StoredTokens(AttentionTokens of, DType dtype, int block_tokens)
      : tokens(std::move(of)),
        pool(tokens.shape, dtype, block_tokens, tokens.num_tokens / block_tokens + 2) {
    pool.Append(tokens, 0, tokens.num_tokens, &table);
  }
  AttentionRows rows(int first, int num_rows) const { return {&tokens, &table, first, num_rows}; }
  std::vector<OutputRow> All(const AttentionSetup& setup) const {
    return Attend(pool.layer(), std::vector{rows(0, tokens.num_tokens)}, setup);
  }

  AttentionTokens tokens;
  AttentionPool pool;
  std::vector<int32_t> table;
};

}  // namespace cairn
