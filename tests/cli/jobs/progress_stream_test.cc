#include "cli/jobs/progress_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A pipe to a reader, and the signals of this process as a file.
class ProgressStreamTest : public ::testing::Test {
 protected:
  ProgressStreamTest() {
    EXPECT_EQ(pipe(ends_), 0);
    signal(SIGPIPE, SIG_IGN);
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    EXPECT_EQ(pthread_sigmask(SIG_BLOCK, &term, nullptr), 0);
    signals_ = signalfd(-1, &term, 0);
  }
  ~ProgressStreamTest() override {
    CloseReader();
    close(signals_);
  }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  std::string Read(size_t most) {
    std::string text(most, '\0');
    const ssize_t n = read(ends_[0], text.data(), most);
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }
  // Whether this process gets SIGTERM within `ms`.
  bool GotTerm(int ms) {
    pollfd got = {signals_, POLLIN, 0};
    signalfd_siginfo signal;
    return poll(&got, 1, ms) == 1 && read(signals_, &signal, sizeof(signal)) == sizeof(signal);
  }

  int ends_[2];
  int signals_;
};

JobStatus Status(uint64_t step) {
  JobStatus status;
  status.set_job_id("adult-1");
  status.set_state(JOB_RUNNING);
  status.set_global_step(step);
  status.set_message("two\nlines");
  status.mutable_config()->set_output_dir("/out");
  status.mutable_config()->add_features()->set_name("large");
  return status;
}

TEST_F(ProgressStreamTest, AStatusIsALineWithoutMostOfItsConfiguration) {
  const auto stream = ProgressStream::Open(ends_[1]);
  ASSERT_TRUE(stream.ok()) << stream.status();
  (*stream)->Update(Status(7));
  const std::string line = Read(1 << 16);
  EXPECT_THAT(line, HasSubstr("\"global_step\": 7"));
  EXPECT_THAT(line, HasSubstr("\"state\": \"running\""));
  EXPECT_THAT(line, HasSubstr("two\\nlines"));
  EXPECT_THAT(line, HasSubstr("\"output_dir\": \"/out\""));
  EXPECT_THAT(line, Not(HasSubstr("large")));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(fcntl(ends_[1], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(ProgressStreamTest, ASlowReaderMissesStatusesButNoHalfLine) {
  auto stream = ProgressStream::Open(ends_[1]);
  ASSERT_TRUE(stream.ok()) << stream.status();
  for (uint64_t step = 1; step <= 1000; ++step) (*stream)->Update(Status(step));
  std::string text = Read(1 << 20);
  // The rest of the line that filled the pipe comes first.
  (*stream)->Finish(Status(1001));
  text += Read(1 << 20);
  size_t lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    const size_t end = text.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    EXPECT_EQ(text[at], '{');
    EXPECT_EQ(text.substr(end - 2, 2), "} ");
    at = end + 1;
  }
  EXPECT_LT(lines, 1000u);
  EXPECT_THAT(text, HasSubstr("\"global_step\": 1001"));
}

TEST_F(ProgressStreamTest, AReaderThatGoesAwayEndsTheJob) {
  const auto stream = ProgressStream::Open(ends_[1]);
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_FALSE(GotTerm(0));
  CloseReader();
  EXPECT_TRUE(GotTerm(10000));
  (*stream)->Update(Status(7));  // goes nowhere
}

TEST_F(ProgressStreamTest, TheEndOfTheStreamEndsNoJob) {
  {
    const auto stream = ProgressStream::Open(ends_[1]);
    ASSERT_TRUE(stream.ok()) << stream.status();
  }
  CloseReader();
  EXPECT_FALSE(GotTerm(0));
}

TEST_F(ProgressStreamTest, OtherDescriptorsAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(ProgressStream::Open(ends_[0]).status()));  // the other end
  EXPECT_TRUE(absl::IsInvalidArgument(ProgressStream::Open(signals_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ProgressStream::Open(STDOUT_FILENO).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ProgressStream::Open(-1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ProgressStream::Open(1L << 40).status()));
  close(ends_[1]);
}

}  // namespace
}  // namespace sluice::cli
