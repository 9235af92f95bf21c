#include "worker/weights.h"

#include <algorithm>
#include <atomic>

#include "base/log.h"
#include "kernels/activations.h"
#include "kernels/dequantise.h"
#include "worker/tensor_row.h"

namespace cairn {
namespace {

// Consecutive rows of one tensor.
struct RowSource {
  const Tensor* tensor = nullptr;
  int64_t first_row = 0, num_rows = 0;
};

// A matrix as it will be packed: rows of several tensors one behind the other, all of one type.
struct MatrixSource {
  std::vector<RowSource> rows;
  std::vector<Range> segments;  // of K
  DType packed = DType::kF32;

  int64_t num_rows() const {
    int64_t sum = 0;
    for (const RowSource& source : rows) sum += source.num_rows;
    return sum;
  }
  int64_t num_blocks() const {
    int64_t sum = 0;
    for (const Range& segment : segments) sum += BlocksFor(segment.size());
    return sum;
  }
};

struct PackJob {
  int32_t source = 0;
  int64_t tile = 0;
  int64_t offset = 0;  // in the thread's arena
};

// The jobs of one thread and where their results lie; filled before the arena exists.
struct ThreadLayout {
  std::vector<PackJob> jobs;
  int64_t bytes = 0;
};

// What a tile needs while it is packed.
struct PackScratch {
  std::vector<float> wide;               // 16 rows as float32, where a type has to be widened
  std::vector<float> scales[kTileRows];  // of rows that have them
};

// Segments that cut the blocks of a quantised type are held as float32: the same values.
DType PackedType(DType in_file, std::span<const Range> segments) {
  return CanPack(in_file, segments) ? in_file : DType::kF32;
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
         ThreadTeam& team)
      : checkpoint_(checkpoint), config_(config), shard_(shard), team_(team) {
    layouts_.resize(team.num_threads());
    weights_.threads.resize(team.num_threads());
  }

  absl::StatusOr<RankWeights> Load(const std::function<void(int64_t, int64_t)>& on_progress) {
    weights_.layers.resize(config_.num_layers);
    for (ThreadWeights& thread : weights_.threads) thread.layers.resize(config_.num_layers);
    for (int layer = 0; layer < config_.num_layers; ++layer) RETURN_IF_ERROR(PlanLayer(layer));
    RETURN_IF_ERROR(PlanHead());
    RETURN_IF_ERROR(Allocate());
    Pack(on_progress);
    return std::move(weights_);
  }

 private:
  absl::StatusOr<const Tensor*> Find(WeightRole role, int layer) {
    return FindWeight(checkpoint_, config_, role, layer);
  }

  absl::Status ReadVector(WeightRole role, int layer, Range part, std::vector<float>* out) {
    ASSIGN_OR_RETURN(const Tensor* tensor, Find(role, layer));
    const int64_t n = tensor->num_elements;
    std::vector<float> all(n);
    DequantiseRow(*tensor->dtype, tensor->data.data(), n, all.data());
    out->insert(out->end(), all.begin() + part.begin, all.begin() + part.end);
    weights_.read_bytes += static_cast<int64_t>(tensor->data.size());
    return absl::OkStatus();
  }

  Range QueryRows() const {
    return {shard_.query_heads.begin * config_.head_dim, shard_.query_heads.end * config_.head_dim};
  }
  Range KvRows() const {
    return {shard_.kv_heads.begin * config_.head_dim, shard_.kv_heads.end * config_.head_dim};
  }

  absl::Status PlanLayer(int layer) {
    LayerVectors& vectors = weights_.layers[layer];
    const Range all = {0, config_.model_dim};
    RETURN_IF_ERROR(ReadVector(WeightRole::kAttentionNorm, layer, all, &vectors.attention_norm));
    RETURN_IF_ERROR(ReadVector(WeightRole::kFfnNorm, layer, all, &vectors.ffn_norm));
    if (config_.qkv_bias) {
      RETURN_IF_ERROR(ReadVector(WeightRole::kQueryBias, layer, QueryRows(), &vectors.qkv_bias));
      RETURN_IF_ERROR(ReadVector(WeightRole::kKeyBias, layer, KvRows(), &vectors.qkv_bias));
      RETURN_IF_ERROR(ReadVector(WeightRole::kValueBias, layer, KvRows(), &vectors.qkv_bias));
    }
    RETURN_IF_ERROR(PlanQkv(layer));
    RETURN_IF_ERROR(PlanOutput(layer));
    RETURN_IF_ERROR(PlanGateUp(layer));
    return PlanDown(layer);
  }

