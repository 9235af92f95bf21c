// Tensors of a .safetensors file beside a .json of the same stem that describes its cases: golden
// data in tests/golden. Trusts the file: for tests only.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cairn {

class GoldenTensors {
 public:
  // `stem` under tests/golden, without extension.
  explicit GoldenTensors(const std::string& stem) {
    const std::string path = std::string(CAIRN_TEST_DATA) + "/golden/" + stem;
    bytes_ = ReadFile(path + ".safetensors");
    cases_ = nlohmann::json::parse(ReadFile(path + ".json"), nullptr, false);
    uint64_t header_bytes = 0;
    if (bytes_.size() < sizeof(header_bytes)) return;
    std::memcpy(&header_bytes, bytes_.data(), sizeof(header_bytes));
    header_ =
        nlohmann::json::parse(bytes_.substr(sizeof(header_bytes), header_bytes), nullptr, false);
    data_ = sizeof(header_bytes) + header_bytes;
  }

  bool ok() const { return header_.is_object() && cases_.is_object(); }
  const nlohmann::json& cases() const { return cases_; }
  std::vector<int64_t> Shape(const std::string& name) const {
    return header_[name]["shape"].get<std::vector<int64_t>>();
  }
  // All elements of a tensor whose elements have the size of T.
  template <class T = float>
  std::vector<T> Values(const std::string& name) const {
    const auto range = header_[name]["data_offsets"].get<std::pair<size_t, size_t>>();
    std::vector<T> out((range.second - range.first) / sizeof(T));
    std::memcpy(out.data(), bytes_.data() + data_ + range.first, out.size() * sizeof(T));
    return out;
  }

 private:
  static std::string ReadFile(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    EXPECT_TRUE(in.good()) << path;
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  std::string bytes_;
  nlohmann::json header_, cases_;
  size_t data_ = 0;
};

}  // namespace cairn
