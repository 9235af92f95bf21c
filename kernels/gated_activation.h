// The gate of a feed-forward layer: silu(gate) * up or gelu_tanh(gate) * up.
#pragma once

#include "kernels/activations.h"
#include "kernels/context.h"

namespace cairn {

enum class Gate : uint8_t { kSilu, kGeluTanh };

// One block of up to 32 columns: writes block `out_block` of row r from gate[0..n) and up[0..n);
// n < 32 (the end of a logical shard) pads with zeros. Computes all rows: the caller divides the
// columns among threads, as their products are. Does not Sync.
struct GatedActivationArgs {
  Gate gate_kind = Gate::kSilu;
  const float* gate = nullptr;  // row r at gate + r * stride
  const float* up = nullptr;
  int64_t stride = 0;
  int64_t num_rows = 0;
  int n = kQuantBlock;
  Activations out = {};
  int64_t out_block = 0;
};
void GatedActivation(const Context& context, const GatedActivationArgs& args);

// out = a + b for n floats, all by the calling thread: the caller divides. out may alias either.
void AddRows(const Context& context, const float* a, const float* b, int64_t n, float* out);

// values *= factor, and values = cap * tanh(values / cap): the same.
void ScaleRow(const Context& context, float factor, int64_t n, float* values);
void CapRow(const Context& context, float cap, int64_t n, float* values);

}  // namespace cairn
