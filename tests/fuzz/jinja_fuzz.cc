// Any bytes as a chat template, rendered with a small conversation; what stands behind a NUL byte
// is taken for the JSON object of its variables instead.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kVariables =
      R"({"messages": [{"role": "user", "content": "<|end|> hi"},
                       {"role": "assistant", "content": ""}],
          "tools": [{"name": "f", "arguments": {"a": [1, 2.5, null]}}],
          "add_generation_prompt": true})";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view source = input.substr(0, end);
  const std::string_view variables = end == input.npos ? kVariables : input.substr(end + 1);
  const auto chat = cairn::ChatTemplate::Create(source, {.bos_token = "<s>", .eos_token = "</s>"});
  if (!chat.ok()) return 0;
  const auto segments = (*chat)->RenderVariables(variables, absl::CivilSecond(2025, 3, 9));
  if (!segments.ok()) return 0;
  // Segments are whole, none is empty, and neighbours differ.
  for (size_t i = 0; i < segments->size(); ++i) {
    const cairn::TextSegment& segment = (*segments)[i];
    if (segment.text.empty()) std::abort();
    if (i > 0 && (*segments)[i - 1].is_content == segment.is_content) std::abort();
  }
  return 0;
}
