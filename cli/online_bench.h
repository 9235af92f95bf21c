// `cairn bench --endpoint`: several streams at once against a served cluster.
// Thread: the main thread.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

struct OnlineBenchFlags {
  std::string endpoint;
  int32_t streams = 1;         // requests at once
  int32_t prompt_tokens = 64;  // of each
  int32_t gen = 64;            // new tokens of each
  int32_t shared_prefix = 0;   // leading tokens that all prompts share
  bool warm = false;           // the shared prefix is computed once before the measurement
  bool json = false;
};

// Prints tokens per second while all streams run, time to first token, and the longest gap between
// two tokens of a stream. Returns the exit status.
int RunOnlineBench(const OnlineBenchFlags& flags);

}  // namespace cairn
