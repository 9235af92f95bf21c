// A model for tests of text: every byte is a token, and three control tokens. There are no weights.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/served_model.h"
#include "model/tokenizer_spec.h"

namespace cairn {

inline constexpr int32_t kTurnStart = 256, kTurnEnd = 257, kBegin = 258, kTinyVocabulary = 259;
inline constexpr int32_t kTinyContext = 64;

// The byte-level alphabet's character for a byte, in UTF-8.
inline std::string ByteLetter(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

inline std::unique_ptr<Tokenizer> TinyTokenizer(bool add_bos, bool add_eos = false) {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(ByteLetter(byte));
  spec.tokens.resize(kTinyVocabulary);
  for (const auto& [id, text] : {std::pair<int32_t, const char*>{kTurnStart, "<|start|>"},
                                 {kTurnEnd, "<|end|>"},
                                 {kBegin, "<s>"}}) {
    AddedToken token;
    token.id = id;
    token.text = text;
    token.special = true;
    spec.added_tokens.push_back(token);
  }
  spec.split_stages.push_back({std::string(kGpt2SplitPattern)});
  spec.bos_id = kBegin;
  spec.eos_id = kTurnEnd;
  spec.add_bos = add_bos;
  spec.add_eos = add_eos;
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(std::move(spec));
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// `chat_template`: empty for a model without one. The model has more logits than token ids.
inline std::unique_ptr<ServedModel> TinyModel(
    bool add_bos = true,
    const std::string& chat_template =
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}"
        "{% endif %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|start|>{% endif %}") {
  ModelConfig config;
  config.architecture = "tiny";
  config.vocab_size = kTinyVocabulary + 5;
  config.context_length = 4 * kTinyContext;
  config.eos_ids = {kTurnEnd};
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat =
      absl::NotFoundError("the model has no chat template");
  if (!chat_template.empty()) {
    chat = ChatTemplate::Create(chat_template, {.bos_token = "<s>", .eos_token = "<|end|>"});
  }
  return std::make_unique<ServedModel>("tiny", config, TinyTokenizer(add_bos), std::move(chat),
                                       kTinyContext);
}

inline std::vector<int32_t> Bytes(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

}  // namespace cairn
