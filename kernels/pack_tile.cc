#include <cstring>

#include "base/log.h"
#include "kernels/matmul.h"
#include "kernels/packed_block.h"

namespace cairn {
namespace {

constexpr int kSuperBlock = 256;  // values of a kQ6_K block

// Elements [first, first + count) of a plain row as column `lane` of [32][16].
template <class Element>
void PackPlain(const std::byte* row, int64_t first, int count, int lane, std::byte* out) {
  for (int k = 0; k < count; ++k) {
    std::memcpy(out + (k * kTileRows + lane) * sizeof(Element),
                row + (first + k) * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
  }
}

// Copies `num_groups` times 4 bytes to [group][16 rows][4].
void PackGroups(const std::byte* from, int num_groups, int lane, std::byte* out) {
  for (int g = 0; g < num_groups; ++g)
    std::memcpy(out + (g * kTileRows + lane) * 4, from + 4 * g, 4);
}

void PackHalf(const std::byte* from, int lane, std::byte* out) {
  std::memcpy(out + 2 * lane, from, 2);
}

// One of the 8 blocks of 32 of a kQ6_K block.
void PackQ6K(const std::byte* block, int part, int lane, std::byte* out) {
  const std::byte* low = block + 64 * (part / 4) + 32 * (part % 2);
  const std::byte* high = block + 128 + 32 * (part / 4);
  uint8_t nibbles[16] = {}, pairs[8] = {};
  for (int k = 0; k < kQuantBlock; ++k) {
    const auto low_byte = static_cast<uint8_t>(low[k]), high_byte = static_cast<uint8_t>(high[k]);
    const int nibble = part % 4 < 2 ? low_byte & 15 : low_byte >> 4;
    const int top = (high_byte >> (2 * (part % 4))) & 3;
    nibbles[k % 16] |= static_cast<uint8_t>(nibble << (k < 16 ? 0 : 4));
    pairs[k % 8] |= static_cast<uint8_t>(top << (2 * (k / 8)));
  }
  PackGroups(reinterpret_cast<const std::byte*>(nibbles), 4, lane, out);
  PackGroups(reinterpret_cast<const std::byte*>(pairs), 2, lane, out + kHighBitsAt);
  for (int half = 0; half < 2; ++half)
    out[kSubScalesAt + half * kTileRows + lane] = block[192 + 2 * part + half];
  PackHalf(block + 208, lane, out + ScalesAt(DType::kQ6_K));
}

// Elements [first, first + count) of a row, at most 32, as lane `lane` of a packed block. The rest
// of a quantised block keeps what the file has there: it only meets activations that are zero.
void PackLane(DType dtype, const std::byte* row, int64_t first, int count, int lane,
              std::byte* out) {
  const std::byte* block = row + first / kQuantBlock * Info(dtype).block_bytes;
  switch (dtype) {
    case DType::kF32:
      return PackPlain<float>(row, first, count, lane, out);
    case DType::kF16:
    case DType::kBF16:
      return PackPlain<uint16_t>(row, first, count, lane, out);
    case DType::kQ8_0:
      PackGroups(block + 2, 8, lane, out);
      return PackHalf(block, lane, out + ScalesAt(dtype));
    case DType::kQ4_0:
      PackGroups(block + 2, 4, lane, out);
      return PackHalf(block, lane, out + ScalesAt(dtype));
    case DType::kQ4_1:
      PackGroups(block + 4, 4, lane, out);
      PackHalf(block, lane, out + ScalesAt(dtype));
      return PackHalf(block + 2, lane, out + kMinimumsAt);
    case DType::kQ6_K:
      return PackQ6K(row + first / kSuperBlock * Info(dtype).block_bytes,
                     static_cast<int>(first % kSuperBlock / kQuantBlock), lane, out);
  }
}

}  // namespace

int64_t PackedTileBytes(DType dtype, int64_t num_blocks) {
  return num_blocks * PackedBlockBytes(dtype);
}

void PackTile(const PackTileArgs& args) {
  const int block_bytes = PackedBlockBytes(args.dtype);
  std::byte* out = args.out;
  for (const Range& segment : args.segments) {
    CHECK(segment.begin >= 0 && segment.begin <= segment.end)
        << segment.begin << ".." << segment.end;
    CHECK(!Info(args.dtype).quantised || segment.begin % kQuantBlock == 0) << segment.begin;
    for (int64_t k = segment.begin; k < segment.end; k += kQuantBlock, out += block_bytes) {
      const int64_t left = segment.end - k;
      const int count = left < kQuantBlock ? static_cast<int>(left) : kQuantBlock;
      std::memset(out, 0, block_bytes);
      for (int lane = 0; lane < kTileRows; ++lane)
        if (args.rows[lane] != nullptr) PackLane(args.dtype, args.rows[lane], k, count, lane, out);
    }
  }
}

}  // namespace cairn