  // Neighbours of one type become one part. Where a part would start inside a tile, all rows are
  // held as float32, so that every part is whole tiles.
  absl::Status PlanQkv(int layer) {
    const std::pair<WeightRole, Range> pieces[] = {{WeightRole::kQuery, QueryRows()},
                                                   {WeightRole::kKey, KvRows()},
                                                   {WeightRole::kValue, KvRows()}};
    std::vector<MatrixSource> parts;
    bool aligned = true;
    for (const auto& [role, rows] : pieces) {
      ASSIGN_OR_RETURN(const Tensor* tensor, Find(role, layer));
      const RowSource source = {tensor, rows.begin, rows.size()};
      if (!parts.empty() && parts.back().packed == *tensor->dtype) {
        parts.back().rows.push_back(source);
        continue;
      }
      if (!parts.empty()) aligned = aligned && parts.back().num_rows() % kTileRows == 0;
      parts.push_back({{source}, {{0, config_.model_dim}}, *tensor->dtype});
    }
    if (!aligned) {
      MatrixSource whole = {{}, {{0, config_.model_dim}}, DType::kF32};
      for (const MatrixSource& part : parts)
        whole.rows.insert(whole.rows.end(), part.rows.begin(), part.rows.end());
      parts = {whole};
    }
    // Threads share the tiles of all parts together, so that their streams are equally long.
    int64_t total_tiles = 0;
    for (const MatrixSource& part : parts) total_tiles += TilesOf(part);
    std::vector<int> indexes;
    for (MatrixSource& part : parts) indexes.push_back(AddSource(std::move(part)));
    for (int thread = 0; thread < team_.num_threads(); ++thread) {
      const Range mine = Split(total_tiles, team_.num_threads(), thread);
      int64_t first = 0;
      for (const int index : indexes) {
        const int64_t tiles = TilesOf(sources_[index]);
        const Range own = {std::max(mine.begin, first), std::min(mine.end, first + tiles)};
        if (own.size() > 0) {
          PackedMatrix matrix = PlanTiles(thread, index, {own.begin - first, own.end - first});
          matrix.first_tile = own.begin;
          weights_.threads[thread].layers[layer].qkv.push_back(matrix);
        }
        first += tiles;
      }
    }
    return absl::OkStatus();
  }

  absl::Status PlanOutput(int layer) {
    ASSIGN_OR_RETURN(const Tensor* tensor, Find(WeightRole::kAttentionOutput, layer));
    MatrixSource source = {{{tensor, 0, config_.model_dim}}, {}, DType::kF32};
    for (int64_t head = shard_.query_heads.begin; head < shard_.query_heads.end; ++head)
      source.segments.push_back({head * config_.head_dim, (head + 1) * config_.head_dim});
    source.packed = PackedType(*tensor->dtype, source.segments);
    const int index = AddSource(std::move(source));
    for (int thread = 0; thread < team_.num_threads(); ++thread)
      weights_.threads[thread].layers[layer].output = PlanShare(thread, index);
    return absl::OkStatus();
  }

  absl::Status PlanGateUp(int layer) {
    constexpr int kUnitTiles = kQuantBlock / kTileRows;
    int indexes[2];
    const Range columns = FfnColumns();
    const WeightRole roles[2] = {WeightRole::kGate, WeightRole::kUp};
    for (int i = 0; i < 2; ++i) {
      ASSIGN_OR_RETURN(const Tensor* tensor, Find(roles[i], layer));
      indexes[i] = AddSource(
          {{{tensor, columns.begin, columns.size()}}, {{0, config_.model_dim}}, *tensor->dtype});
    }
    for (int thread = 0; thread < team_.num_threads(); ++thread) {
      GateUpWeights& out = weights_.threads[thread].layers[layer].gate_up;
      out.units = Split(shard_.ffn_blocks.size(), team_.num_threads(), thread);
      const int64_t start = layouts_[thread].bytes;
      for (int64_t unit = out.units.begin; unit < out.units.end; ++unit) {
        const Range tiles = {unit * kUnitTiles, (unit + 1) * kUnitTiles};
        const PackedMatrix gate = PlanTiles(thread, indexes[0], tiles);
        const PackedMatrix up = PlanTiles(thread, indexes[1], tiles);
        if (unit != out.units.begin) continue;
        out.gate = gate;
        out.up = up;
        out.gate.first_tile = out.up.first_tile = 0;
        out.unit_bytes = layouts_[thread].bytes - start;
      }
    }
    return absl::OkStatus();
  }

  absl::Status PlanDown(int layer) {
    ASSIGN_OR_RETURN(const Tensor* tensor, Find(WeightRole::kDown, layer));
    MatrixSource source = {{{tensor, 0, config_.model_dim}}, {FfnColumns()}, DType::kF32};
    source.packed = PackedType(*tensor->dtype, source.segments);
    const int index = AddSource(std::move(source));
    for (int thread = 0; thread < team_.num_threads(); ++thread)
      weights_.threads[thread].layers[layer].down = PlanShare(thread, index);
    return absl::OkStatus();
  }

