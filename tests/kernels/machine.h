// What kernel tests run on: the instruction sets of this machine, teams of threads, and whether
// everything is checked.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/context.h"

namespace cairn {

// The sanitizers make everything ten times slower; they look for other errors than lost bits, so
// the tests keep each kind of case and drop repetitions.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline std::vector<Isa> IsasOfThisMachine() {
  std::vector<Isa> isas = {Isa::kAvx2};
  if (ChooseIsa("avx512").ok()) isas.push_back(Isa::kAvx512);
  return isas;
}

inline std::string IsaTestName(const testing::TestParamInfo<Isa>& info) {
  return std::string(IsaName(info.param));
}

inline std::unique_ptr<ThreadTeam> NewTeam(int num_threads, Isa isa) {
  auto team = ThreadTeam::Create({.num_threads = num_threads, .isa = isa});
  EXPECT_TRUE(team.ok()) << team.status();
  return std::move(team).value();
}

}  // namespace cairn
