// What this process shares with others, so that the coordinator can tell which ranks may use shared
// memory and which must use the network.
// Thread: any.
#pragma once

#include <string>

#include "base/status.h"

namespace cairn {

// Equal for two processes exactly when they can share memory and see each other's process ids:
// same boot, same /dev/shm, same process namespace; and the same network, so that a machine cut
// into network namespaces behaves as several. Errors: Internal if the kernel does not say.
absl::StatusOr<std::string> MemoryDomain();

std::string HostName();

}  // namespace cairn
