// Where the rows of a packed matrix come from: one or several tensors of a checkpoint.
//
// Thread: any; views the checkpoint, which outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "model/checkpoint.h"

namespace cairn {

// Consecutive rows of one tensor; those of several matrices in it count on.
struct RowSource {
  const Tensor* tensor = nullptr;
  int64_t first_row = 0, num_rows = 0;
};

// A matrix as it will be packed: rows of several tensors one behind the other, all of one type.
struct MatrixSource {
  std::vector<RowSource> rows;
  std::vector<Range> segments;  // of K
  DType packed = DType::kF32;
  // The columns of the one source of rows are the rows of the matrix, its rows are K.
  bool transposed = false;

  int64_t num_rows() const;
  int64_t num_blocks() const;
  int64_t num_tiles() const { return (num_rows() + kTileRows - 1) / kTileRows; }
  int64_t read_bytes() const;  // of the checkpoint
};

// Segments that cut the blocks of a quantised type are held as float32: the same values.
DType PackedType(DType in_file, std::span<const Range> segments);
// Of a transposed matrix: quantised rows become float32 columns.
DType PackedTypeTransposed(DType in_file);

// What a tile needs while it is packed.
struct PackScratch {
  std::vector<float> wide;               // 16 rows as float32, where a type has to be widened
  std::vector<float> scales[kTileRows];  // of rows that have them
};
void PackTileOf(const MatrixSource& source, int64_t tile, std::byte* out, PackScratch* scratch);

}  // namespace cairn
