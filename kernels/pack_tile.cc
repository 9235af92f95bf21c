#include <cstring>

#include <limits>

#include "base/log.h"
#include "kernels/half.h"
#include "kernels/k_quant_scale.h"
#include "kernels/matmul.h"
#include "kernels/packed_block.h"

namespace cairn {
namespace {

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

// 32 quants of 4 or 5 bits.
using Quants = uint8_t[kQuantBlock];

// Quants of kQ5_0 and kQ5_1: 32 fifth bits, then nibbles, the low ones for the first half.
void ReadFiveBits(const std::byte* from, Quants& quants) {
  uint32_t fifth;
  std::memcpy(&fifth, from, 4);
  for (int k = 0; k < kQuantBlock; ++k) {
    const auto byte = static_cast<unsigned>(from[4 + k % 16]);
    quants[k] = static_cast<uint8_t>((k < 16 ? byte & 15 : byte >> 4) | (fifth >> k & 1) << 4);
  }
}

// Quants of one of the 8 parts of a kQ4_K or kQ5_K block: nibbles of two parts share 32 bytes, and
// fifth bits of all parts share 32 bytes in front of them.
void ReadKQuants(DType dtype, const std::byte* block, int part, Quants& quants) {
  const std::byte* fifth = block + kKQuantHeaderBytes;
  const std::byte* low = fifth + (dtype == DType::kQ5_K ? kQuantBlock : 0) + 32 * (part / 2);
  for (int k = 0; k < kQuantBlock; ++k) {
    const unsigned bits = static_cast<unsigned>(low[k]) >> (4 * (part % 2)) & 15;
    const unsigned top = dtype == DType::kQ5_K ? static_cast<unsigned>(fifth[k]) >> part & 1 : 0;
    quants[k] = static_cast<uint8_t>(bits | top << 4);
  }
}

void PackQuants(DType dtype, const Quants& quants, int lane, std::byte* out) {
  uint8_t nibbles[16] = {}, fifth[4] = {};
  for (int k = 0; k < kQuantBlock; ++k) {
    nibbles[k % 16] |= static_cast<uint8_t>((quants[k] & 15) << (k < 16 ? 0 : 4));
    fifth[k % 4] |= static_cast<uint8_t>(quants[k] >> 4 << (4 * (k / 4 % 2) + k / 8));
  }
  PackGroups(reinterpret_cast<const std::byte*>(nibbles), 4, lane, out);
  if (HasFifthBit(dtype))
    PackGroups(reinterpret_cast<const std::byte*>(fifth), 1, lane, out + kHighBitsAt);
}

// One of the 8 parts of a kQ4_K or kQ5_K block.
void PackKQuants(DType dtype, const std::byte* block, int part, int lane, std::byte* out) {
  Quants quants;
  ReadKQuants(dtype, block, part, quants);
  PackQuants(dtype, quants, lane, out);
  const KQuantScale scale = KQuantScaleOf(block, part);
  out[ScalesAt(dtype) + lane] = static_cast<std::byte>(scale.scale);
  out[MinimumsAt(dtype) + lane] = static_cast<std::byte>(scale.min);
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

// The values are packed already; `scale` is theirs.
void PackFloat8Scale(const std::byte* codes, int count, float scale, int lane, std::byte* out) {
  scale *= kFloat8ScaleFactor;
  for (int k = 0; k < count; ++k) {
    if ((static_cast<int>(codes[k]) & 0x7f) == kFloat8Nan)
      scale = std::numeric_limits<float>::quiet_NaN();
  }
  std::memcpy(out + ScalesAt(DType::kF8E4M3) + lane * sizeof(float), &scale, sizeof(float));
}

// Elements [first, first + count) of a row, at most 32, as lane `lane` of a packed block. The rest
// of a quantised block keeps what the file has there: it only meets activations that are zero.
void PackLane(DType dtype, const std::byte* row, int64_t first, int count, int lane,
              std::byte* out) {
  const DTypeInfo& info = Info(dtype);
  const std::byte* block = row + first / info.block_elements * info.block_bytes;
  const int part = static_cast<int>(first % info.block_elements / kQuantBlock);
  switch (dtype) {
    case DType::kF32:
      return PackPlain<float>(row, first, count, lane, out);
    case DType::kF16:
    case DType::kBF16:
      return PackPlain<uint16_t>(row, first, count, lane, out);
    case DType::kF8E4M3:
      return PackPlain<uint8_t>(row, first, count, lane, out);
    case DType::kQ8_0:
      PackGroups(block + 2, 8, lane, out);
      return PackHalf(block, lane, out + ScalesAt(dtype));
    case DType::kQ4_0:
      PackGroups(block + 2, 4, lane, out);
      return PackHalf(block, lane, out + ScalesAt(dtype));
    case DType::kQ4_1:
      PackGroups(block + 4, 4, lane, out);
      PackHalf(block, lane, out + ScalesAt(dtype));
      return PackHalf(block + 2, lane, out + MinimumsAt(dtype));
    case DType::kQ5_0:
    case DType::kQ5_1: {
      const int quants_at = dtype == DType::kQ5_1 ? 4 : 2;
      Quants quants;
      ReadFiveBits(block + quants_at, quants);
      PackQuants(dtype, quants, lane, out);
      PackHalf(block, lane, out + ScalesAt(dtype));
      if (dtype == DType::kQ5_1) PackHalf(block + 2, lane, out + MinimumsAt(dtype));
      return;
    }
    case DType::kQ4_K:
    case DType::kQ5_K:
      return PackKQuants(dtype, block, part, lane, out);
    case DType::kQ6_K:
      return PackQ6K(block, part, lane, out);
  }
}

// Writes what stands in front of the blocks of a type with a table.
void PackTable(const PackTileArgs& args) {
  const int64_t begin = args.segments.front().begin, end = args.segments.back().end;
  const auto phase = static_cast<int32_t>(begin % kSuperBlock / kQuantBlock);
  std::memset(args.out, 0, TableBytes(args.dtype, BlocksFor(end - begin)));
  std::memcpy(args.out, &phase, sizeof(phase));
  std::byte* line = args.out + kTableLineBytes;
  for (int64_t k = begin / kSuperBlock * kSuperBlock; k < end;
       k += kSuperBlock, line += kTableLineBytes) {
    for (int lane = 0; lane < kTileRows; ++lane) {
      if (args.rows[lane] == nullptr) continue;
      const std::byte* block = args.rows[lane] + RowBytes(args.dtype, k);
      PackHalf(block, lane, line);
      PackHalf(block + kKQuantMinimumAt, lane, line + kTableMinimumsAt);
      line[kTableMinimumsAt + 2 * lane + 1] ^= std::byte{0x80};  // the sign
    }
  }
}

}  // namespace

int64_t PackedTileBytes(DType dtype, int64_t num_blocks) {
  constexpr int64_t kLineBytes = 64;
  const int64_t bytes = TableBytes(dtype, num_blocks) + num_blocks * PackedBlockBytes(dtype);
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

bool CanPack(DType dtype, std::span<const Range> segments) {
  if (!Info(dtype).quantised && dtype != DType::kF8E4M3) return true;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].begin % kQuantBlock != 0) return false;
    if (HasScaleTable(dtype) && i > 0 && segments[i].begin != segments[i - 1].end) return false;
  }
  return true;
}

