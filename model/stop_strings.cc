#include "model/stop_strings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/utf8.h"

namespace cairn {
namespace {

// What the text at one position says about one stop string.
enum class Fit { kNo, kWhole, kSoFar };

Fit FitAt(std::string_view text, std::string_view stop) {
  const size_t length = std::min(text.size(), stop.size());
  if (text.substr(0, length) != stop.substr(0, length)) return Fit::kNo;
  return length == stop.size() ? Fit::kWhole : Fit::kSoFar;
}

}  // namespace

absl::StatusOr<StopStrings> StopStrings::Create(const std::vector<std::string>& stops) {
  if (stops.size() > static_cast<size_t>(kMaxStops)) {
    return absl::InvalidArgumentError(
        absl::StrCat("too many stop strings: count=", stops.size(), " limit=", kMaxStops));
  }
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) {
      return absl::InvalidArgumentError(absl::StrCat("stop string is empty: stop[", i, "]"));
    }
    if (stops[i].size() > static_cast<size_t>(kMaxStopBytes)) {
      return absl::InvalidArgumentError(absl::StrCat("stop string is too long: stop[", i,
                                                     "] bytes=", stops[i].size(),
                                                     " limit=", kMaxStopBytes));
    }
    if (!IsValidUtf8(stops[i])) {
      return absl::InvalidArgumentError(absl::StrCat("stop string is not UTF-8: stop[", i, "]"));
    }
  }
  // Shortest first: of two that begin together, the shorter is complete first.
  std::vector<std::string> sorted = stops;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
  return StopStrings(std::move(sorted));
}

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

StopStrings::Output StopStrings::Add(std::string_view delta) {
  if (stopped_) return {.text = "", .stopped = true, .stop = stop_};
  held_.append(delta);
  return Advance(/*at_end=*/false);
}

StopStrings::Output StopStrings::Finish() {
  if (stopped_) return {.text = "", .stopped = true, .stop = stop_};
  return Advance(/*at_end=*/true);
}

// Walks the held text from its start to the first position where a stop string is, or still may be.
// At most kMaxStopBytes are held back, so a delta costs no more than that times its own length.
StopStrings::Output StopStrings::Advance(bool at_end) {
  const std::string_view held = held_;
  size_t at = 0;
  for (; at < held.size(); ++at) {
    bool undecided = false;
    for (const std::string& stop : stops_) {
      const Fit fit = FitAt(held.substr(at), stop);
      if (fit == Fit::kWhole) {
        stopped_ = true;
        stop_ = stop;
        Output output{.text = std::string(held.substr(0, at)), .stopped = true, .stop = stop};
        held_.clear();
        return output;
      }
      undecided |= fit == Fit::kSoFar && !at_end;
    }
    if (undecided) break;
  }
  Output output{.text = std::string(held.substr(0, at)), .stopped = false, .stop = ""};
  held_.erase(0, at);
  return output;
}

}  // namespace cairn
