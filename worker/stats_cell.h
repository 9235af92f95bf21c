// StatsCell: one thread writes a plain value, any thread reads a whole one, nobody waits for the
// writer.
//
// A sequence lock over atomic words: a reader that met a write tries again.
// Thread: Store by one thread, Load by any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cairn {

template <typename T>
class StatsCell {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  StatsCell() { Store(T{}); }

  void Store(const T& value) {
    std::array<uint64_t, kWords> words{};
    std::memcpy(words.data(), &value, sizeof value);
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);  // odd: being written
    // Each release orders the store of the odd version before its word.
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  T Load() const {
    std::array<uint64_t, kWords> words;
    uint64_t before, after;
    do {
      before = version_.load(std::memory_order_acquire);
      for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
      after = version_.load(std::memory_order_relaxed);
    } while (before % 2 != 0 || before != after);
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof value);
    return value;
  }

 private:
  static constexpr size_t kWords = (sizeof(T) + sizeof(uint64_t) - 1) / sizeof(uint64_t);
  std::atomic<uint64_t> version_ = 0;
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace cairn