void PackTile(const PackTileArgs& args) {
  const int block_bytes = PackedBlockBytes(args.dtype);
  CHECK_EQ(reinterpret_cast<uintptr_t>(args.out) % 64, 0u);
  CHECK(CanPack(args.dtype, args.segments)) << Info(args.dtype).name;
  std::byte* out = args.out;
  if (HasScaleTable(args.dtype) && !args.segments.empty()) {
    PackTable(args);
    out +=
        TableBytes(args.dtype, BlocksFor(args.segments.back().end - args.segments.front().begin));
  }
  for (const Range& segment : args.segments) {
    CHECK(segment.begin >= 0 && segment.begin <= segment.end)
        << segment.begin << ".." << segment.end;
    for (int64_t k = segment.begin; k < segment.end; k += kQuantBlock, out += block_bytes) {
      const int64_t left = segment.end - k;
      const int count = left < kQuantBlock ? static_cast<int>(left) : kQuantBlock;
      std::memset(out, 0, block_bytes);
      for (int lane = 0; lane < kTileRows; ++lane) {
        if (args.rows[lane] == nullptr) continue;
        PackLane(args.dtype, args.rows[lane], k, count, lane, out);
        if (args.dtype == DType::kF8E4M3)
          PackFloat8Scale(args.rows[lane] + k, count, args.scales[lane][k / kFloat8Block], lane,
                          out);
      }
    }
  }
}

}  // namespace cairn
