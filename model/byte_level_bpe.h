// Byte-pair encoding over the 256 bytes.
//
// Thread: any; constant after Create.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "model/merge_table.h"
#include "model/subword_model.h"
#include "model/tokenizer_spec.h"

namespace cairn {

class ByteLevelBpe : public SubwordModel {
 public:
  // `bytes_of_token` by id: what each token stands for; it must outlive this.
  // Errors: InvalidArgument names the token or merge that is wrong.
  static absl::StatusOr<std::unique_ptr<SubwordModel>> Create(
      const TokenizerSpec& spec, const std::vector<absl::string_view>& bytes_of_token,
      const std::vector<bool>& special);

  // A byte without a token is left out, as the reference does.
  void Encode(std::string_view piece, UserPieces user_pieces,
              std::vector<int32_t>& ids) const override;

 private:
  ByteLevelBpe() = default;

  absl::Status AddBytes(const TokenizerSpec& spec, const std::vector<bool>& special);
  void AddWholePieces(const TokenizerSpec& spec,
                      const std::vector<absl::string_view>& bytes_of_token);

  void EncodeByMerges(std::string_view piece, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_;  // kNoToken: there is none
  MergeTable merges_;
  absl::flat_hash_map<absl::string_view, int32_t> whole_pieces_;  // pieces that are one token
};

// The bytes that a token text in the byte-level alphabet stands for. False, with `bytes` undefined,
// if it has a character that is not in the alphabet.
bool DecodeByteLevelText(std::string_view text, std::string& bytes);

// `bytes` in the byte-level alphabet.
std::string EncodeByteLevelText(std::string_view bytes);

}  // namespace cairn
