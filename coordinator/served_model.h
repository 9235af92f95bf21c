// The model as the coordinator needs it: its files' text side (tokenizer, chat template) and the
// numbers that requests are checked against. No weight is read.
//
// Thread: any; it does not change after it was made.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/chat_template.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/tokenizer.h"

namespace cairn {

class ServedModel {
 public:
  // `context_tokens`: 0, or a limit below the model's own window.
  // Errors: as Tokenizer::FromCheckpoint; InvalidArgument if that window is the wider one. A chat
  // template that does not load is no error: chat() then says why.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Load(const Checkpoint& checkpoint,
                                                           const ModelConfig& config,
                                                           int32_t context_tokens);
  ServedModel(std::string name, ModelConfig config, std::unique_ptr<Tokenizer> tokenizer,
              absl::StatusOr<std::unique_ptr<ChatTemplate>> chat, int32_t context_tokens);

  const std::string& name() const { return name_; }
  const ModelConfig& config() const { return config_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Errors: FailedPrecondition if the model has no usable template.
  absl::StatusOr<const ChatTemplate*> chat() const;
  int32_t context_tokens() const { return context_tokens_; }
  // Ids that may be asked for and sampled: the tokenizer's and the model's, whichever are fewer.
  int32_t vocab_size() const;
  // Errors: NotFound unless `name` is empty or the model's.
  absl::Status CheckName(std::string_view name) const;

 private:
  const std::string name_;
  const ModelConfig config_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  const absl::StatusOr<std::unique_ptr<ChatTemplate>> chat_;
  const int32_t context_tokens_;
};

// How a model is called: the name of its file or folder, without ".gguf" or ".safetensors".
std::string ModelName(const std::string& path);

}  // namespace cairn
