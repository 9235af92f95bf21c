#include "base/dtype.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

struct Case {
  DType dtype;
  const char* name;
  int64_t elements, bytes;
};

// Sizes from the GGUF format's description of each type.
TEST(DTypeTest, RowsHaveTheSizesOfTheFormat) {
  for (const Case& c :
       {Case{DType::kF32, "F32", 3, 12}, Case{DType::kF16, "F16", 3, 6},
        Case{DType::kBF16, "BF16", 3, 6}, Case{DType::kQ8_0, "Q8_0", 64, 68},
        Case{DType::kQ4_0, "Q4_0", 64, 36}, Case{DType::kQ4_1, "Q4_1", 64, 40},
        Case{DType::kQ6_K, "Q6_K", 512, 420}, Case{DType::kQ5_0, "Q5_0", 64, 44},
        Case{DType::kQ5_1, "Q5_1", 64, 48}, Case{DType::kQ4_K, "Q4_K", 512, 288},
        Case{DType::kQ5_K, "Q5_K", 512, 352}, Case{DType::kF8E4M3, "F8_E4M3", 3, 3}}) {
    EXPECT_EQ(Info(c.dtype).name, c.name);
    EXPECT_EQ(RowBytes(c.dtype, c.elements), c.bytes) << c.name;
    EXPECT_EQ(RowBytes(c.dtype, 0), 0) << c.name;
    EXPECT_EQ(Info(c.dtype).quantised, Info(c.dtype).block_elements > 1) << c.name;
  }
}

TEST(DTypeDeathTest, APartOfABlockIsABug) {
  EXPECT_DEATH(RowBytes(DType::kQ8_0, 33), "CHECK failed");
}

}  // namespace
}  // namespace cairn
