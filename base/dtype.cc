#include "base/dtype.h"

#include "base/log.h"

namespace cairn {

const DTypeInfo& Info(DType dtype) {
  static constexpr DTypeInfo kInfos[kNumDTypes] = {
      {"F32", 1, 4, false},     {"F16", 1, 2, false},     {"BF16", 1, 2, false},
      {"Q8_0", 32, 34, true},   {"Q4_0", 32, 18, true},   {"Q4_1", 32, 20, true},
      {"Q6_K", 256, 210, true}, {"Q5_0", 32, 22, true},   {"Q5_1", 32, 24, true},
      {"Q4_K", 256, 144, true}, {"Q5_K", 256, 176, true}, {"F8_E4M3", 1, 1, false},
  };
  const int index = static_cast<int>(dtype);
  CHECK(index < kNumDTypes) << index;
  return kInfos[index];
}

std::optional<DType> FindDType(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (Info(dtype).name == name) return dtype;
  }
  return std::nullopt;
}

int64_t RowBytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = Info(dtype);
  CHECK_EQ(elements % info.block_elements, 0);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace cairn
