#include "model/model_digest.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace cairn {

std::string ModelDigest(const Checkpoint& checkpoint, const ModelConfig& config) {
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    hash.Update(absl::StrCat(text.size(), ":"));
    hash.Update(std::string_view(text));
  };
  add(CanonicalText(config));
  for (const Tensor& tensor : checkpoint.tensors()) {
    add(tensor.name);
    add(tensor.type_name);
    add(ShapeText(tensor.shape));
  }
  return ToHex(hash.Finish());
}

}  // namespace cairn
