// Loads the rank that the coordinator assigned, from the model files of this host.
#pragma once

#include <string>

#include "kernels/context.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/tokenizer.h"
#include "worker/rank_host.h"

namespace cairn {

struct RankLoaderOptions {
  int32_t threads = 0;      // 0: the usable CPUs divided among the ranks of this host
  int32_t local_ranks = 0;  // how many share them; 0: as the coordinator counts
  Isa isa = Isa::kAvx2;
  std::string cache_directory;  // for the weights' content hash; empty: not kept
};

// All must outlive the loader. Errors of the loader: those of ResolveRankOptions and Rank::Load;
// InvalidArgument if the block pool does not hold a single sequence of one block;
// ResourceExhausted if pool and weights exceed the memory of this host or of our control group.
RankLoader NewRankLoader(const Checkpoint* checkpoint, const ModelConfig* config,
                         const Tokenizer* tokenizer, const RankLoaderOptions& options);

}  // namespace cairn
