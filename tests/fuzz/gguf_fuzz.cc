// Any bytes as a GGUF file, whole or part of a split model.
#include "model/gguf.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/gguf_split.h"
#include "tests/fuzz/model_file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const absl::StatusOr<cairn::GgufContents> contents = cairn::ParseGguf(file);
  if (!contents.ok()) return 0;
  volatile uint64_t sum = 0;
  for (const cairn::Tensor& tensor : contents->tensors) sum = sum + cairn::ReadAll(tensor);
  for (const cairn::MetadataEntry& entry : contents->metadata.entries()) {
    (void)entry.value.AsStrings();
    (void)entry.value.AsIntegers();
    (void)entry.value.AsNumbers();
  }
  const auto split = cairn::ReadGgufSplit(contents->metadata);
  if (split.ok() && split->has_value()) {
    (void)cairn::GgufPartPath("name-00001-of-00002.gguf", **split, 1);
    (void)cairn::CheckGgufPart(contents->metadata, **split, contents->metadata, 1);
  }
  cairn::InspectInput(data, size, ".gguf");
  return 0;
}
