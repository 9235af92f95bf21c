#include "worker/identity.h"

#include <string_view>

#include "base/sha256.h"

namespace cairn {

std::string TokenizerFingerprint(const Tokenizer& tokenizer) {
  Sha256 hash;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    const auto size = static_cast<uint64_t>(bytes.size());
    hash.Update(std::string_view(reinterpret_cast<const char*>(&size), sizeof size));
    hash.Update(bytes);
  }
  return std::string(AsBytes(hash.Finish()));
}

KvIdentity ModelIdentity(const ModelConfig& config, const ResolvedRankOptions& options,
                         const std::string& weights, const std::string& tokenizer) {
  return {.weights = weights,
          .architecture = CanonicalText(config),
          .tokenizer = tokenizer,
          .activations = std::string(ActivationName(options.activations)),
          .kv_dtype = std::string(Info(options.kv_dtype).name),
          .kv_quantisation = "",
          .attention = "full",
          .block_tokens = options.options.block_tokens,
          .layout_version = kKvLayoutVersion,
          .numerics = options.options.numerics.exact ? "exact" : "fast",
          .numerics_version = kNumericsVersion};
}

}  // namespace cairn
