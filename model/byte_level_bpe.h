// Byte-pair encoding over the 256 bytes: one piece of text to token ids.
//
// Thread: any; constant after Create.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "model/tokenizer_spec.h"

namespace cairn {

class ByteLevelBpe {
 public:
  // `bytes_of_token` by id: what each token stands for; it must outlive this.
  // Errors: InvalidArgument names the token or merge that is wrong.
  static absl::StatusOr<std::unique_ptr<ByteLevelBpe>> Create(
      const TokenizerSpec& spec, const std::vector<absl::string_view>& bytes_of_token,
      const std::vector<bool>& special);

  // Appends the ids of `piece`, in time O(n log n). A byte without a token is left out, as the
  // reference does.
  void Encode(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  struct Symbol;

  ByteLevelBpe() = default;

  absl::Status AddBytes(const TokenizerSpec& spec, const std::vector<bool>& special);
  absl::Status AddMerges(const TokenizerSpec& spec, const std::vector<bool>& special);
  void AddWholePieces(const TokenizerSpec& spec,
                      const std::vector<absl::string_view>& bytes_of_token);

  const Merge* FindMerge(int32_t left, int32_t right) const;
  void EncodeByMerges(std::string_view piece, std::vector<int32_t>& ids) const;
  void EncodeShort(std::string_view piece, std::vector<int32_t>& ids) const;
  void EncodeLong(std::string_view piece, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_;                             // -1: no token
  absl::flat_hash_map<uint64_t, Merge> merges_;                   // by left id << 32 | right id
  absl::flat_hash_map<absl::string_view, int32_t> whole_pieces_;  // pieces that are one token
};

// The bytes that a token text in the byte-level alphabet stands for. False, with `bytes` undefined,
// if it has a character that is not in the alphabet.
bool DecodeByteLevelText(std::string_view text, std::string& bytes);

// The character of the byte-level alphabet for `byte`.
char32_t ByteLevelCharacter(uint8_t byte);

}  // namespace cairn
