#include "model/sequence_ids.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/parameter_reader.h"

namespace cairn {
namespace {

// Ids of the model itself must be inside the vocabulary; a negative one stands for none.
absl::StatusOr<std::vector<int32_t>> ReadIds(const ParameterReader& reader, std::string_view key,
                                             int vocab_size) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, reader.Integers(key, kMaxEndOfSequenceIds));
  std::vector<int32_t> result;
  for (const int64_t id : ids) {
    if (id >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          reader.FullKey(key), " is not in the vocabulary: id=", id, " vocabulary=", vocab_size));
    }
    if (id >= 0) result.push_back(static_cast<int32_t>(id));
  }
  return result;
}

absl::Status AddEosIds(const ParameterReader& reader, std::string_view key, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(reader, key, config.vocab_size));
  std::vector<int32_t>& known = config.eos_ids;
  for (const int32_t id : ids) {
    if (std::find(known.begin(), known.end(), id) == known.end()) known.push_back(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> ReadId(const ParameterReader& reader, std::string_view key,
                               int vocab_size) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(reader, key, vocab_size));
  return ids.empty() ? -1 : ids.front();
}

// Padding is often a token that was added to the tokenizer but not to the embedding: nothing here
// needs one, so that is none rather than an error.
absl::StatusOr<int32_t> ReadPadId(const ParameterReader& reader, std::string_view key,
                                  int vocab_size) {
  ASSIGN_OR_RETURN(const int32_t id, ReadId(reader, key, kMaxVocabSize));
  return id < vocab_size ? id : -1;
}

}  // namespace

absl::Status ReadGgufIds(const Metadata& metadata, ModelConfig& config) {
  const ParameterReader reader(&metadata, "tokenizer.ggml.");
  ASSIGN_OR_RETURN(config.bos_id, ReadId(reader, "bos_token_id", config.vocab_size));
  ASSIGN_OR_RETURN(config.pad_id, ReadPadId(reader, "padding_token_id", config.vocab_size));
  for (const char* const key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    RETURN_IF_ERROR(AddEosIds(reader, key, config));
  }
  if (reader.Has("add_bos_token")) {
    ASSIGN_OR_RETURN(config.add_bos, reader.Flag("add_bos_token", false));
  }
  if (reader.Has("add_eos_token")) {
    ASSIGN_OR_RETURN(config.add_eos, reader.Flag("add_eos_token", false));
  }
  return absl::OkStatus();
}

absl::Status ReadJsonIds(const Checkpoint& checkpoint, ModelConfig& config) {
  const ParameterReader reader(&checkpoint.config(), "config.json: ");
  ASSIGN_OR_RETURN(config.bos_id, ReadId(reader, "bos_token_id", config.vocab_size));
  ASSIGN_OR_RETURN(config.pad_id, ReadPadId(reader, "pad_token_id", config.vocab_size));
  RETURN_IF_ERROR(AddEosIds(reader, "eos_token_id", config));
  if (!checkpoint.generation_config().is_object()) return absl::OkStatus();
  const ParameterReader generation(&checkpoint.generation_config(), "generation_config.json: ");
  return AddEosIds(generation, "eos_token_id", config);
}

}  // namespace cairn
