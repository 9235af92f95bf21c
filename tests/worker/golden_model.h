// A small model of tests/golden/models, in one of its formats, with what other engines made of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/json_text.h"
#include "tests/worker/model_runner.h"

namespace cairn::testing {

class GoldenModel {
 public:
  // `file`: f32, bf16 or model.gguf in the folder of the family.
  void Open(const std::string& family, const std::string& file) {
    const std::string folder = std::string(CAIRN_TEST_DATA) + "/golden/models/" + family;
    path_ = folder + "/" + file;
    float32_ = file == "f32";
    auto golden = Checkpoint::Open(folder + "/golden.safetensors");
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *std::move(golden);
    const auto meta = ReadJsonFile(folder + "/golden.json", {});
    ASSERT_TRUE(meta.ok()) << meta.status();
    tolerance_ = (*meta)["tolerance"]["logits_abs_f32"].get<double>();
  }

  const std::string& path() const { return path_; }
  double tolerance() const { return tolerance_; }
  std::vector<int32_t> ids(const std::string& prompt) const {
    return GoldenInts(*golden_, prompt + ".ids");
  }
  // Of the float32 checkpoint.
  std::vector<int32_t> greedy(const std::string& prompt) const {
    return GoldenInts(*golden_, prompt + ".greedy");
  }

  // The largest difference of a logit at the positions that the golden data hold; infinite if the
  // result lacks one of them.
  double WorstError(const RunResult& result, const std::string& prompt) const {
    const auto positions = GoldenInts(*golden_, prompt + (float32_ ? ".pos" : ".bf16_pos"));
    const auto expected = GoldenFloats(*golden_, prompt + (float32_ ? ".logits" : ".bf16_logits"));
    double worst = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto row = result.logits.find(positions[i]);
      const size_t vocab = expected.size() / positions.size();
      if (row == result.logits.end() || row->second.size() != vocab)
        return std::numeric_limits<double>::infinity();
      for (size_t v = 0; v < vocab; ++v)
        worst = std::max<double>(worst, std::abs(row->second[v] - expected[i * vocab + v]));
    }
    return worst;
  }

 private:
  std::string path_;
  bool float32_ = false;
  double tolerance_ = 0;
  std::unique_ptr<Checkpoint> golden_;
};

}  // namespace cairn::testing
