#include "common/daemon/process_log.h"

#include <glog/logging.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "common/base/env.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/identity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Runs `body` in a child process and returns its exit code.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class ProcessLogTest : public ::testing::Test {
 protected:
  ProcessLogTest() {
    id_.role = ROLE_PSERVER;
    id_.rank = 2;
    id_.log_dir = root_ + "/deep";
  }
  ~ProcessLogTest() override { std::filesystem::remove_all(root_); }
  const std::string root_ = ::testing::TempDir() + "/process_log_test_" + std::to_string(getpid());
  Identity id_;
};

TEST_F(ProcessLogTest, LinesAppearAtOnceInTheNamedFileAndNowhereElse) {
  ASSERT_TRUE(OpenLog(id_, "test").ok());
  LOG(INFO) << "first line";
  EXPECT_THAT(Read(id_.log_dir + "/serverlog.2"), HasSubstr("first line\n"));
  ASSERT_TRUE(OpenLog(id_, "test").ok());
  LOG(INFO) << "second line";
  const std::string text = Read(id_.log_dir + "/serverlog.2");
  EXPECT_THAT(text, HasSubstr("first line\n")) << "reopening must append";
  EXPECT_EQ(text.find("second line"), text.rfind("second line")) << "the line was written twice";
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(id_.log_dir))
    ++files;
  EXPECT_EQ(files, 1);
}

