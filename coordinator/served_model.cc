#include "coordinator/served_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Load(const Checkpoint& checkpoint,
                                                               const ModelConfig& config,
                                                               int32_t context_tokens) {
  if (context_tokens == 1) {
    return absl::InvalidArgumentError(
        "context too short: 1 token, a prompt and its answer have at least 2");
  }
  if (context_tokens > config.context_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "context too long: ", context_tokens, " tokens, the model's is ", config.context_length));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::FromCheckpoint(checkpoint));
  auto chat = ChatTemplate::FromCheckpoint(checkpoint, *tokenizer);
  if (!chat.ok()) {
    LOG(WARNING) << "model.no_chat_template cause=" << chat.status().message();
  }
  return std::make_unique<ServedModel>(ModelName(checkpoint.path()), config, std::move(tokenizer),
                                       std::move(chat),
                                       context_tokens > 0 ? context_tokens : config.context_length);
}

ServedModel::ServedModel(std::string name, ModelConfig config, std::unique_ptr<Tokenizer> tokenizer,
                         absl::StatusOr<std::unique_ptr<ChatTemplate>> chat, int32_t context_tokens)
    : name_(std::move(name)),
      config_(std::move(config)),
      tokenizer_(std::move(tokenizer)),
      chat_(std::move(chat)),
      context_tokens_(context_tokens) {}

absl::StatusOr<const ChatTemplate*> ServedModel::chat() const {
  if (chat_.ok()) return chat_->get();
  return absl::FailedPreconditionError(
      absl::StrCat("model ", name_, " has no usable chat template: ", chat_.status().message()));
}

int32_t ServedModel::vocab_size() const {
  return std::min<int32_t>(tokenizer_->vocab_size(), config_.vocab_size);
}

absl::Status ServedModel::CheckName(std::string_view name) const {
  if (name.empty() || name == name_) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("model not served: '",
                                          absl::string_view(name.data(), name.size()),
                                          "'; served is '", name_, "'"));
}

std::string ModelName(const std::string& path) {
  std::string_view name = path;
  while (name.size() > 1 && name.back() == '/') name.remove_suffix(1);
  if (const size_t slash = name.rfind('/'); slash != name.npos && name.size() > 1) {
    name.remove_prefix(slash + 1);
  }
  for (const std::string_view ending : {".gguf", ".safetensors"}) {
    if (name.size() > ending.size() && name.ends_with(ending)) name.remove_suffix(ending.size());
  }
  return std::string(name);
}

}  // namespace cairn
