// Writes small GGUF files for tests, right ones and wrong ones: every field can be overridden after
// it was filled in properly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

class GgufWriter {
 public:
  struct TensorRecord {
    std::string name;
    std::vector<uint64_t> dims;  // innermost first, as in the file
    uint32_t type = 0;
    std::vector<std::byte> data;
    std::optional<uint64_t> offset;  // overrides the right one
  };

  uint32_t version = 3;
  std::string magic = "GGUF";
  uint64_t alignment = 32;               // of the data; SetAlignment also says so in the file
  std::optional<uint64_t> tensor_count;  // overrides the right ones
  std::optional<uint64_t> metadata_count;
  std::vector<TensorRecord> tensors;

  template <typename T>
  static void Append(std::vector<std::byte>& out, T value) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof(T));
  }
  static void AppendString(std::vector<std::byte>& out, std::string_view text) {
    Append<uint64_t>(out, text.size());
    const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
    out.insert(out.end(), bytes, bytes + text.size());
  }

  // A key-value with the bytes of the value as given.
  void AddRaw(std::string_view key, uint32_t type, std::span<const std::byte> value) {
    AppendString(metadata_, key);
    Append(metadata_, type);
    metadata_.insert(metadata_.end(), value.begin(), value.end());
    ++num_entries_;
  }
  template <typename T>
  void AddScalar(std::string_view key, uint32_t type, T value) {
    std::vector<std::byte> bytes;
    Append(bytes, value);
    AddRaw(key, type, bytes);
  }
  void AddUint32(std::string_view key, uint32_t value) { AddScalar(key, 4, value); }
  void AddFloat32(std::string_view key, float value) { AddScalar(key, 6, value); }
  void AddBool(std::string_view key, bool value) { AddScalar<uint8_t>(key, 7, value ? 1 : 0); }
  void AddString(std::string_view key, std::string_view value) {
    std::vector<std::byte> bytes;
    AppendString(bytes, value);
    AddRaw(key, 8, bytes);
  }
  void AddStrings(std::string_view key, const std::vector<std::string>& values) {
    std::vector<std::byte> bytes;
    Append<uint32_t>(bytes, 8);
    Append<uint64_t>(bytes, values.size());
    for (const std::string& value : values) AppendString(bytes, value);
    AddRaw(key, 9, bytes);
  }
  template <typename T>
  void AddArray(std::string_view key, uint32_t element_type, const std::vector<T>& values) {
    std::vector<std::byte> bytes;
    Append(bytes, element_type);
    Append<uint64_t>(bytes, values.size());
    for (const T value : values) Append(bytes, value);
    AddRaw(key, 9, bytes);
  }
  void SetAlignment(uint32_t bytes) {
    alignment = bytes;
    AddUint32("general.alignment", bytes);
  }

  // Dimensions outermost first, as the rest of the code has them.
  TensorRecord& AddTensor(std::string_view name, std::vector<uint64_t> shape, uint32_t type,
                          std::vector<std::byte> data) {
    tensors.push_back({.name = std::string(name),
                       .dims = {shape.rbegin(), shape.rend()},
                       .type = type,
                       .data = std::move(data),
                       .offset = std::nullopt});
    return tensors.back();
  }
  // float32, every element its index plus `first`.
  TensorRecord& AddFloats(std::string_view name, std::vector<uint64_t> shape, float first = 0) {
    uint64_t count = 1;
    for (const uint64_t extent : shape) count *= extent;
    std::vector<std::byte> data;
    for (uint64_t i = 0; i < count; ++i) Append(data, first + static_cast<float>(i));
    return AddTensor(name, std::move(shape), 0, std::move(data));
  }

  TensorRecord& tensor(std::string_view name) {
    for (TensorRecord& record : tensors) {
      if (record.name == name) return record;
    }
    return tensors.at(tensors.size());  // ends the test: there is none
  }

  // Bytes up to the start of the data, padding included.
  std::vector<std::byte> Header() const { return Build(/*with_data=*/false); }
  std::vector<std::byte> File() const { return Build(/*with_data=*/true); }

 private:
  static void Pad(std::vector<std::byte>& out, uint64_t alignment) {
    if (alignment == 0) return;
    while (out.size() % alignment != 0) out.push_back(std::byte{0});
  }

  std::vector<std::byte> Build(bool with_data) const {
    std::vector<std::byte> out;
    for (const char c : magic) out.push_back(static_cast<std::byte>(c));
    Append(out, version);
    Append<uint64_t>(out, tensor_count.value_or(tensors.size()));
    Append<uint64_t>(out, metadata_count.value_or(num_entries_));
    out.insert(out.end(), metadata_.begin(), metadata_.end());
    std::vector<std::byte> data;
    for (const TensorRecord& record : tensors) {
      Pad(data, alignment);
      AppendString(out, record.name);
      Append(out, static_cast<uint32_t>(record.dims.size()));
      for (const uint64_t extent : record.dims) Append(out, extent);
      Append(out, record.type);
      Append<uint64_t>(out, record.offset.value_or(data.size()));
      data.insert(data.end(), record.data.begin(), record.data.end());
    }
    Pad(out, alignment);
    if (with_data) out.insert(out.end(), data.begin(), data.end());
    return out;
  }

  std::vector<std::byte> metadata_;
  uint64_t num_entries_ = 0;
};

// A whole model of the simplest kind that the runtime can load: one layer, 2 query heads over 1 key
// head of 8 elements, float32, an output of its own.
inline GgufWriter TinyModel() {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddString("general.name", "tiny");
  writer.AddUint32("llama.block_count", 1);
  writer.AddUint32("llama.context_length", 64);
  writer.AddUint32("llama.embedding_length", 16);
  writer.AddUint32("llama.feed_forward_length", 24);
  writer.AddUint32("llama.attention.head_count", 2);
  writer.AddUint32("llama.attention.head_count_kv", 1);
  writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddString("tokenizer.ggml.model", "none");
  writer.AddFloats("token_embd.weight", {32, 16});
  writer.AddFloats("output.weight", {32, 16});
  writer.AddFloats("output_norm.weight", {16});
  writer.AddFloats("blk.0.attn_norm.weight", {16});
  writer.AddFloats("blk.0.attn_q.weight", {16, 16});
  writer.AddFloats("blk.0.attn_k.weight", {8, 16});
  writer.AddFloats("blk.0.attn_v.weight", {8, 16});
  writer.AddFloats("blk.0.attn_output.weight", {16, 16});
  writer.AddFloats("blk.0.ffn_norm.weight", {16});
  writer.AddFloats("blk.0.ffn_gate.weight", {24, 16});
  writer.AddFloats("blk.0.ffn_up.weight", {24, 16});
  writer.AddFloats("blk.0.ffn_down.weight", {16, 24});
  return writer;
}

}  // namespace cairn
