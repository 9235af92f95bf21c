#include "worker/weights.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "base/log.h"
#include "kernels/activations.h"
#include "kernels/dequantise.h"
#include "worker/matrix_source.h"
#include "worker/tensor_row.h"

namespace cairn {
namespace {

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

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
         ThreadTeam& team, bool expand_keys)
      : checkpoint_(checkpoint),
        config_(config),
        shard_(shard),
        team_(team),
        expand_keys_(expand_keys) {
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
  absl::StatusOr<const Tensor*> Find(WeightRole role, int layer, int expert = 0) {
    ASSIGN_OR_RETURN(const Tensor* tensor, FindWeight(checkpoint_, config_, role, layer, expert));
    if (tensor->scales != nullptr && checked_.insert(tensor->scales).second)
      RETURN_IF_ERROR(ReadWhole(*tensor->scales).status());
    return tensor;
  }

  // A vector, or the scales of a matrix: few values, of which one that is not finite would spoil
  // many.
  static absl::StatusOr<std::vector<float>> ReadWhole(const Tensor& tensor) {
    std::vector<float> values(tensor.num_elements);
    DequantiseRow(*tensor.dtype, tensor.data.data(), tensor.num_elements, values.data());
    RETURN_IF_ERROR(CheckFinite(tensor, values));
    return values;
  }

  // Appends a part of a vector; nothing if the graph does not have it.
  absl::Status ReadVector(WeightRole role, int layer, Range part, std::vector<float>* out) {
    if (!HasWeight(config_, role, layer)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Tensor* tensor, Find(role, layer));
    ASSIGN_OR_RETURN(const std::vector<float> all, ReadWhole(*tensor));
    out->insert(out->end(), all.begin() + part.begin, all.begin() + part.end);
    weights_.read_bytes += static_cast<int64_t>(tensor->data.size());
    return absl::OkStatus();
  }

  absl::Status ReadNorm(WeightRole role, int layer, int64_t n, std::vector<float>* out) {
    RETURN_IF_ERROR(ReadVector(role, layer, {0, n}, out));
    for (float& weight : *out) weight += static_cast<float>(config_.norm_offset);
    return absl::OkStatus();
  }

  absl::Status ReadVectors(int layer) {
    LayerVectors& vectors = weights_.layers[layer];
    const MlaConfig& mla = config_.mla;
    const struct {
      WeightRole role;
      int64_t n;
      std::vector<float>* out;
    } norms[] = {
        {WeightRole::kAttentionNorm, config_.model_dim, &vectors.attention_norm},
        {WeightRole::kPostAttentionNorm, config_.model_dim, &vectors.post_attention_norm},
        {WeightRole::kFfnNorm, config_.model_dim, &vectors.ffn_norm},
        {WeightRole::kPostFfnNorm, config_.model_dim, &vectors.post_ffn_norm},
        {WeightRole::kQueryNorm, config_.head_dim, &vectors.query_norm},
        {WeightRole::kKeyNorm, config_.head_dim, &vectors.key_norm},
        {WeightRole::kQueryDownNorm, mla.query_latent_dim, &vectors.query_latent_norm},
        {WeightRole::kKvDownNorm, mla.latent_dim, &vectors.latent_norm},
    };
    for (const auto& [role, n, out] : norms) RETURN_IF_ERROR(ReadNorm(role, layer, n, out));
    RETURN_IF_ERROR(ReadVector(WeightRole::kQueryBias, layer, QueryRows(), &vectors.qkv_bias));
    RETURN_IF_ERROR(ReadVector(WeightRole::kKeyBias, layer, KvRows(), &vectors.qkv_bias));
    RETURN_IF_ERROR(ReadVector(WeightRole::kValueBias, layer, KvRows(), &vectors.qkv_bias));
    return ReadVector(WeightRole::kRouterBias, layer, {0, config_.experts.num_experts},
                      &vectors.router_bias);
  }

  Range QueryRows() const {
    return {shard_.query_heads.begin * config_.head_dim, shard_.query_heads.end * config_.head_dim};
  }
  Range KvRows() const {
    return {shard_.kv_heads.begin * config_.head_dim, shard_.kv_heads.end * config_.head_dim};
  }

  absl::Status PlanLayer(int layer) {
    RETURN_IF_ERROR(ReadVectors(layer));
    if (config_.attention == AttentionKind::kMla) {
      RETURN_IF_ERROR(PlanLatent(layer));
    } else {
      RETURN_IF_ERROR(PlanParts(layer, {{WeightRole::kQuery, QueryRows()},
                                        {WeightRole::kKey, KvRows()},
                                        {WeightRole::kValue, KvRows()}}));
    }
    RETURN_IF_ERROR(PlanOutput(layer));
    return config_.layers[layer].experts ? PlanExperts(layer) : PlanDense(layer);
  }

  absl::Status PlanLatent(int layer) {
    const MlaConfig& mla = config_.mla;
    const Range cached = {0, mla.cached_dim()};
    if (mla.query_latent_dim == 0) {
      RETURN_IF_ERROR(
          PlanParts(layer, {{WeightRole::kQuery, QueryRows()}, {WeightRole::kKvDown, cached}}));
    } else {
      RETURN_IF_ERROR(PlanParts(layer, {{WeightRole::kQueryDown, {0, mla.query_latent_dim}},
                                        {WeightRole::kKvDown, cached}}));
      ASSIGN_OR_RETURN(const Tensor* tensor, Find(WeightRole::kQueryUp, layer));
      const Range rows = QueryRows();
      const int index = AddSource(
          {{{tensor, rows.begin, rows.size()}}, {{0, mla.query_latent_dim}}, *tensor->dtype});
      for (int thread = 0; thread < team_.num_threads(); ++thread)
        weights_.threads[thread].layers[layer].query_up = PlanShare(thread, index);
    }
    for (int64_t head = shard_.query_heads.begin; head < shard_.query_heads.end; ++head) {
      ASSIGN_OR_RETURN(MatrixSource key, KeyUpOf(layer, head));
      ASSIGN_OR_RETURN(MatrixSource value, ValueUpOf(layer, head));
      const int key_index = AddSource(std::move(key)), value_index = AddSource(std::move(value));
      for (int thread = 0; thread < team_.num_threads(); ++thread) {
        ThreadLayer& out = weights_.threads[thread].layers[layer];
        out.key_up.push_back(PlanShare(thread, key_index));
        out.value_up.push_back(PlanShare(thread, value_index));
      }
      if (!expand_keys_) continue;
      ASSIGN_OR_RETURN(MatrixSource expand, KeyExpandOf(layer, head));
      const int expand_index = AddSource(std::move(expand));
      for (int thread = 0; thread < team_.num_threads(); ++thread)
        weights_.threads[thread].layers[layer].key_expand.push_back(
            PlanShare(thread, expand_index));
    }
    return absl::OkStatus();
  }

  // From the part of a query that does not turn to the latent vector. Where the files hold the up
  // projections together, it lies there from the latent vector to the key.
  absl::StatusOr<MatrixSource> KeyUpOf(int layer, int64_t head) {
    const MlaConfig& mla = config_.mla;
    if (mla.split_up) {
      ASSIGN_OR_RETURN(const Tensor* tensor, Find(WeightRole::kKeyUp, layer));
      return MatrixSource{
          {{tensor, head * mla.latent_dim, mla.latent_dim}}, {{0, mla.nope_dim}}, *tensor->dtype};
    }
    ASSIGN_OR_RETURN(const Tensor* tensor, Find(WeightRole::kKvUp, layer));
    const int64_t first = head * (mla.nope_dim + mla.value_dim);
    return MatrixSource{{{tensor, first, mla.nope_dim}},
                        {{0, mla.nope_dim}},
                        PackedTypeTransposed(*tensor->dtype),
                        true};
  }

  // The same from the latent vector to the key.
  absl::StatusOr<MatrixSource> KeyExpandOf(int layer, int64_t head) {
    ASSIGN_OR_RETURN(MatrixSource source, KeyUpOf(layer, head));
    source.segments = {{0, config_.mla.latent_dim}};
    source.transposed = !source.transposed;
    const DType in_file = *source.rows[0].tensor->dtype;
    source.packed =
        source.transposed ? PackedTypeTransposed(in_file) : PackedType(in_file, source.segments);
    return source;
  }

  absl::StatusOr<MatrixSource> ValueUpOf(int layer, int64_t head) {
    const MlaConfig& mla = config_.mla;
    const WeightRole role = mla.split_up ? WeightRole::kValueUp : WeightRole::kKvUp;
    ASSIGN_OR_RETURN(const Tensor* tensor, Find(role, layer));
    const int64_t first =
        mla.split_up ? head * mla.value_dim : head * (mla.nope_dim + mla.value_dim) + mla.nope_dim;
    return MatrixSource{{{tensor, first, mla.value_dim}}, {{0, mla.latent_dim}}, *tensor->dtype};
  }

  // Neighbours of one type become one part. Where a part would start inside a tile, all rows are
  // held as float32, so that every part is whole tiles.
  absl::Status PlanParts(int layer, std::vector<std::pair<WeightRole, Range>> pieces) {
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
    for (const MatrixSource& part : parts) total_tiles += part.num_tiles();
    std::vector<int> indexes;
    for (MatrixSource& part : parts) indexes.push_back(AddSource(std::move(part)));
    for (int thread = 0; thread < team_.num_threads(); ++thread) {
      const Range mine = Split(total_tiles, team_.num_threads(), thread);
      int64_t first = 0;
      for (const int index : indexes) {
        const int64_t tiles = sources_[index].num_tiles();
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
    const int64_t head_dim = tensor->shape.back() / config_.num_heads;  // of values
    for (int64_t head = shard_.query_heads.begin; head < shard_.query_heads.end; ++head)
      source.segments.push_back({head * head_dim, (head + 1) * head_dim});
    source.packed = PackedType(*tensor->dtype, source.segments);
    const int index = AddSource(std::move(source));
    for (int thread = 0; thread < team_.num_threads(); ++thread)
      weights_.threads[thread].layers[layer].output = PlanShare(thread, index);
    return absl::OkStatus();
  }

  // A feed-forward network: its tensors, which of the matrices in each, and the rank's columns.
  struct FfnSource {
    const Tensor* gate = nullptr;
    const Tensor* up = nullptr;
    const Tensor* down = nullptr;
    int64_t matrix = 0;
    int64_t ffn_dim = 0;
    Range blocks;
  };
  using FfnOf = FfnWeights& (*)(ThreadLayer& layer);

  absl::Status PlanDense(int layer) {
    FfnSource source = {.ffn_dim = config_.ffn_dim, .blocks = shard_.ffn_blocks};
    ASSIGN_OR_RETURN(source.gate, Find(WeightRole::kGate, layer));
    ASSIGN_OR_RETURN(source.up, Find(WeightRole::kUp, layer));
    ASSIGN_OR_RETURN(source.down, Find(WeightRole::kDown, layer));
    PlanFfn(layer, source, [](ThreadLayer& out) -> FfnWeights& { return out.ffn; });
    return absl::OkStatus();
  }

  absl::Status PlanExperts(int layer) {
    ASSIGN_OR_RETURN(const Tensor* router, Find(WeightRole::kRouter, layer));
    const ExpertsConfig& experts = config_.experts;
    const int index =
        AddSource({{{router, 0, experts.num_experts}}, {{0, config_.model_dim}}, *router->dtype});
    for (int thread = 0; thread < team_.num_threads(); ++thread)
      weights_.threads[thread].layers[layer].router = PlanShare(thread, index);
    if (experts.shared_ffn_dim > 0) {
      FfnSource shared = {.ffn_dim = experts.shared_ffn_dim, .blocks = shard_.shared_blocks};
      ASSIGN_OR_RETURN(shared.gate, Find(WeightRole::kSharedGate, layer));
      ASSIGN_OR_RETURN(shared.up, Find(WeightRole::kSharedUp, layer));
      ASSIGN_OR_RETURN(shared.down, Find(WeightRole::kSharedDown, layer));
      PlanFfn(layer, shared, [](ThreadLayer& out) -> FfnWeights& { return out.ffn; });
    }
    for (int64_t expert = shard_.experts.begin; expert < shard_.experts.end; ++expert) {
      const int e = static_cast<int>(expert);
      FfnSource source = {.ffn_dim = experts.ffn_dim, .blocks = {0, BlocksFor(experts.ffn_dim)}};
      ASSIGN_OR_RETURN(source.gate, Find(WeightRole::kExpertGate, layer, e));
      ASSIGN_OR_RETURN(source.up, Find(WeightRole::kExpertUp, layer, e));
      ASSIGN_OR_RETURN(source.down, Find(WeightRole::kExpertDown, layer, e));
      if (source.gate->shape.size() == 3) source.matrix = expert;
      PlanFfn(layer, source,
              [](ThreadLayer& out) -> FfnWeights& { return out.experts.emplace_back(); });
    }
    return absl::OkStatus();
  }

  void PlanFfn(int layer, const FfnSource& ffn, FfnOf ffn_of) {
    constexpr int kUnitTiles = kQuantBlock / kTileRows;
    const Range columns = {ffn.blocks.begin * kQuantBlock,
                           std::min<int64_t>(ffn.blocks.end * kQuantBlock, ffn.ffn_dim)};
    int indexes[2];
    const Tensor* const tensors[2] = {ffn.gate, ffn.up};
    for (int i = 0; i < 2; ++i) {
      const int64_t first = ffn.matrix * ffn.ffn_dim + columns.begin;
      indexes[i] = AddSource(
          {{{tensors[i], first, columns.size()}}, {{0, config_.model_dim}}, *tensors[i]->dtype});
    }
    MatrixSource down = {
        {{ffn.down, ffn.matrix * config_.model_dim, config_.model_dim}}, {columns}, DType::kF32};
    down.packed = PackedType(*ffn.down->dtype, down.segments);
    const int down_index = AddSource(std::move(down));
    for (int thread = 0; thread < team_.num_threads(); ++thread) {
      FfnWeights& out = ffn_of(weights_.threads[thread].layers[layer]);
      GateUpWeights& gate_up = out.gate_up;
      gate_up.units = Split(ffn.blocks.size(), team_.num_threads(), thread);
      const int64_t start = layouts_[thread].bytes;
      for (int64_t unit = gate_up.units.begin; unit < gate_up.units.end; ++unit) {
        const Range tiles = {unit * kUnitTiles, (unit + 1) * kUnitTiles};
        const PackedMatrix gate = PlanTiles(thread, indexes[0], tiles);
        const PackedMatrix up = PlanTiles(thread, indexes[1], tiles);
        if (unit != gate_up.units.begin) continue;
        gate_up.gate = gate;
        gate_up.up = up;
        gate_up.gate.first_tile = gate_up.up.first_tile = 0;
        gate_up.unit_bytes = layouts_[thread].bytes - start;
      }
      out.down = PlanShare(thread, down_index);
    }
  }

  absl::Status PlanHead() {
    RETURN_IF_ERROR(ReadNorm(WeightRole::kFinalNorm, 0, config_.model_dim, &weights_.final_norm));
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

  int AddSource(MatrixSource source) {
    weights_.read_bytes += source.read_bytes();
    sources_.push_back(std::move(source));
    return static_cast<int>(sources_.size()) - 1;
  }

  PackedMatrix PlanShare(int thread, int source) {
    return PlanTiles(thread, source,
                     Split(sources_[source].num_tiles(), team_.num_threads(), thread));
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
      const auto place_ffn = [&](FfnWeights& ffn) {
        place(ffn.gate_up.gate);
        place(ffn.gate_up.up);
        place(ffn.down);
      };
      for (ThreadLayer& layer : thread.layers) {
        for (PackedMatrix& part : layer.qkv) place(part);
        place(layer.query_up);
        for (PackedMatrix& head : layer.key_up) place(head);
        for (PackedMatrix& head : layer.value_up) place(head);
        for (PackedMatrix& head : layer.key_expand) place(head);
        place(layer.output);
        place(layer.router);
        place_ffn(layer.ffn);
        for (FfnWeights& expert : layer.experts) place_ffn(expert);
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
        PackTileOf(source, job.tile, arena + job.offset, &scratch);
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

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const RankShard& shard_;
  ThreadTeam& team_;
  const bool expand_keys_;
  std::vector<MatrixSource> sources_;
  std::unordered_set<const Tensor*> checked_;  // scales
  std::vector<ThreadLayout> layouts_;
  RankWeights weights_;
};

}  // namespace

int64_t QkvRows(const ModelConfig& config, const RankShard& shard) {
  if (config.attention == AttentionKind::kMla) {
    const int64_t query_rows = config.mla.query_latent_dim > 0
                                   ? config.mla.query_latent_dim
                                   : shard.query_heads.size() * config.head_dim;
    return query_rows + config.mla.cached_dim();
  }
  return (shard.query_heads.size() + 2 * shard.kv_heads.size()) * config.head_dim;
}

absl::StatusOr<RankWeights> LoadRankWeights(
    const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
    ThreadTeam& team, const std::function<void(int64_t, int64_t)>& on_progress, bool expand_keys) {
  return Loader(checkpoint, config, shard, team, expand_keys).Load(on_progress);
}

}  // namespace cairn
