// Progress of something that takes a while: a bar that is drawn over on a terminal, lines
// elsewhere. Thread: one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace cairn {

class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* out);
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `share`: 0..1. Without a terminal a line is printed when `text` changes, share aside, or
  // another tenth is done.
  void Show(double share, const std::string& text);
  // Prints a line of its own.
  void Say(const std::string& line);
  // Takes the bar away.
  void Clear();

 private:
  std::FILE* const out_;
  const bool terminal_;
  bool drawn_ = false;
  std::string last_text_;
  int last_tenth_ = -1;
};

// "draining: 3 requests in flight".
std::string DrainText(int32_t requests_in_flight);

// How far a drain is: the share of the most requests that were seen in flight which have ended.
class DrainProgress {
 public:
  explicit DrainProgress(ProgressLine* line) : line_(line) {}
  void Show(int32_t requests_in_flight);

 private:
  ProgressLine* const line_;
  int32_t most_ = 1;
};

}  // namespace cairn
