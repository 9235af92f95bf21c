// Golden files of text tests, and a small vocabulary for those that need none.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/byte_level_bpe.h"
#include "model/tokenizer_spec.h"

namespace cairn {

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// `path` under tests/golden.
inline nlohmann::ordered_json ReadGolden(const std::string& path) {
  const std::string text = ReadWholeFile(std::string(CAIRN_TEST_DATA) + "/golden/" + path);
  return nlohmann::ordered_json::parse(text, nullptr, false);
}

inline std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Tokens 0..255 are the bytes; then a few merges; then control tokens.
struct SmallVocabulary {
  TokenizerSpec spec;
  int32_t begin = 0, end = 0, think = 0;
  int32_t first_added = 0;

  SmallVocabulary() {
    for (int byte = 0; byte < 256; ++byte) {
      spec.tokens.push_back(EncodeByteLevelText(std::string(1, static_cast<char>(byte))));
    }
    for (const auto& [left, right] :
         std::vector<std::pair<std::string, std::string>>{{"h", "e"},
                                                          {"l", "l"},
                                                          {"he", "ll"},
                                                          {"hell", "o"},
                                                          {" ", "w"},
                                                          {"o", "r"},
                                                          {" w", "or"},
                                                          {"l", "d"},
                                                          {" wor", "ld"},
                                                          {"a", "a"},
                                                          {"aa", "aa"}}) {
      spec.merges.emplace_back(EncodeByteLevelText(left), EncodeByteLevelText(right));
      spec.tokens.push_back(EncodeByteLevelText(left + right));
    }
    spec.split_stages = {{std::string(kGpt2SplitPattern)}};
    first_added = static_cast<int32_t>(spec.tokens.size());
    begin = Add("<|begin|>", true);
    end = Add("<|end|>", true);
    think = Add("<think>", false);
    spec.bos_id = begin;
    spec.eos_id = end;
  }

  int32_t Add(const std::string& text, bool special) {
    const auto id = static_cast<int32_t>(spec.tokens.size() + spec.added_tokens.size());
    spec.added_tokens.push_back({.id = id, .text = text, .special = special});
    return id;
  }
};

}  // namespace cairn
