#include "worker/matrix_source.h"

#include <algorithm>
#include <cstring>

#include "kernels/activations.h"
#include "worker/tensor_row.h"

namespace cairn {
namespace {

constexpr bool IsPlain(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// `wide` holds the 16 rows of the tile as they are packed, then a row of the file.
void PackTransposed(const MatrixSource& source, int64_t tile, PackTileArgs args,
                    std::vector<float>* wide) {
  const RowSource& rows = source.rows[0];
  const int64_t columns = rows.tensor->shape.back();
  const int64_t element_bytes = Info(source.packed).block_bytes;
  const int64_t row_bytes = rows.num_rows * element_bytes;
  const int64_t first = tile * kTileRows;
  const int64_t num_lanes = std::min<int64_t>(kTileRows, columns - first);
  const int64_t packed_floats = (kTileRows * row_bytes + 3) / 4;
  wide->resize(packed_floats + columns);
  auto* packed = reinterpret_cast<std::byte*>(wide->data());
  for (int64_t k = 0; k < rows.num_rows; ++k) {
    const std::byte* row = RowData(*rows.tensor, rows.first_row + k);
    if (*rows.tensor->dtype != source.packed) {
      ReadRow(*rows.tensor, rows.first_row + k, wide->data() + packed_floats);
      row = reinterpret_cast<const std::byte*>(wide->data() + packed_floats);
    }
    for (int64_t lane = 0; lane < num_lanes; ++lane)
      std::memcpy(packed + lane * row_bytes + k * element_bytes,
                  row + (first + lane) * element_bytes, element_bytes);
  }
  for (int64_t lane = 0; lane < num_lanes; ++lane) args.rows[lane] = packed + lane * row_bytes;
  PackTile(args);
}

}  // namespace

int64_t MatrixSource::num_rows() const {
  if (transposed) return rows[0].tensor->shape.back();
  int64_t sum = 0;
  for (const RowSource& source : rows) sum += source.num_rows;
  return sum;
}

int64_t MatrixSource::num_blocks() const {
  int64_t sum = 0;
  for (const Range& segment : segments) sum += BlocksFor(segment.size());
  return sum;
}

int64_t MatrixSource::read_bytes() const {
  int64_t columns = 0, sum = 0;
  for (const Range& segment : segments) columns += segment.size();
  for (const RowSource& source : rows) {
    const DTypeInfo& info = Info(*source.tensor->dtype);
    const int64_t width = transposed ? source.tensor->shape.back() : columns;
    sum += source.num_rows * width * info.block_bytes / info.block_elements;
  }
  return sum;
}

DType PackedType(DType in_file, std::span<const Range> segments) {
  return CanPack(in_file, segments) ? in_file : DType::kF32;
}

DType PackedTypeTransposed(DType in_file) { return IsPlain(in_file) ? in_file : DType::kF32; }

void PackTileOf(const MatrixSource& source, int64_t tile, std::byte* out, PackScratch* scratch) {
  PackTileArgs args = {
      .dtype = source.packed, .rows = {}, .scales = {}, .segments = source.segments, .out = out};
  if (source.transposed) return PackTransposed(source, tile, args, &scratch->wide);
  for (int i = 0; i < kTileRows; ++i) {
    int64_t row = tile * kTileRows + i;
    for (const RowSource& rows : source.rows) {
      if (row >= rows.num_rows) {
        row -= rows.num_rows;
        continue;
      }
      row += rows.first_row;
      if (*rows.tensor->dtype == source.packed) {
        args.rows[i] = RowData(*rows.tensor, row);
        ReadRowScales(*rows.tensor, row, &scratch->scales[i]);
        args.scales[i] = scratch->scales[i].data();
      } else {
        const int64_t columns = rows.tensor->shape.back();
        scratch->wide.resize(columns * kTileRows);
        float* wide = scratch->wide.data() + i * columns;
        ReadRow(*rows.tensor, row, wide);
        args.rows[i] = reinterpret_cast<const std::byte*>(wide);
      }
      break;
    }
  }
  PackTile(args);
}

}  // namespace cairn
