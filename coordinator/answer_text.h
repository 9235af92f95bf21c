// The text of one choice as its tokens arrive: detokenized, cut at stop strings.
//
// Deltas are valid UTF-8 and never contain any part of a stop string. A stop id ends the answer
// without showing its text.
// Thread: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/detokenizer.h"
#include "model/stop_strings.h"

namespace cairn {

class AnswerText {
 public:
  // `tokenizer` must outlive this; `stop_ids` as sent to the worker. Errors: as
  // StopStrings::Create.
  static absl::StatusOr<AnswerText> Create(const Tokenizer* tokenizer,
                                           const std::vector<std::string>& stop,
                                           std::vector<int32_t> stop_ids);

  // The text that became certain with this token. After a stop string was found: nothing, ever.
  // `ends`: the worker ended the choice with this token (it may be a stop id).
  std::string Add(int32_t token, bool ends);
  // What was still held back, once no token will come.
  std::string Finish();

  bool stopped() const { return stops_.stopped(); }
  const std::string& stop() const { return stop_; }  // the one found

 private:
  AnswerText(const Tokenizer* tokenizer, StopStrings stops, std::vector<int32_t> stop_ids)
      : detokenizer_(tokenizer), stops_(std::move(stops)), stop_ids_(std::move(stop_ids)) {}
  std::string Take(StopStrings::Output output);

  Detokenizer detokenizer_;
  StopStrings stops_;
  std::vector<int32_t> stop_ids_;
  std::string stop_;
};

}  // namespace cairn
