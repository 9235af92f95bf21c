// Which table holds the KV of which layer (worker/kv_group.h).
//
// Thread: any; plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention_plan.h"
#include "model/model_config.h"
#include "worker/kv_group.h"

namespace cairn {

struct KvTables {
  struct Place {
    int table = 0;
    int layer = 0;  // of the layers_per_block in each of the table's blocks
  };

  std::vector<KvGroup> groups;
  int layers_per_block = 0;
  std::vector<Place> layers;  // by layer of the model
  std::vector<int> windows;   // by table

  int num_tables() const { return static_cast<int>(windows.size()); }
};

KvTables MakeKvTables(const ModelConfig& config);

// The rows of a step as one table has them.
struct TableRows {
  std::vector<int32_t> blocks;               // [T] block of the pool that takes the row's KV
  std::vector<AttentionSequence> sequences;  // one per segment
};

}  // namespace cairn
