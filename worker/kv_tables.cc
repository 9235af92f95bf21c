#include "worker/kv_tables.h"

#include <algorithm>
#include <numeric>

namespace cairn {

KvTables MakeKvTables(const ModelConfig& config) {
  KvTables tables;
  std::vector<std::vector<int>> layers_of_group;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const int window = config.layers[layer].window;
    const auto known = std::find_if(tables.groups.begin(), tables.groups.end(),
                                    [&](const KvGroup& group) { return group.window == window; });
    const auto index = static_cast<size_t>(known - tables.groups.begin());
    if (known == tables.groups.end()) {
      tables.groups.push_back({.window = window});
      layers_of_group.emplace_back();
    }
    layers_of_group[index].push_back(layer);
  }
  for (const std::vector<int>& layers : layers_of_group)
    tables.layers_per_block = std::gcd(tables.layers_per_block, static_cast<int>(layers.size()));
  tables.layers.resize(config.num_layers);
  for (size_t group = 0; group < tables.groups.size(); ++group) {
    const std::vector<int>& layers = layers_of_group[group];
    const int first_table = tables.num_tables();
    tables.groups[group].num_tables = static_cast<int>(layers.size()) / tables.layers_per_block;
    tables.windows.resize(first_table + tables.groups[group].num_tables,
                          tables.groups[group].window);
    for (int i = 0; i < static_cast<int>(layers.size()); ++i)
      tables.layers[layers[i]] = {.table = first_table + i / tables.layers_per_block,
                                  .layer = i % tables.layers_per_block};
  }
  return tables;
}

}  // namespace cairn
