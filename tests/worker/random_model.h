// Model folders for tests: safetensors and a config.json.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/model_config.h"
#include "tests/model/safetensors_writer.h"

namespace cairn::testing {

// The tensors of a model, whose data follow one another as they are added.
class SafetensorsModel {
 public:
  void Add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
           std::span<const std::byte> bytes) {
    header_[name] = {{"dtype", dtype},
                     {"shape", shape},
                     {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_.insert(data_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> File() const { return SafetensorsFile(header_.dump(), data_); }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::vector<std::byte> data_;
};

// Writes the config and, in float32, random weights of the graph it describes, as `change` leaves
// them.
inline void WriteRandomModel(
    const nlohmann::json& config_json, TemporaryFolder* folder,
    const std::function<void(WeightRole role, std::span<float> values)>& change = nullptr) {
  const std::string path = folder->Write("config.json", std::string_view(config_json.dump()));
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto config = LoadModelConfig(**checkpoint);
  ASSERT_TRUE(config.ok()) << config.status();
  SafetensorsModel model;
  std::mt19937 random(1);
  const auto add = [&](WeightRole role, int layer, int expert) {
    const std::vector<int64_t> shape = WeightShape(*config, role);
    const int64_t count =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const bool vector = shape.size() == 1;
    std::normal_distribution<float> normal(
        vector ? 1.0f : 0.0f, vector ? 0.1f : 1.0f / std::sqrt(static_cast<float>(shape.back())));
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    if (change != nullptr) change(role, values);
    model.Add(WeightName(*config, role, layer, expert), "F32", shape,
              std::as_bytes(std::span(values)));
  };
  for (int r = 0; r < kNumWeightRoles; ++r) {
    const auto role = static_cast<WeightRole>(r);
    for (int layer = 0; layer < (IsLayerWeight(role) ? config->num_layers : 1); ++layer) {
      if (!HasWeight(*config, role, layer)) continue;
      for (int e = 0; e < (IsExpertWeight(role) ? config->experts.num_experts : 1); ++e)
        add(role, layer, e);
    }
  }
  folder->Write("model.safetensors", model.File());
}

}  // namespace cairn::testing
