#include "tests/model/allocation_meter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<size_t> largest_allocation = 0;
}  // namespace

void* operator new(size_t bytes) {
  size_t largest = largest_allocation.load(std::memory_order_relaxed);
  while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace cairn {

void ResetAllocationMeter() { largest_allocation = 0; }
size_t LargestAllocation() { return largest_allocation; }

}  // namespace cairn
