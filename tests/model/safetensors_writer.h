// Writes small safetensors files and model directories for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace cairn {

// A file of the format with the header as given, right or wrong.
inline std::vector<std::byte> SafetensorsFile(std::string_view header,
                                              std::span<const std::byte> data) {
  std::vector<std::byte> file;
  const uint64_t length = header.size();
  const auto append = [&](const void* bytes, size_t count) {
    const auto* const begin = static_cast<const std::byte*>(bytes);
    file.insert(file.end(), begin, begin + count);
  };
  append(&length, sizeof(length));
  append(header.data(), header.size());
  append(data.data(), data.size());
  return file;
}

inline std::vector<std::byte> SafetensorsFile(std::string_view header, size_t data_bytes) {
  const std::vector<std::byte> data(data_bytes, std::byte{1});
  return SafetensorsFile(header, data);
}

struct NamedFloats {
  std::string name;
  std::string dtype = "F32";
  int64_t count = 1;  // shape [count]
  int element_bytes = 4;
};

// A right file with these tensors.
inline std::vector<std::byte> SafetensorsFile(const std::vector<NamedFloats>& tensors) {
  std::string header = "{";
  size_t offset = 0;
  for (const NamedFloats& tensor : tensors) {
    const size_t bytes = static_cast<size_t>(tensor.count * tensor.element_bytes);
    if (header.size() > 1) header += ",";
    header += "\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" +
              std::to_string(tensor.count) + "],\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  return SafetensorsFile(header + "}", offset);
}

// A folder of its own for one test, removed with its files at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = ::testing::TempDir() + "/cairn_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    for (const std::string& file : files_) unlink(file.c_str());
    rmdir(path_.c_str());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, std::span<const std::byte> bytes) {
    const std::string file = path_ + "/" + name;
    FILE* const stream = std::fopen(file.c_str(), "wb");
    EXPECT_NE(stream, nullptr) << file;
    if (stream == nullptr) return file;
    // An empty file has no bytes to point at.
    if (!bytes.empty()) {
      EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), stream), bytes.size());
    }
    std::fclose(stream);
    files_.push_back(file);
    return file;
  }
  std::string Write(const std::string& name, std::string_view text) {
    return Write(name, std::as_bytes(std::span(text.data(), text.size())));
  }
  void Remove(const std::string& name) { unlink((path_ + "/" + name).c_str()); }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

}  // namespace cairn
