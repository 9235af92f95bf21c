#include "base/process_start.h"

#include <bits/functexcept.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>

namespace cairn {
namespace {

// Each test runs in a child: streams belong to a whole process.
struct Ended {
  int status = 0;  // exit status, or minus the signal
  std::string text;
};
// What a child that runs `body` writes to the descriptor `fd`, and how it ends.
Ended RunChild(int fd, int (*body)()) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], fd);
    _exit(body());
  }
  close(ends[1]);
  Ended ended;
  char buffer[512];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof buffer)) > 0;) {
    ended.text.append(buffer, static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  ended.status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  return ended;
}

TEST(ProcessStartTest, AFileNeverTakesTheNumberOfAClosedStream) {
  const Ended ended = RunChild(100, [] {
    for (int fd = 0; fd <= 2; ++fd) close(fd);
    StartProcess("test");
    const int file = open("/dev/null", O_RDONLY);
    const bool writable = write(2, "x", 1) == 1;
    return file > 2 && writable ? 0 : 1;
  });
  EXPECT_EQ(ended.status, 0);
}

TEST(ProcessStartTest, OpenStreamsStayWhatTheyAre) {
  const Ended ended = RunChild(2, [] {
    close(0);
    StartProcess("test");
    return write(2, "still here", 10) == 10 ? 0 : 1;
  });
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.text, "still here");
}

// The library's own ways to say so; nothing above them takes the error.
TEST(ProcessStartTest, ASystemThatRefusesThreadsOrMemoryCostsOneLine) {
  const Ended threads = RunChild(2, []() noexcept -> int {
    StartProcess("test");
    std::__throw_system_error(EAGAIN);
  });
  EXPECT_EQ(threads.status, 1);
  EXPECT_EQ(threads.text,
            "test: the system gives no more threads: see the limits of this user (ulimit -u)\n");
  const Ended memory = RunChild(2, []() noexcept -> int {
    StartProcess("test");
    std::__throw_bad_alloc();
  });
  EXPECT_EQ(memory.status, 1);
  EXPECT_EQ(memory.text,
            "test: the system gives no more memory: see the limits of this process (ulimit -v)\n");
}

TEST(ProcessStartTest, AMappedFileThatIsCutShortCostsOneLine) {
  const Ended ended = RunChild(2, [] {
    StartProcess("test");
    const int file = memfd_create("model", 0);
    if (ftruncate(file, 4096) != 0) return 2;
    void* const data = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED || ftruncate(file, 0) != 0) return 2;
    return static_cast<int>(*static_cast<const volatile char*>(data)) + 3;
  });
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.text,
            "test: a file was cut short while it was in use: the model's, if nothing else is "
            "mapped\n");
}

TEST(ProcessStartTest, MayOpenAsManyFilesAsTheHardLimitAllows) {
  const Ended ended = RunChild(2, [] {
    rlimit limit{.rlim_cur = 64, .rlim_max = 200};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    StartProcess("test");
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    return limit.rlim_cur == 200 ? 0 : 1;
  });
  EXPECT_EQ(ended.status, 0);
}

TEST(ProcessStartTest, OutputThatIsLostIsAnError) {
  const Ended full = RunChild(2, [] {
    const int device = open("/dev/full", O_WRONLY);
    dup2(device, 1);
    std::printf("lost");
    const absl::Status status = FlushStandardOutput();
    std::fprintf(stderr, "%s", std::string(status.message()).c_str());
    return status.ok() ? 0 : 1;
  });
  EXPECT_EQ(full.status, 1);
  EXPECT_EQ(full.text, "cannot write standard output: No space left on device");
  EXPECT_EQ(RunChild(1,
                     [] {
                       std::printf("kept");
                       return FlushStandardOutput().ok() ? 0 : 1;
                     })
                .text,
            "kept");
}

}  // namespace
}  // namespace cairn
