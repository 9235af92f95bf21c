#include "base/memory_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/memory.h"

namespace cairn {

absl::StatusOr<double> MeasureReadBandwidth(int num_threads) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kBytesPerThread = int64_t{256} << 20;
  constexpr int kRounds = 5;
  std::vector<HostBuffer> buffers;
  for (int t = 0; t < num_threads; ++t) {
    ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Allocate(kBytesPerThread, "bandwidth test"));
    // Pages that nobody wrote are all the same zero page, which never leaves the cache.
    auto* words = buffer.as<uint64_t>();
    for (int64_t i = 0; i < kBytesPerThread / 8; ++i) words[i] = static_cast<uint64_t>(i);
    buffers.push_back(std::move(buffer));
  }
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint64_t> sums(num_threads * 8);
    const Clock::time_point start = Clock::now();
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < num_threads; ++t) {
        threads.emplace_back([&, t] {
          const auto* words = buffers[t].as<uint64_t>();
          // In two streams: a core has more reads under way than in one.
          constexpr int64_t kHalf = kBytesPerThread / 16;
          uint64_t lanes[8] = {};
          for (int64_t i = 0; i < kHalf; i += 8)
            for (int lane = 0; lane < 8; ++lane)
              lanes[lane] += words[i + lane] + words[kHalf + i + lane];
          std::copy(lanes, lanes + 8, sums.begin() + t * 8);
        });
      }
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    // The sums are used, so that the reads are not left out.
    if (sums[0] == 0) return absl::InternalError("bandwidth test read nothing");
    best = std::max(best, static_cast<double>(kBytesPerThread) * num_threads / seconds);
  }
  return best;
}

}  // namespace cairn
