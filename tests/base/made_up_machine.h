// A made-up machine: files of /proc and /sys below a temporary root.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace cairn {

// Its control groups have one hierarchy, of the controllers that a test names.
class MadeUpMachine : public testing::Test {
 protected:
  // `controllers`: of the first generation, "cpu,cpuacct".
  explicit MadeUpMachine(std::string controllers) : controllers_(std::move(controllers)) {
    std::string name = testing::TempDir() + "/machine_XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~MadeUpMachine() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  void Write(const std::string& path, const std::string& text) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path(), ignored);
    std::ofstream(root_ + path) << text;
  }
  // Our group, and where its hierarchy is mounted.
  void UseSecondGeneration(const std::string& group, const std::string& mount_root = "/") {
    Write("/proc/self/cgroup", "0::" + group + "\n");
    Write("/proc/self/mountinfo",
          "22 1 0:20 / /proc rw - proc proc rw\n"
          "31 23 0:28 " +
              mount_root + " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  // Mounted at "/sys/fs/cgroup/of us".
  void UseFirstGeneration(const std::string& group, const std::string& mount_root = "/") {
    Write("/proc/self/cgroup",
          "9:name=systemd:/\n4:" + controllers_ + ":" + group + "\n3:cpuset:/\n0::/\n");
    Write("/proc/self/mountinfo",
          "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
          "32 31 0:29 " +
              mount_root + " /sys/fs/cgroup/of\\040us rw - cgroup cgroup rw," + controllers_ +
              "\n");
  }

  const std::string controllers_;
  std::string root_;
};

}  // namespace cairn
