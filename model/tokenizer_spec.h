// What a model's files say about its tokenizer, before anything of it is checked.
//
// Both loaders fill this; Tokenizer::Create checks it and builds the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace cairn {

class Checkpoint;

inline constexpr int64_t kMaxVocabulary = int64_t{1} << 20;
inline constexpr int64_t kMaxMerges = int64_t{1} << 21;
inline constexpr int64_t kMaxTokenBytes = 4096;
inline constexpr int64_t kMaxAddedTokensBytes = int64_t{1} << 20;  // all of them together
inline constexpr int64_t kMaxAddedTokens = int64_t{1} << 16;
inline constexpr int64_t kMaxSplitStages = 16;
inline constexpr int64_t kMaxPatternBytes = 16384;
inline constexpr int64_t kMaxTokenizerFileBytes = int64_t{256} << 20;

// A token that is matched in the text itself, before the text is split.
struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = false;      // a control token
  bool lstrip = false;       // takes white space before it along
  bool rstrip = false;       // takes white space after it along
  bool single_word = false;  // only where no word character touches it
  bool normalized = false;   // matched after those that are not
};

struct TokenizerSpec {
  // By id, in the byte-level alphabet: printable characters stand for themselves, U+0100.. for the
  // other bytes. Empty: the id is unused or only an added token's.
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::vector<AddedToken> added_tokens;
  // Regular expressions; each cuts the pieces of the one before it: every match is a piece, and so
  // is what lies between two matches.
  std::vector<std::string> split_patterns;
  // A piece that is a token as it stands is that token, whatever the merges make of it.
  bool ignore_merges = false;
  std::optional<int32_t> bos_id, eos_id;
  bool add_bos = false;
  bool add_eos = false;
};

// The rule of GPT-2, also the one of the byte-level stage of tokenizer.json.
inline constexpr std::string_view kGpt2SplitPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Each digit alone: the stage `Digits(individual_digits)` of tokenizer.json.
inline constexpr std::string_view kDigitSplitPattern = R"(\p{N})";

// Errors: as Tokenizer::Create.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const Checkpoint& checkpoint);

// `tokenizer_json` is the text of that file; `config` the content of tokenizer_config.json beside
// it, null if there is none.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromJson(std::string_view tokenizer_json,
                                                    const nlohmann::json& config);
// The same from a file and its neighbour, or from the files in `folder`.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromJsonFile(const std::string& path);
absl::StatusOr<TokenizerSpec> TokenizerSpecFromFolder(const std::string& folder);

}  // namespace cairn
