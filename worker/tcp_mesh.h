// A connection between every two ranks, each opened by a proof that both know the group's key.
#pragma once

#include <vector>

#include "base/status.h"
#include "base/unique_handle.h"
#include "worker/collective.h"
#include "worker/deadline.h"

namespace cairn {

// One non-blocking socket for each rank, in rank order; the own entry holds none. Rank r dials the
// ranks below it and is dialled by those above.
// Thread: any.
// Errors: as NewTcpCollective.
absl::StatusOr<std::vector<UniqueFd>> FormTcpMesh(const TcpCollectiveOptions& options,
                                                  UniqueFd listener, const Deadline& deadline);

}  // namespace cairn
