#include "cli/cluster/child_process.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/time/time.h"
#include "cli/cluster/local_cluster.h"
#include "cli/cluster/log_files.h"
#include "cli/jobs/endpoints.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/base/fake_clock.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ChildProcessTest : public ::testing::Test {
 protected:
  ChildProcessTest() { std::filesystem::create_directories(folder_); }
  ~ChildProcessTest() override { std::filesystem::remove_all(folder_); }
  ChildProcess Shell(const std::string& script) {
    ChildOptions options;
    options.name = "shell";
    options.argv = {"/bin/sh", "-c", script};
    options.log_file = folder_ + "/log";
    auto child = ChildProcess::Start(std::move(options));
    EXPECT_TRUE(child.ok()) << child.status();
    return *std::move(child);
  }
  // Returns false when the child still runs after `most`.
  static bool Ends(ChildProcess* child, absl::Duration most = absl::Seconds(20)) {
    const absl::Time deadline = Clock::Real()->Now() + most;
    while (!child->Poll().has_value()) {
      if (Clock::Real()->Now() >= deadline) return false;
      Clock::Real()->Sleep(absl::Milliseconds(10));
    }
    return true;
  }

  const std::string folder_ =
      ::testing::TempDir() + "/child_process_test_" + std::to_string(getpid());
};

TEST_F(ChildProcessTest, ExitAndOutputAreSeen) {
  ChildProcess child = Shell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(Ends(&child));
  EXPECT_EQ(DescribeExit(*child.Poll()), "exited with code 3");
  EXPECT_THAT(TailOfLog(folder_ + "/log", 10), AllOf(HasSubstr("out"), HasSubstr("err")));
}

TEST_F(ChildProcessTest, WhatEarlierProcessesLoggedIsNotItsOwn) {
  ChildProcess loud = Shell("echo out");
  ASSERT_TRUE(Ends(&loud));
  EXPECT_TRUE(loud.HasLogged());
  ChildProcess quiet = Shell("exit 3");
  ASSERT_TRUE(Ends(&quiet));
  EXPECT_FALSE(quiet.HasLogged());
}

TEST_F(ChildProcessTest, ItsEnvironmentIsOursWithoutOurVariablesAndWithItsOwn) {
  setenv("SLUICE_RANK", "7", 1);
  setenv("CHILD_PROCESS_TEST", "ours", 1);
  ChildOptions options;
  options.name = "shell";
  options.argv = {"/bin/sh", "-c", "echo $SLUICE_RANK/$CHILD_PROCESS_TEST/$SLUICE_LOG_DIR/$PATH"};
  options.log_file = folder_ + "/log";
  options.environment = {"CHILD_PROCESS_TEST=its own", "SLUICE_LOG_DIR=d"};
  auto child = ChildProcess::Start(std::move(options));
  unsetenv("SLUICE_RANK");
  unsetenv("CHILD_PROCESS_TEST");
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE(Ends(&*child));
  EXPECT_THAT(TailOfLog(folder_ + "/log", 10), HasSubstr("/its own/d/"));
  EXPECT_THAT(TailOfLog(folder_ + "/log", 10), testing::Not(HasSubstr("7/")));
}

TEST_F(ChildProcessTest, OnlyAnInteractiveChildHasOurInputAndProcessGroup) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const int before = dup(STDIN_FILENO);
  dup2(pipe_fds[0], STDIN_FILENO);
  ASSERT_EQ(write(pipe_fds[1], "typed\n", 6), 6);
  close(pipe_fds[1]);
  for (const bool interactive : {false, true}) {
    ChildOptions options;
    options.name = "shell";
    options.argv = {"/bin/sh", "-c",
                    "read line; echo \"read: $line.\" group: $(ps -o pgid= -p $$)."};
    options.log_file = folder_ + (interactive ? "/interactive" : "/plain");
    options.interactive = interactive;
    auto child = ChildProcess::Start(std::move(options));
    ASSERT_TRUE(child.ok()) << child.status();
    ASSERT_TRUE(Ends(&*child));
  }
  dup2(before, STDIN_FILENO);
  close(before);
  close(pipe_fds[0]);
  EXPECT_THAT(TailOfLog(folder_ + "/plain", 10), HasSubstr("read: ."));
  EXPECT_THAT(TailOfLog(folder_ + "/interactive", 10), HasSubstr("read: typed."));
  const std::string group = std::to_string(getpgrp());
  EXPECT_THAT(TailOfLog(folder_ + "/interactive", 10), HasSubstr(group + "."));
  EXPECT_THAT(TailOfLog(folder_ + "/plain", 10), testing::Not(HasSubstr(group + ".")));
}

