// How many descriptors this process has open, to find those that a test leaves behind.
#pragma once

#include <dirent.h>

#include "base/log.h"

namespace cairn {

inline int CountDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  CHECK(folder != nullptr);
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace cairn
