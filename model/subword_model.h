// How a tokenizer makes token ids of one piece of text. Three kinds: byte_level_bpe.h, piece_bpe.h,
// unigram.h.
//
// Thread: any; constant after it was made.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace cairn {

// Which pieces of the user a model may find in a text.
enum class UserPieces : uint8_t {
  kAll,
  kSpacesOnly,  // of what a caller sent, nothing that could look like a control token
};

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;

  // Appends the ids of `piece`, any bytes, in time O(n log n).
  virtual void Encode(std::string_view piece, UserPieces user_pieces,
                      std::vector<int32_t>& ids) const = 0;
};

}  // namespace cairn
