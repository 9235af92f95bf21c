// Any bytes as a SentencePiece model, a tekken.json or a rank file; if it loads, it must encode any
// text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/tokenizer_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with('{')) {
    cairn::UseTokenizer(cairn::TokenizerSpecFromTekken(input), input);
  } else if (input.starts_with('\n')) {
    cairn::UseTokenizer(cairn::TokenizerSpecFromSentencePiece(input), input);
  } else {
    cairn::UseTokenizer(cairn::TokenizerSpecFromRanks(input), input);
  }
  return 0;
}
