// Where the limits of this process's control groups are written, in both generations.
//
// Thread: any. Errors: none; what is missing or unreadable is not visited, or reads as empty.
#pragma once

#include <functional>
#include <string>

namespace cairn {

// `directory` has the files of one group: "cpu.max" and "memory.max" in the second generation,
// "cpu.cfs_quota_us" and "memory.limit_in_bytes" in the first.
using ControlGroupVisitor =
    std::function<void(const std::string& directory, bool second_generation)>;

// Visits our group and every group above it that can be seen: each limits us. `controller`: of the
// first generation, "cpu" or "memory"; the second has one hierarchy for all. `root` is put before
// every path, for tests.
void VisitControlGroups(const std::string& root, const std::string& controller,
                        const ControlGroupVisitor& visit);

// The whole of a small file below /proc or /sys.
std::string ReadSystemFile(const std::string& path);

}  // namespace cairn
