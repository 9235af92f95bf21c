// Any bytes as a tokenizer.json; if it loads, it must encode any text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tests/fuzz/tokenizer_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  cairn::UseTokenizer(cairn::TokenizerSpecFromJson(input, nlohmann::json()), input);
  return 0;
}
