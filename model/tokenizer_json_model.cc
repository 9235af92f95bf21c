#include "model/tokenizer_json_parts.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model/piece_vocabulary.h"
#include "model/utf8.h"

namespace cairn {

using Json = nlohmann::json;

const Json& JsonMember(const Json& object, const char* key) {
  static const Json* const kNull = new Json();
  if (!object.is_object()) return *kNull;
  const auto found = object.find(key);
  return found == object.end() ? *kNull : *found;
}

std::string JsonType(const Json& component) {
  const Json& type = JsonMember(component, "type");
  return type.is_string() ? type.get_ref<const std::string&>() : "";
}

absl::Status JsonUnsupported(std::string_view what, std::string_view value) {
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.json: ", absl::string_view(what.data(), what.size()),
                   " is not supported: ", Printable(value)));
}

absl::Status JsonMalformed(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer.json: ", absl::string_view(field.data(), field.size()), " ",
                   absl::string_view(what.data(), what.size())));
}

absl::StatusOr<bool> JsonFlag(const Json& object, const char* key, bool when_missing) {
  const Json& value = JsonMember(object, key);
  if (value.is_null()) return when_missing;
  if (!value.is_boolean()) return JsonMalformed(key, "is not true or false");
  return value.get<bool>();
}

absl::StatusOr<int32_t> JsonTokenId(const Json& value, std::string_view field) {
  if (!value.is_number_integer()) return JsonMalformed(field, "is not an integer");
  const bool in_range = value.is_number_unsigned()
                            ? value.get<uint64_t>() < static_cast<uint64_t>(kMaxVocabulary)
                            : value.get<int64_t>() >= 0 && value.get<int64_t>() < kMaxVocabulary;
  if (!in_range) {
    return JsonMalformed(
        field, absl::StrCat("is out of range: id=", value.dump(), " limit=", kMaxVocabulary));
  }
  return value.get<int32_t>();
}

