// What the memory of this machine delivers: the yardstick of benchmarks.
#pragma once

#include "base/status.h"

namespace cairn {

// Bytes a second that `num_threads` threads together read from memory: the best of a few rounds
// over 256 MiB each. Thread: any. Errors: ResourceExhausted if the memory is not there.
absl::StatusOr<double> MeasureReadBandwidth(int num_threads);

}  // namespace cairn
