// The shared-memory back end over memory that is there already.
//
// NewShmCollective of collective.h is what programs use; this is for ranks that are threads of one
// process and share one mapping.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "worker/collective.h"
#include "worker/shm_segment.h"

namespace cairn {

// `view` is of initialised memory that outlives the collective. Deaths are told by the timeout.
std::unique_ptr<Collective> NewShmCollectiveInMemory(const ShmView& view, int rank,
                                                     absl::Duration timeout);

}  // namespace cairn
