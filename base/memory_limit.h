// How much memory this process may really use: what the host has and what its control groups allow.
// Beyond that the kernel kills, in the middle of whatever runs.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

struct MemoryLimit {
  // The smallest limit; the largest number there is if none was found.
  int64_t bytes = 0;
  // The file it was read from; empty without one.
  std::string file;
};

// Reads both generations of control groups; a file that is missing or unreadable limits nothing.
// Thread: any.
MemoryLimit ReadMemoryLimit();

// The same with `root` put before every path. For tests.
MemoryLimit ReadMemoryLimit(const std::string& root);

}  // namespace cairn
