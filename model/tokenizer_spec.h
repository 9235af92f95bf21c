// What a model's files say about its tokenizer, before anything of it is checked.
//
// Every loader fills this; Tokenizer::Create checks it and builds the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"
#include "model/pre_tokenizer.h"
#include "model/text_normalizer.h"

namespace cairn {

class Checkpoint;

inline constexpr int64_t kMaxVocabulary = int64_t{1} << 20;
inline constexpr int64_t kMaxMerges = int64_t{1} << 21;
inline constexpr int64_t kMaxTokenBytes = 4096;
inline constexpr int64_t kMaxAddedTokensBytes = int64_t{1} << 20;  // all of them together
inline constexpr int64_t kMaxAddedTokens = int64_t{1} << 16;
inline constexpr int64_t kMaxTokenizerFileBytes = int64_t{256} << 20;

// A token that is matched in the text itself, before the text is split.
struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = false;      // a control token
  bool lstrip = false;       // takes white space before it along
  bool rstrip = false;       // takes white space after it along
  bool single_word = false;  // only where no word character touches it
  bool normalized = false;   // matched after those that are not, in normalised text
  bool is_piece = false;     // a piece of the user, which the model itself finds in its text
};

enum class TokenModelKind : uint8_t {
  kByteLevelBpe,  // pairs of bytes
  kPieceBpe,      // pairs of characters
  kUnigram,       // the most likely row of pieces
};

// What a token is for a model of pieces.
enum class PieceType : uint8_t {
  kNormal,
  kUserDefined,  // found before all others
  kUnused,       // may be made on the way to another, but does not remain
  kByte,         // "<0x0A>": a byte of what no piece covers
  kReserved,     // never found in text: control tokens, and the one for the unknown
};

// What of the spaces at a text's beginning goes when it is put together from its tokens.
enum class LeadingSpaces : uint8_t { kKept, kOneDropped, kDropped };

struct TokenizerSpec {
  TokenModelKind model = TokenModelKind::kByteLevelBpe;

  // By id; empty: the id is unused or only an added token's. Byte level: in the byte-level
  // alphabet, in which printable characters stand for themselves and U+0100.. for the other bytes.
  // Otherwise UTF-8 in which kSpaceMark may stand for a space.
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::vector<AddedToken> added_tokens;

  std::vector<NormalizerStep> normalizer_steps;
  // Done to what lies between added tokens of the normalised text.
  std::vector<NormalizerStep> piece_normalizer_steps;
  std::vector<SplitStage> split_stages;  // each cuts the pieces of the one before it

  // Of byte pairs. A piece that is a token as it stands is that token, whatever the merges make of
  // it.
  bool ignore_merges = false;
  // There are no merges: two tokens make one if there is one of both their bytes, least id first.
  bool merges_by_id = false;

  // Of models of pieces. Without merges, character pairs merge by the greatest score.
  std::vector<PieceType> piece_types;  // [V], or empty: all normal
  std::vector<double> scores;          // [V], or empty
  // Scores are added as 32-bit numbers, which decides between near equals.
  bool scores_are_float = false;
  std::optional<int32_t> unknown_id;
  bool fuse_unknown = false;       // a run of unknown characters is one token
  bool byte_fallback = false;      // what no piece covers becomes byte tokens
  bool text_spells_bytes = false;  // the text "<0x0A>" may be that byte's token
  bool marks_spaces = false;       // kSpaceMark in a token stands for a space
  // Leading spaces that belong to no text: what the normaliser puts there.
  LeadingSpaces leading_spaces = LeadingSpaces::kKept;

  std::optional<int32_t> bos_id, eos_id;
  bool add_bos = false;
  bool add_eos = false;

  // Appends a piece of a SentencePiece vocabulary, and its added token if text can name it: a
  // control token, or a piece of the user.
  void AddPiece(std::string text, PieceType type);
  // The rules of SentencePiece, once all pieces were added: the step and what else follows from it.
  void UseSentencePieceRules(NormalizerStep rules);
};

// `text` with spaces for their marks.
std::string WithoutSpaceMarks(std::string_view text);

// The rule of GPT-2, also the one of the byte-level stage of tokenizer.json.
inline constexpr std::string_view kGpt2SplitPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// The rules that came after it: contractions in any case, one other character in front of a word,
// line ends with the spaces before them; digits up to three together, or each alone.
inline constexpr std::string_view kThreeDigitsSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kOneDigitSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Each digit alone: the stage `Digits(individual_digits)` of tokenizer.json.
inline constexpr std::string_view kDigitSplitPattern = R"(\p{N})";

// Errors (of all of these): as Tokenizer::Create.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const Checkpoint& checkpoint);

// `tokenizer_json` is the text of that file; `config` the content of tokenizer_config.json beside
// it, null if there is none.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromJson(std::string_view tokenizer_json,
                                                    const nlohmann::json& config);

// The content of a SentencePiece model file.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromSentencePiece(std::string_view model);

// The content of a tekken.json.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromTekken(std::string_view tekken_json);

// The content of a rank file: a line for each token, its bytes in base64 and its id. What the file
// does not say (control tokens, how text is split) is known for some, which their number of tokens
// tells. Errors: Unimplemented for another number.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromRanks(std::string_view ranks);

// Any of them by its content; what stands beside it in its folder is heeded. `path` may be the
// folder. Errors: NotFound if there is no file of a tokenizer.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromPath(const std::string& path);

}  // namespace cairn