TEST_F(ProcessLogTest, TextOfAPeerNeitherForgesALineNorCommandsATerminal) {
  ASSERT_TRUE(OpenLog(id_, "test").ok());
  LOG(INFO) << "a peer says \x1b[2J\nI20260101 forged";
  const std::string text = Read(id_.log_dir + "/serverlog.2");
  EXPECT_THAT(text, HasSubstr("a peer says \\x1b[2J\n    I20260101 forged\n"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST_F(ProcessLogTest, WithoutTlsTheLogSaysOnceThatNobodyIsVerified) {
  ASSERT_EQ(InChild([this] {
              if (!OpenLog(id_, "test").ok() || !OpenLog(id_, "test").ok()) return 1;
              return 0;
            }),
            0);
  const std::string text = Read(id_.log_dir + "/serverlog.2");
  EXPECT_NE(text.find("without TLS"), std::string::npos);
  EXPECT_EQ(text.find("without TLS"), text.rfind("without TLS"));
}

TEST_F(ProcessLogTest, TheAuditLogIsAFileBesideTheLog) {
  ASSERT_TRUE(OpenLog(id_, "test").ok());
  const auto audit = OpenAuditLog(id_, Clock::Real(), Env::Real());
  ASSERT_TRUE(audit.ok()) << audit.status();
  (*audit)->Refused(CallerOf(PeerIdentity(), "a:1"), "/metrics", RefusalReason::kRole, "");
  EXPECT_THAT(Read(id_.log_dir + "/serveraudit.2"), HasSubstr("\"daemon\": \"pserver 2\""));
  EXPECT_EQ((*audit)->role(), "pserver");
}

TEST_F(ProcessLogTest, LogAndTellAlsoWritesTheLineToTheTerminalOnce) {
  ASSERT_TRUE(OpenLog(id_, "test").ok());
  ::testing::internal::CaptureStderr();
  LogAndTell("computes on a GPU");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "computes on a GPU\n");
  EXPECT_THAT(Read(id_.log_dir + "/serverlog.2"), HasSubstr("computes on a GPU\n"));
}

TEST_F(ProcessLogTest, APersonIsToldOfTheStartOfWarningsAndOfTheEnd) {
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(OpenLog(id_, "test").ok());
  LOG(INFO) << "waiting for the scheduler";
  LOG(INFO) << kReadyMark << "registered";
  LOG(INFO) << "later";
  LOG(WARNING) << "trouble";
  LogAndTell("the end");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "sluice-pserver 2: logs in " + id_.log_dir +
                "/serverlog.2\nwaiting for the scheduler\nready: registered\ntrouble\nthe end\n");
  EXPECT_THAT(Read(id_.log_dir + "/serverlog.2"), HasSubstr("later\n"));
}

TEST_F(ProcessLogTest, LogOfALivingProcessIsNotTouched) {
  const std::string path = id_.log_dir + "/serverlog.2";
  int locked[2], over[2];
  ASSERT_EQ(pipe(locked), 0);
  ASSERT_EQ(pipe(over), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    close(over[1]);
    const bool ok = OpenLog(id_, "test").ok() && write(locked[1], "x", 1) == 1;
    char byte;
    _exit(ok && read(over[0], &byte, 1) == 0 ? 0 : 1);
  }
  char byte;
  ASSERT_EQ(read(locked[0], &byte, 1), 1);
  const std::string before = Read(path);
  EXPECT_EQ(InChild([this] {
              const absl::Status refused = OpenLog(id_, "test");
              return ExitCodeOf(refused) == 2 && absl::IsAlreadyExists(refused) ? 0 : 1;
            }),
            0);
  EXPECT_EQ(InChild([this] {
              id_.rank = 3;
              return OpenLog(id_, "test").ok() ? 0 : 1;
            }),
            0)
      << "another rank has a log of its own";
  EXPECT_EQ(Read(path), before);
  close(over[1]);
  int status = -1;
  ASSERT_EQ(waitpid(owner, &status, 0), owner);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(InChild([this] { return OpenLog(id_, "test").ok() ? 0 : 1; }), 0);
}

TEST_F(ProcessLogTest, LogIsBoundedAndBeginsWithWhoWrites) {
  ASSERT_EQ(InChild([this] {
              LogLimits limits;
              limits.max_mb = 1;
              limits.keep = 2;
              if (!OpenLog(id_, "test", limits).ok()) return 1;
              for (int i = 0; i < 40; ++i) LOG(INFO) << std::string(100'000, 'x');
              return 0;
            }),
            0);
  const std::string path = id_.log_dir + "/serverlog.2";
  EXPECT_LE(std::filesystem::file_size(path), 1u << 20);
  EXPECT_LE(std::filesystem::file_size(path + ".1"), 1u << 20);
  EXPECT_FALSE(std::filesystem::exists(path + ".2"));
  ASSERT_EQ(InChild([this] {
              id_.rank = 5;
              return OpenLog(id_, "test").ok() ? 0 : 1;
            }),
            0);
  const std::string text = Read(id_.log_dir + "/serverlog.5");
  EXPECT_TRUE(IsLogStart(text.substr(0, text.find('\n')))) << text;
}

TEST_F(ProcessLogTest, LogContinuesInANewFileWhenTheOldOneWasMoved) {
  ASSERT_EQ(InChild([this] {
              const std::string path = id_.log_dir + "/serverlog.2";
              if (!OpenLog(id_, "test").ok()) return 1;
              std::filesystem::rename(path, path + ".moved");
              LOG(INFO) << "before";
              ReopenLog();
              LOG(INFO) << "after";
              return 0;
            }),
            0);
  const std::string path = id_.log_dir + "/serverlog.2";
  EXPECT_THAT(Read(path + ".moved"), HasSubstr("before\n"));
  EXPECT_THAT(Read(path), HasSubstr("after\n"));
}

TEST_F(ProcessLogTest, UnusableFolderIsRefusedWithItsNameAndTheFix) {
  std::filesystem::create_directories(root_);
  std::ofstream(root_ + "/file") << "in the way";
  id_.log_dir = root_ + "/file/x";
  EXPECT_THAT(std::string(OpenLog(id_, "test").message()), HasSubstr(id_.log_dir));
  EXPECT_THAT(std::string(OpenLog(id_, "test").message()), HasSubstr("--log_dir"));
}

}  // namespace
}  // namespace sluice
