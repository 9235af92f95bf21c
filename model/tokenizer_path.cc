// Tokenizers from files and folders: what a file is, is told by its content.
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "model/checkpoint.h"
#include "model/gguf.h"
#include "model/json_text.h"
#include "model/tokenizer.h"
#include "model/tokenizer_json_parts.h"
#include "model/tokenizer_spec.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

// In a folder, the first of these that is there; then a file that ends with kRankSuffix.
constexpr const char* kNames[] = {"tokenizer.json", "tekken.json", "tokenizer.model"};
constexpr std::string_view kRankSuffix = ".tiktoken";

bool Exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

absl::StatusOr<std::string> FindInFolder(const std::string& folder) {
  for (const char* name : kNames) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (Exists(path)) return path.string();
  }
  std::vector<std::string> rank_files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (path.ends_with(kRankSuffix)) rank_files.push_back(path);
  }
  if (rank_files.size() == 1) return rank_files[0];
  return absl::NotFoundError(absl::StrCat(
      "no tokenizer in ", folder, ": looked for tokenizer.json, tekken.json, ",
      "tokenizer.model and for one *.tiktoken, of which there are ", rank_files.size()));
}

char FirstInk(std::string_view text) {
  const size_t at = text.find_first_not_of(" \t\r\n");
  return at == text.npos ? '\0' : text[at];
}

// A first line of base64 and a number.
bool IsRankFile(std::string_view text) {
  const std::string_view line = text.substr(0, std::min<size_t>(text.find('\n'), kMaxTokenBytes));
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0 || space + 1 == line.size()) return false;
  const std::string_view digits = line.substr(space + 1, line.find('\r') - space - 1);
  const auto is_base64 = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  };
  return std::all_of(line.begin(), line.begin() + space, is_base64) &&
         std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The tag of a message's first field: a list's entry of bytes.
bool IsSentencePiece(std::string_view bytes) { return bytes.starts_with('\n'); }

// tokenizer_config.json beside a file.
absl::StatusOr<Json> ReadConfigBeside(const std::string& path) {
  const std::filesystem::path config =
      std::filesystem::path(path).replace_filename("tokenizer_config.json");
  if (!Exists(config)) return Json();
  return ReadJsonFile(config.string(), JsonLimits{});
}

// Whether the text of a JSON file is a tekken.json: its vocabulary is a list beside a "config".
bool IsTekken(const std::string& path, std::string_view text) {
  return std::filesystem::path(path).filename().string().starts_with("tekken") ||
         text.substr(0, 4096).find("\"default_num_special_tokens\"") != text.npos;
}

// Makes the piece `id` a control token, if it is a piece of the user: some model files do not tell
// the two apart, and what the model was taught to end a turn with must not be found in content.
absl::Status MakeControlToken(int32_t id, const Json& token, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const bool special, JsonFlag(token, "special", false));
  if (!special || spec.piece_types[id] != PieceType::kUserDefined) return absl::OkStatus();
  spec.piece_types[id] = PieceType::kReserved;
  for (AddedToken& added : spec.added_tokens) {
    if (added.id != id) continue;
    added.special = true;
    added.is_piece = false;
  }
  return absl::OkStatus();
}

// Tokens that were added to a SentencePiece model live in tokenizer_config.json.
absl::Status AddTokensOfConfig(const Json& config, TokenizerSpec& spec) {
  const Json& tokens = JsonMember(config, "added_tokens_decoder");
  if (!tokens.is_object()) return absl::OkStatus();
  if (static_cast<int64_t>(tokens.size()) > kMaxAddedTokens) {
    return JsonMalformed("added_tokens_decoder", absl::StrCat("is too long: count=", tokens.size(),
                                                              " limit=", kMaxAddedTokens));
  }
  for (const auto& [key, token] : tokens.items()) {
    const Json number = Json::parse(key, nullptr, false);
    ASSIGN_OR_RETURN(const int32_t id, JsonTokenId(number, "added_tokens_decoder id"));
    if (static_cast<size_t>(id) < spec.tokens.size()) {
      RETURN_IF_ERROR(MakeControlToken(id, token, spec));
    } else {
      RETURN_IF_ERROR(ReadJsonAddedToken(token, id, spec));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerSpec> ReadFile(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (IsGguf(file.bytes())) {
    ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(path));
    return TokenizerSpecFromGguf(*checkpoint);
  }
  if (file.size_bytes() > kMaxTokenizerFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("file is too long for a tokenizer: bytes=", file.size_bytes(),
                     " limit=", kMaxTokenizerFileBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  ASSIGN_OR_RETURN(const Json config, ReadConfigBeside(path));
  if (FirstInk(text) == '{') {
    return IsTekken(path, text) ? TokenizerSpecFromTekken(text)
                                : TokenizerSpecFromJson(text, config);
  }
  TokenizerSpec spec;
  if (IsRankFile(text)) {
    ASSIGN_OR_RETURN(spec, TokenizerSpecFromRanks(text));
  } else if (IsSentencePiece(text)) {
    ASSIGN_OR_RETURN(spec, TokenizerSpecFromSentencePiece(text));
    RETURN_IF_ERROR(AddTokensOfConfig(config, spec));
  } else {
    return absl::InvalidArgumentError(
        "no tokenizer: neither GGUF, JSON, SentencePiece model nor rank file, by its first bytes");
  }
  RETURN_IF_ERROR(ReadTokenizerConfig(config, /*has_template=*/false, spec));
  return spec;
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromPath(const std::string& path) {
  std::string file = path;
  if (IsDirectory(path)) {
    ASSIGN_OR_RETURN(file, FindInFolder(path));
  }
  absl::StatusOr<TokenizerSpec> spec = ReadFile(file);
  if (!spec.ok() && spec.status().message().find(file) == absl::string_view::npos) {
    return Annotate(spec.status(), file);
  }
  return spec;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromCheckpoint(const Checkpoint& checkpoint) {
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromGguf(checkpoint));
    return Create(std::move(spec));
  }
  if (!checkpoint.is_directory()) {
    return absl::NotFoundError(absl::StrCat("no tokenizer: ", checkpoint.path(),
                                            " is one safetensors file; give its folder"));
  }
  return FromFile(checkpoint.path());
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromFile(const std::string& path) {
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromPath(path));
  return Create(std::move(spec));
}

}  // namespace cairn
