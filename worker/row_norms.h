// Norms of the rows of a step, in the formats that the products after them read.
//
// Thread: all threads of the team call the same with the same arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/context.h"
#include "worker/normed.h"

namespace cairn {

class RowNorms {
 public:
  // `activations`: what quantised weights read. Errors: ResourceExhausted.
  absl::Status Allocate(int64_t max_rows, int64_t dim, float eps, ActivationFormat activations,
                        int num_threads);

  // Rows at x + row_index[i] * stride (null: row i). Complete when it returns, until the next call.
  const Normed& Normalise(const Context& context, const float* x, int64_t stride,
                          const std::vector<float>& weight, const int32_t* row_index,
                          int64_t num_rows);

  // x += the norm of sum, row by row; strides alike. Syncs at the end.
  void AddNormalised(const Context& context, const float* sum, int64_t stride,
                     const std::vector<float>& weight, int64_t num_rows, float* x);

 private:
  int64_t dim_ = 0;
  float eps_ = 0;
  NormedRows shared_;
  std::vector<NormedRows> alone_;  // [thread]
};

}  // namespace cairn