  absl::Status PlanHead() {
    RETURN_IF_ERROR(
        ReadVector(WeightRole::kFinalNorm, 0, {0, config_.model_dim}, &weights_.final_norm));
    ASSIGN_OR_RETURN(weights_.embedding, Find(WeightRole::kTokenEmbedding, 0));
    const WeightRole role = config_.tied_output ? WeightRole::kTokenEmbedding : WeightRole::kOutput;
    ASSIGN_OR_RETURN(const Tensor* tensor, Find(role, 0));
    const int64_t first = shard_.vocab_tiles.begin * kTileRows;
    const int64_t end = std::min<int64_t>(shard_.vocab_tiles.end * kTileRows, config_.vocab_size);
    const int index =
        AddSource({{{tensor, first, end - first}}, {{0, config_.model_dim}}, *tensor->dtype});
    for (int thread = 0; thread < team_.num_threads(); ++thread)
      weights_.threads[thread].head = PlanShare(thread, index);
    return absl::OkStatus();
  }

  // The rank's columns of the feed-forward network.
  Range FfnColumns() const {
    return {shard_.ffn_blocks.begin * kQuantBlock,
            std::min<int64_t>(shard_.ffn_blocks.end * kQuantBlock, config_.ffn_dim)};
  }

  static int64_t TilesOf(const MatrixSource& source) {
    return (source.num_rows() + kTileRows - 1) / kTileRows;
  }

  int AddSource(MatrixSource source) {
    for (const RowSource& rows : source.rows) {
      for (const Range& segment : source.segments) {
        const DTypeInfo& info = Info(*rows.tensor->dtype);
        weights_.read_bytes +=
            rows.num_rows * segment.size() * info.block_bytes / info.block_elements;
      }
    }
    sources_.push_back(std::move(source));
    return static_cast<int>(sources_.size()) - 1;
  }

  PackedMatrix PlanShare(int thread, int source) {
    return PlanTiles(thread, source, Split(TilesOf(sources_[source]), team_.num_threads(), thread));
  }

  // Appends tiles to a thread's arena. `data` is an offset until the arena exists.
  PackedMatrix PlanTiles(int thread, int index, Range tiles) {
    const MatrixSource& source = sources_[index];
    ThreadLayout& layout = layouts_[thread];
    const int64_t tile_bytes = PackedTileBytes(source.packed, source.num_blocks());
    const PackedMatrix matrix = {source.packed, reinterpret_cast<const std::byte*>(layout.bytes),
                                 tiles.begin, tiles.size(), source.num_blocks()};
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      layout.jobs.push_back({index, tile, layout.bytes});
      layout.bytes += tile_bytes;
    }
    return matrix;
  }

  absl::Status Allocate() {
    // The kernels prefetch a little past the end of what they read.
    constexpr int64_t kReadAheadBytes = 16384;
    for (int t = 0; t < team_.num_threads(); ++t) {
      ThreadWeights& thread = weights_.threads[t];
      weights_.packed_bytes += layouts_[t].bytes;
      ASSIGN_OR_RETURN(thread.arena,
                       HostBuffer::Allocate(layouts_[t].bytes + kReadAheadBytes, "weights"));
      const auto place = [&](PackedMatrix& matrix) {
        matrix.data = thread.arena.data() + reinterpret_cast<intptr_t>(matrix.data);
      };
      for (ThreadLayer& layer : thread.layers) {
        for (PackedMatrix& part : layer.qkv) place(part);
        place(layer.output);
        place(layer.gate_up.gate);
        place(layer.gate_up.up);
        place(layer.down);
      }
      place(thread.head);
    }
    return absl::OkStatus();
  }

  void Pack(const std::function<void(int64_t, int64_t)>& on_progress) {
    std::atomic<int64_t> done{0};
    team_.Run([&](const Context& context) {
      const ThreadLayout& layout = layouts_[context.thread()];
      std::byte* arena = weights_.threads[context.thread()].arena.data();
      PackScratch scratch;
      int64_t reported = 0;
      for (const PackJob& job : layout.jobs) {
        const MatrixSource& source = sources_[job.source];
        PackOne(source, job.tile, arena + job.offset, &scratch);
        const int64_t now = done += PackedTileBytes(source.packed, source.num_blocks());
        constexpr int64_t kReportBytes = int64_t{16} << 20;
        if (context.thread() == 0 && on_progress != nullptr && now - reported >= kReportBytes) {
          reported = now;
          on_progress(now, weights_.packed_bytes);
        }
      }
    });
    if (on_progress != nullptr) on_progress(weights_.packed_bytes, weights_.packed_bytes);
  }

  static void PackOne(const MatrixSource& source, int64_t tile, std::byte* out,
                      PackScratch* scratch) {
    PackTileArgs args = {
        .dtype = source.packed, .rows = {}, .scales = {}, .segments = source.segments, .out = out};
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

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const RankShard& shard_;
  ThreadTeam& team_;
  std::vector<MatrixSource> sources_;
  std::vector<ThreadLayout> layouts_;
  RankWeights weights_;
};

}  // namespace

int64_t QkvRows(const ModelConfig& config, const RankShard& shard) {
  return (shard.query_heads.size() + 2 * shard.kv_heads.size()) * config.head_dim;
}

absl::StatusOr<RankWeights> LoadRankWeights(
    const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
    ThreadTeam& team, const std::function<void(int64_t, int64_t)>& on_progress) {
  return Loader(checkpoint, config, shard, team).Load(on_progress);
}

}  // namespace cairn
