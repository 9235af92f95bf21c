// What kernel tests run on: the instruction sets of this machine, and teams of threads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/context.h"

namespace cairn {

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
