// Text to token ids and back, as the model's own files define it.
//
// A loader for each kind of file (GGUF metadata, tokenizer.json, tokenizer.model ...) fills one
// TokenizerSpec; one engine runs it. What a file asks for and this engine does not do is refused at
// load by its name, never approximated.
//
// Thread: any; a Tokenizer does not change after it was made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cairn {

class AddedTokens;
class Checkpoint;
class PreTokenizer;
class SubwordModel;
class TextNormalizer;
enum class PartPosition : uint8_t;
enum class UserPieces : uint8_t;
struct TextSpan;
struct TokenizerSpec;

// A part of a rendered conversation. Content is what a caller sent (message text, names, tool
// results ...); the rest is the template's own scaffolding. Only scaffolding can be control tokens.
struct TextSegment {
  std::string text;
  bool is_content = false;

  bool operator==(const TextSegment&) const = default;
};

struct EncodeOptions {
  // Control tokens spelled out in the text become their ids. Off: they are plain text.
  bool parse_special = false;
  // Puts the begin and end tokens that the model wants; never a second one where the ids already
  // begin (end) with it. Text rendered by a chat template has its own: off for that.
  bool add_special = false;
  // The begin token alone, for a prompt: a text that is to be continued has not ended.
  bool add_begin = false;
};

class Tokenizer {
 public:
  static constexpr int64_t kMaxTextBytes = int64_t{64} << 20;

  // Errors: InvalidArgument names what the vocabulary has wrong; Unimplemented names the kind
  // (model, pre-tokenizer, normalizer ...) that is unknown; NotFound if there is no vocabulary.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromCheckpoint(const Checkpoint& checkpoint);
  // `path`: a GGUF file, a tokenizer's file of any kind, or a folder with one; what it is, is told
  // by its content.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromFile(const std::string& path);

  ~Tokenizer();

  // Any bytes are text: what is not UTF-8 is encoded byte by byte.
  // Errors: InvalidArgument if the text exceeds kMaxTextBytes; ResourceExhausted if one of the
  // model's regular expressions needs too many steps on it.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options) const;

  // Encodes the segments as the one text they form, but recognises a control token only where all
  // of its bytes are scaffolding. Adds no begin or end token: the template wrote them.
  absl::StatusOr<std::vector<int32_t>> EncodeSegments(std::span<const TextSegment> segments) const;

  // The bytes the token stands for, not always whole characters; empty for an id that is out of
  // range or unused. The view lives as long as the tokenizer.
  std::string_view TokenBytes(int32_t id) const;

  // Control tokens (end of turn ...), whose text is not shown to users.
  bool is_special(int32_t id) const;

  // How many spaces at the beginning of a text that is put together from its tokens belong to no
  // text, at most: what the tokenizer itself puts before every text.
  size_t max_leading_spaces() const { return max_leading_spaces_; }

  // Ids are below this. The model may have more logits: those rows must never be sampled.
  int32_t vocab_size() const { return static_cast<int32_t>(token_offsets_.size()) - 1; }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  // The id of an added token (control tokens ...) by its text.
  std::optional<int32_t> FindAddedToken(std::string_view text) const;

 private:
  Tokenizer();

  // How the plain parts of a text are encoded.
  struct PartOptions;

  void AddTokenBytes(const TokenizerSpec& spec);
  using EncodePart = absl::Status (Tokenizer::*)(std::string_view text, PartPosition position,
                                                 const PartOptions& options,
                                                 std::vector<int32_t>& ids) const;
  // Added tokens as they are, what lies between them by `encode_part`.
  absl::Status EncodeSpans(std::string_view text, std::span<const TextSpan> spans,
                           PartPosition position, EncodePart encode_part,
                           const PartOptions& options, std::vector<int32_t>& ids) const;
  absl::Status EncodePlain(std::string_view text, PartPosition position, const PartOptions& options,
                           std::vector<int32_t>& ids) const;
  absl::Status EncodeNormalized(std::string_view text, PartPosition position,
                                const PartOptions& options, std::vector<int32_t>& ids) const;
  absl::Status EncodePieces(std::string_view text, PartPosition position,
                            const PartOptions& options, std::vector<int32_t>& ids) const;
  // Of what comes after token `id`.
  PartPosition PositionAfter(int32_t id) const;

  std::unique_ptr<AddedTokens> added_tokens_;
  std::unique_ptr<TextNormalizer> normalizer_;
  std::unique_ptr<TextNormalizer> piece_normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<SubwordModel> model_;
  size_t max_leading_spaces_ = 0;
  std::string token_bytes_;             // The bytes of all tokens, one after another.
  std::vector<int64_t> token_offsets_;  // [V + 1] into token_bytes_.
  std::vector<bool> special_;           // [V]
  std::optional<int32_t> bos_id_, eos_id_;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

}  // namespace cairn
