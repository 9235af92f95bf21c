#include "cli/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace cairn {
namespace {

constexpr int kBarWidth = 30;

int TerminalWidth(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

ProgressLine::ProgressLine(std::FILE* out) : out_(out), terminal_(isatty(fileno(out)) == 1) {}

void ProgressLine::Show(double share, const std::string& text) {
  const double clipped = std::clamp(share, 0.0, 1.0);
  const int percent = static_cast<int>(std::floor(100 * clipped));
  if (!terminal_) {
    // Percentages inside the text would make every update a new line.
    const std::string fixed = text.substr(0, text.find(": "));
    if (fixed == last_text_ && percent / 10 == last_tenth_) return;
    last_text_ = fixed;
    last_tenth_ = percent / 10;
    std::fprintf(out_, "%3d %%  %s\n", percent, text.c_str());
    std::fflush(out_);
    return;
  }
  const int filled = static_cast<int>(std::lround(kBarWidth * clipped));
  std::string line = "[" + std::string(static_cast<size_t>(filled), '#') +
                     std::string(static_cast<size_t>(kBarWidth - filled), '.') + "] " +
                     std::to_string(percent) + " %  " + text;
  const size_t width = static_cast<size_t>(std::max(20, TerminalWidth(out_) - 1));
  if (line.size() > width) line.resize(width);
  std::fprintf(out_, "\r\033[K%s", line.c_str());
  std::fflush(out_);
  drawn_ = true;
}

void ProgressLine::Say(const std::string& line) {
  Clear();
  std::fprintf(out_, "%s\n", line.c_str());
  std::fflush(out_);
}

void ProgressLine::Clear() {
  if (!drawn_) return;
  std::fprintf(out_, "\r\033[K");
  std::fflush(out_);
  drawn_ = false;
}

std::string DrainText(int32_t requests_in_flight) {
  return absl::StrFormat("draining: %d %s in flight", requests_in_flight,
                         requests_in_flight == 1 ? "request" : "requests");
}

void DrainProgress::Show(int32_t requests_in_flight) {
  most_ = std::max(most_, requests_in_flight);
  line_->Show(1 - static_cast<double>(requests_in_flight) / most_, DrainText(requests_in_flight));
}

}  // namespace cairn
