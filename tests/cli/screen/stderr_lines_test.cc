#include "cli/screen/stderr_lines.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "gmock/gmock.h"

namespace sluice::cli {
namespace {

// What PrintOnStderr writes where standard error is `fd`, whose other end is `from`.
std::string PrintedOn(int fd, int from, const std::string& text) {
  const int saved = dup(STDERR_FILENO);
  dup2(fd, STDERR_FILENO);
  PrintOnStderr(text);
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::string printed(4096, '\0');
  const ssize_t n = read(from, printed.data(), printed.size());
  printed.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return printed;
}

TEST(StderrLinesTest, LinesBreakAtBlanksOnATerminalOnly) {
  const std::string text = "note: one two three\nsecond";
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(end, 0);
  winsize size = {};
  size.ws_col = 12;
  ASSERT_EQ(ioctl(end, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(PrintedOn(end, terminal, text), "note: one\r\n  two three\r\nsecond\r\n");
  close(end);
  close(terminal);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_EQ(PrintedOn(pipe_ends[1], pipe_ends[0], text), text + "\n");
  for (const int fd : pipe_ends) close(fd);
}

}  // namespace
}  // namespace sluice::cli
