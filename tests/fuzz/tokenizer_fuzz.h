// What both fuzz targets of tokenizers do with one that loads: it must encode and decode any text.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "model/detokenizer.h"
#include "model/tokenizer.h"
#include "model/tokenizer_spec.h"

namespace cairn {

// `input` is also a text to encode.
inline void UseTokenizer(absl::StatusOr<TokenizerSpec> spec, std::string_view input) {
  if (!spec.ok()) return;
  const auto tokenizer = Tokenizer::Create(*std::move(spec));
  if (!tokenizer.ok()) return;
  const std::vector<TextSegment> segments = {
      {"<|begin|>a  ", false}, {std::string(input.substr(0, 200)), true}, {"<|end|>", false}};
  const auto ids = (*tokenizer)->EncodeSegments(segments);
  if (ids.ok()) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
    }
    for (const bool begins_text : {false, true}) {
      const DetokenizerOptions options{.skip_special_tokens = false, .begins_text = begins_text};
      Detokenizer detokenizer(tokenizer->get(), options);
      std::string text;
      for (const int32_t id : *ids) text += detokenizer.Add(id);
      text += detokenizer.Finish();
      if (text != DecodeTokens(**tokenizer, *ids, options)) std::abort();
    }
  }
  (void)(*tokenizer)->Encode(input.substr(0, 1000), {.parse_special = true, .add_special = true});
  (void)(*tokenizer)->Encode("the theme \xCC\x81 \xEF\xBC\xA1", {});
}

}  // namespace cairn
