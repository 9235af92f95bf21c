// The first and the last thing that a program does.
//
// Thread: main, before any other thread and after all of them.
#pragma once

#include "base/status.h"

namespace cairn {

// Standard streams that the caller closed become /dev/null: otherwise the next file that is opened
// has their number, and log lines end up in it. Some ends have no status: the system refuses a
// library a thread or memory, or a mapped file is cut short while it is read. They cost one line
// instead of a core dump. The soft limit of open files is raised as far as it may be. `program` is
// the prefix of that line and outlives the process.
void StartProcess(const char* program);

// Whether all that was printed to stdout has been written. Errors: Internal with the reason.
absl::Status FlushStandardOutput();

}  // namespace cairn
