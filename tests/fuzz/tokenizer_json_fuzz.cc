// Any bytes as a tokenizer.json; if it loads, it must encode any text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/detokenizer.h"
#include "model/tokenizer.h"
#include "model/tokenizer_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  auto spec = cairn::TokenizerSpecFromJson(input, nlohmann::json());
  if (!spec.ok()) return 0;
  const auto tokenizer = cairn::Tokenizer::Create(*std::move(spec));
  if (!tokenizer.ok()) return 0;
  const std::vector<cairn::TextSegment> segments = {
      {"<|begin|>a  ", false}, {std::string(input.substr(0, 200)), true}, {"<|end|>", false}};
  const auto ids = (*tokenizer)->EncodeSegments(segments);
  if (!ids.ok()) return 0;
  for (const int32_t id : *ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
  }
  cairn::Detokenizer detokenizer(tokenizer->get(), {.skip_special_tokens = false});
  std::string text;
  for (const int32_t id : *ids) text += detokenizer.Add(id);
  text += detokenizer.Finish();
  if (text != cairn::DecodeTokens(**tokenizer, *ids, {.skip_special_tokens = false})) std::abort();
  (void)(*tokenizer)->Encode(input.substr(0, 1000), {.parse_special = true, .add_special = true});
  return 0;
}
