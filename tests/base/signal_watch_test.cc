#include "base/signal_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "absl/time/time.h"
#include "base/bounded_queue.h"

namespace cairn {
namespace {

// Each test runs in a child: signals and their masks belong to a whole process.
class SignalWatchTest : public testing::Test {
 protected:
  // The exit status of a child that runs `body`, or minus the signal that ended it.
  static int StatusOf(int (*body)()) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
};

TEST_F(SignalWatchTest, TerminationSignalsBecomeEvents) {
  EXPECT_EQ(StatusOf([] {
              BoundedQueue<int> received(4);
              SignalWatch watch([&](int signal) { return (void)received.TryPush(int{signal}); });
              for (const int signal : {SIGTERM, SIGINT}) {
                kill(getpid(), signal);
                if (received.Pop(absl::Seconds(60)) != signal) return 1;
              }
              return 0;
            }),
            0);
}

TEST_F(SignalWatchTest, AWriteToAClosedPipeIsAnErrorOfThatWrite) {
  EXPECT_EQ(StatusOf([] {
              SignalWatch watch([](int) {});
              int ends[2];
              if (pipe(ends) != 0) return 1;
              close(ends[0]);
              return write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 2;
            }),
            0);
}

TEST_F(SignalWatchTest, RestoredSignalsEndTheProcess) {
  EXPECT_EQ(StatusOf([] {
              {
                SignalWatch watch([](int) {});
              }
              RestoreSignals();
              kill(getpid(), SIGTERM);
              return 0;
            }),
            -SIGTERM);
}

}  // namespace
}  // namespace cairn
