// Any bytes as a safetensors file, also as one with 8-bit weights, and its header as the index of
// shards.
#include "model/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <nlohmann/json.hpp>

#include "model/float8_scales.h"
#include "model/json_text.h"
#include "tests/fuzz/model_file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const absl::StatusOr<nlohmann::json> json = cairn::ParseJson(text, {}); json.ok()) {
    (void)cairn::ParseShardIndex(*json);
  }
  absl::StatusOr<std::vector<cairn::Tensor>> tensors = cairn::ParseSafetensors(file);
  if (!tensors.ok()) return 0;
  volatile uint64_t sum = 0;
  for (const cairn::Tensor& tensor : *tensors) sum = sum + cairn::ReadAll(tensor);
  std::sort(tensors->begin(), tensors->end(),
            [](const cairn::Tensor& a, const cairn::Tensor& b) { return a.name < b.name; });
  if (cairn::LinkFloat8Scales(*tensors).ok()) {
    for (const cairn::Tensor& tensor : *tensors)
      if (tensor.scales != nullptr) sum = sum + cairn::ReadAll(*tensor.scales);
  }
  cairn::InspectInput(data, size, ".safetensors");
  return 0;
}
