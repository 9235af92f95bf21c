// What both fuzz targets of model files do with an input: everything that reads an untrusted file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "model/checkpoint.h"
#include "model/inspect.h"
#include "model/model_config.h"

namespace cairn {

// Writes the input to a file in memory and lists it as `cairn inspect` does.
inline void InspectInput(const uint8_t* data, size_t size, const char* suffix) {
  static const std::string path = "/dev/shm/cairn_fuzz_" + std::to_string(getpid()) + suffix;
  FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(data, 1, size, file) != size) std::abort();
  std::fclose(file);
  (void)InspectModel(path, InspectFormat::kJson);
  (void)InspectModel(path, InspectFormat::kText);
  unlink(path.c_str());
}

// Reads every byte of every tensor, so that a sanitizer sees a view that leaves the file.
inline uint64_t ReadAll(const Tensor& tensor) {
  uint64_t sum = 0;
  for (const std::byte byte : tensor.data) sum += static_cast<uint64_t>(byte);
  return sum;
}

}  // namespace cairn