TEST_F(ChildProcessTest, SignalIsNamedAndEndedChildGetsNoMoreSignals) {
  ChildProcess child = Shell("exec sleep 20");
  EXPECT_FALSE(child.Poll().has_value());
  child.Signal(SIGKILL);
  ASSERT_TRUE(Ends(&child));
  EXPECT_EQ(DescribeExit(*child.Poll()), "was killed by signal 9 (Killed)");
  child.Signal(SIGKILL);
}

TEST_F(ChildProcessTest, BlockedSignalsAndSluiceVariablesAreNotPassedOn) {
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, &old);
  setenv("SLUICE_RANK", "7", 1);
  ChildProcess child = Shell("echo \"rank=$SLUICE_RANK.\"; kill -TERM $$; exit 0");
  unsetenv("SLUICE_RANK");
  sigprocmask(SIG_SETMASK, &old, nullptr);
  ASSERT_TRUE(Ends(&child));
  EXPECT_EQ(DescribeExit(*child.Poll()), "was killed by signal 15 (Terminated)");
  EXPECT_THAT(TailOfLog(folder_ + "/log", 10), HasSubstr("rank=."));
}

TEST_F(ChildProcessTest, MissingBinaryIsNamed) {
  ChildOptions options;
  options.argv = {folder_ + "/sluice-nothing"};
  options.log_file = folder_ + "/log";
  const auto child = ChildProcess::Start(std::move(options));
  EXPECT_EQ(child.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(child.status().message()), HasSubstr("sluice-nothing"));
}

TEST_F(ChildProcessTest, EndpointsAreReadAndMalformedLinesSkipped) {
  std::ofstream(folder_ + "/endpoints.log") << "# role rank address pid admin_address\n"
                                            << "scheduler 0 127.0.0.1:7000 11 127.0.0.1:9\n"
                                            << "worker 1 - 12 -\n"
                                            << "nonsense\nworker x - 12 -\nworker 0 - -5 -\n"
                                            << "pserver 0 127.0.0.1:70";
  const std::vector<Endpoint> endpoints = ReadEndpoints(folder_);
  ASSERT_EQ(endpoints.size(), 2);
  EXPECT_EQ(endpoints[0].address, "127.0.0.1:7000");
  EXPECT_EQ(endpoints[0].admin_address, "127.0.0.1:9");
  EXPECT_EQ(endpoints[1].rank, 1);
  EXPECT_EQ(endpoints[1].address, "");
  Endpoint self{"worker", 0, "", getpid(), ""};
  EXPECT_FALSE(IsAlive(self)) << "the pid belongs to another program";
}

TEST_F(ChildProcessTest, SchedulerComesFromFlagThenVariableThenFile) {
  CommandSpec spec;
  spec.flags = AddressFlags();
  const auto find = [&](std::vector<std::string> args) {
    args.push_back("--log_dir=" + folder_);
    return FindScheduler(*ParseCommand(spec, args));
  };
  unsetenv("SLUICE_SCHEDULER");
  EXPECT_THAT(std::string(find({}).status().message()), HasSubstr("--scheduler"));
  std::ofstream(folder_ + "/endpoints.log") << "scheduler 0 127.0.0.1:7000 11 -\n";
  EXPECT_EQ(*find({}), "127.0.0.1:7000");
  setenv("SLUICE_SCHEDULER", "127.0.0.1:7001", 1);
  EXPECT_EQ(*find({}), "127.0.0.1:7001");
  EXPECT_EQ(*find({"--scheduler=127.0.0.1:7002"}), "127.0.0.1:7002");
  EXPECT_FALSE(find({"--scheduler=nonsense"}).ok());
  unsetenv("SLUICE_SCHEDULER");
}

TEST_F(ChildProcessTest, EndedSchedulerIsReportedAsUnavailable) {
  FakeClock clock;
  CommandSpec spec;
  spec.flags = AddressFlags();
  const auto find = [&](std::vector<std::string> args) {
    args.push_back("--log_dir=" + folder_);
    return FindRunningScheduler(*ParseCommand(spec, args), &clock);
  };
  // The pid is that of this process, which is not a scheduler.
  std::ofstream(folder_ + "/endpoints.log") << "scheduler 0 127.0.0.1:7000 " << getpid() << " -\n";
  EXPECT_EQ(find({}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(find({}).status().message()),
              AllOf(HasSubstr("127.0.0.1:7000"), HasSubstr(folder_ + "/endpoints.log"),
                    HasSubstr("sluice up")));
  EXPECT_EQ(*find({"--scheduler=127.0.0.1:7000"}), "127.0.0.1:7000");
  std::ofstream(folder_ + "/endpoints.log") << "scheduler 0 10.0.0.1:7000 " << getpid() << " -\n";
  EXPECT_EQ(*find({}), "10.0.0.1:7000") << "another host's pids are unknown here";
}

}  // namespace
}  // namespace sluice::cli