namespace {

absl::Status ReadVocabulary(const Json& vocabulary, TokenizerSpec& spec) {
  if (!vocabulary.is_object()) return JsonMalformed("model.vocab", "is not an object");
  if (static_cast<int64_t>(vocabulary.size()) > kMaxVocabulary) {
    return JsonMalformed("model.vocab", absl::StrCat("is too long: count=", vocabulary.size(),
                                                     " limit=", kMaxVocabulary));
  }
  for (const auto& [text, value] : vocabulary.items()) {
    ASSIGN_OR_RETURN(const int32_t id, JsonTokenId(value, "model.vocab id"));
    if (spec.tokens.size() <= static_cast<size_t>(id)) spec.tokens.resize(id + 1);
    if (text.empty()) return JsonMalformed("model.vocab", "has an empty token");
    if (!spec.tokens[id].empty()) {
      return JsonMalformed("model.vocab",
                           absl::StrCat("has an id twice: \"", Printable(text), "\" and \"",
                                        Printable(spec.tokens[id]), "\" id=", id));
    }
    spec.tokens[id] = text;
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const Json& merges, TokenizerSpec& spec) {
  if (!merges.is_array()) return JsonMalformed("model.merges", "is not an array");
  if (static_cast<int64_t>(merges.size()) > kMaxMerges) {
    return JsonMalformed("model.merges",
                         absl::StrCat("is too long: count=", merges.size(), " limit=", kMaxMerges));
  }
  for (const Json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string_view text =
        merge.is_string() ? std::string_view(merge.get_ref<const std::string&>()) : "";
    const size_t space = text.find(' ');
    if (space == text.npos || space == 0 || space + 1 == text.size()) {
      return JsonMalformed(
          "model.merges", absl::StrCat("has an entry that is no pair: merge=", spec.merges.size()));
    }
    spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return absl::OkStatus();
}

absl::Status ReadBytePairs(const Json& model, TokenizerSpec& spec) {
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = JsonMember(model, key);
    const bool off = value.is_null() || value == "" || value == 0.0;
    if (!off) return JsonUnsupported(absl::StrCat("model.", key), value.dump());
  }
  spec.model = TokenModelKind::kPieceBpe;
  ASSIGN_OR_RETURN(spec.ignore_merges, JsonFlag(model, "ignore_merges", false));
  ASSIGN_OR_RETURN(spec.fuse_unknown, JsonFlag(model, "fuse_unk", false));
  RETURN_IF_ERROR(ReadVocabulary(JsonMember(model, "vocab"), spec));
  const Json& unknown = JsonMember(model, "unk_token");
  if (unknown.is_string()) {
    spec.unknown_id = FindTokenId(spec, unknown.get_ref<const std::string&>());
    if (!spec.unknown_id.has_value()) {
      return JsonMalformed("model.unk_token", absl::StrCat("is not in the vocabulary: ",
                                                           Printable(unknown.get<std::string>())));
    }
  } else if (!unknown.is_null()) {
    return JsonMalformed("model.unk_token", "is not a string");
  }
  return ReadMerges(JsonMember(model, "merges"), spec);
}

absl::Status ReadUnigram(const Json& model, TokenizerSpec& spec) {
  spec.model = TokenModelKind::kUnigram;
  spec.fuse_unknown = true;
  const Json& vocabulary = JsonMember(model, "vocab");
  if (!vocabulary.is_array()) return JsonMalformed("model.vocab", "is not an array");
  if (static_cast<int64_t>(vocabulary.size()) > kMaxVocabulary) {
    return JsonMalformed("model.vocab", absl::StrCat("is too long: count=", vocabulary.size(),
                                                     " limit=", kMaxVocabulary));
  }
  for (const Json& piece : vocabulary) {
    const bool is_pair = piece.is_array() && piece.size() == 2 && piece[0].is_string();
    if (!is_pair || !piece[1].is_number()) {
      return JsonMalformed("model.vocab",
                           absl::StrCat("has an entry that is no piece with a score: "
                                        "id=",
                                        spec.tokens.size()));
    }
    spec.tokens.push_back(piece[0].get<std::string>());
    spec.scores.push_back(piece[1].get<double>());
  }
  ASSIGN_OR_RETURN(spec.unknown_id, JsonTokenId(JsonMember(model, "unk_id"), "model.unk_id"));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadJsonModel(const Json& model, TokenizerSpec& spec) {
  const std::string type = JsonType(model);
  if (type == "BPE") {
    RETURN_IF_ERROR(ReadBytePairs(model, spec));
  } else if (type == "Unigram") {
    RETURN_IF_ERROR(ReadUnigram(model, spec));
  } else {
    return JsonUnsupported("model", type);
  }
  ASSIGN_OR_RETURN(spec.byte_fallback, JsonFlag(model, "byte_fallback", false));
  spec.text_spells_bytes = true;
  spec.piece_types.assign(spec.tokens.size(), PieceType::kNormal);
  for (size_t id = 0; id < spec.tokens.size() && spec.byte_fallback; ++id) {
    if (ByteOfToken(spec.tokens[id]) >= 0) spec.piece_types[id] = PieceType::kByte;
  }
  return absl::OkStatus();
}

absl::Status ReadJsonAddedToken(const Json& token, int32_t id, TokenizerSpec& spec) {
  const Json& content = JsonMember(token, "content");
  if (!content.is_string()) return JsonMalformed("added_tokens content", "is not a string");
  AddedToken added{.id = id, .text = content.get<std::string>()};
  ASSIGN_OR_RETURN(added.special, JsonFlag(token, "special", false));
  ASSIGN_OR_RETURN(added.lstrip, JsonFlag(token, "lstrip", false));
  ASSIGN_OR_RETURN(added.rstrip, JsonFlag(token, "rstrip", false));
  ASSIGN_OR_RETURN(added.single_word, JsonFlag(token, "single_word", false));
  ASSIGN_OR_RETURN(added.normalized, JsonFlag(token, "normalized", !added.special));
  // Plain text never becomes a control token, whatever the model would make of it.
  if (added.special && static_cast<size_t>(id) < spec.piece_types.size()) {
    spec.piece_types[id] = PieceType::kReserved;
  }
  spec.added_tokens.push_back(std::move(added));
  return absl::OkStatus();
}

std::optional<int32_t> FindTokenId(const TokenizerSpec& spec, std::string_view text) {
  for (const AddedToken& token : spec.added_tokens) {
    if (token.text == text) return token.id;
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id] == text) return static_cast<int32_t>(id);
  }
  return std::nullopt;
}

}  // namespace cairn
