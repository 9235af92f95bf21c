// Ends a stream of text just before the first stop string, wherever the deltas were cut.
//
// Text that could still become a stop string is held back, so nothing of a match is ever given
// out. The earliest match wins: the one that begins first; of those that begin together, the one
// that is complete first.
//
// Thread: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cairn {

class StopStrings {
 public:
  static constexpr int kMaxStops = 16;
  static constexpr int64_t kMaxStopBytes = 1024;

  struct Output {
    std::string text;      // Safe to give out now.
    bool stopped = false;  // A stop string was found; `text` ends just before it.
    std::string stop;      // Which one, if stopped.
  };

  // Errors: InvalidArgument for an empty stop string, one over kMaxStopBytes or that is not UTF-8,
  // or more than kMaxStops of them. No stops at all is fine: everything passes at once.
  static absl::StatusOr<StopStrings> Create(const std::vector<std::string>& stops);

  // Takes the next piece of text. After a stop every later call gives nothing and stopped = true.
  Output Add(std::string_view delta);

  // Ends the stream: gives out what was held back, for nothing can complete it any more. A match
  // that waited for an earlier one to fail is found here.
  Output Finish();

  bool stopped() const { return stopped_; }

 private:
  explicit StopStrings(std::vector<std::string> stops);

  Output Advance(bool at_end);

  std::vector<std::string> stops_;
  std::string held_;  // Not yet given out.
  bool stopped_ = false;
  std::string stop_;
};

}  // namespace cairn
