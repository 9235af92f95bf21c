// Measures what the code under test asks of the allocator: linking this in replaces operator new.
// Thread: any.
#pragma once

#include <cstddef>

namespace cairn {

void ResetAllocationMeter();
// Bytes of the largest single allocation since the last reset.
size_t LargestAllocation();

}  // namespace cairn
