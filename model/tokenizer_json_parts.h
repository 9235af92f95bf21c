// The parts of a tokenizer.json, each read into a TokenizerSpec; used by the loaders only.
//
// Thread: any. Errors: InvalidArgument names what is malformed; Unimplemented names a kind or an
// option that would change ids or text and is not known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"
#include "model/tokenizer_spec.h"

namespace cairn {

// The member `key` of an object; null if there is none.
const nlohmann::json& JsonMember(const nlohmann::json& object, const char* key);
// The member "type", empty if it is no string.
std::string JsonType(const nlohmann::json& component);
absl::StatusOr<bool> JsonFlag(const nlohmann::json& object, const char* key, bool when_missing);
// A token id below kMaxVocabulary.
absl::StatusOr<int32_t> JsonTokenId(const nlohmann::json& value, std::string_view field);
absl::Status JsonUnsupported(std::string_view what, std::string_view value);
absl::Status JsonMalformed(std::string_view field, std::string_view what);

absl::Status ReadJsonNormalizer(const nlohmann::json& normalizer, TokenizerSpec& spec);
// Sets `spec.model` to byte level where a stage says so.
absl::Status ReadJsonPreTokenizer(const nlohmann::json& pre_tokenizer, TokenizerSpec& spec);
absl::Status ReadJsonDecoder(const nlohmann::json& decoder, TokenizerSpec& spec);
absl::Status ReadJsonModel(const nlohmann::json& model, TokenizerSpec& spec);
absl::Status ReadJsonAddedToken(const nlohmann::json& token, int32_t id, TokenizerSpec& spec);

// tokenizer_config.json, null if there is none. `has_template`: the tokenizer's own file has said
// which tokens begin and end a text.
absl::Status ReadTokenizerConfig(const nlohmann::json& config, bool has_template,
                                 TokenizerSpec& spec);

std::optional<int32_t> FindTokenId(const TokenizerSpec& spec, std::string_view text);

}  // namespace cairn
