#include "cli/hosts/host_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/hosts/guard_message.h"

namespace sluice::cli {
namespace {

constexpr int kLinesOfDaemon = 30'000;

// The daemon of the test below.
TEST(HostGuardTest, DISABLED_DaemonThatLogsMuch) {
  std::signal(SIGTERM, SIG_IGN);  // it writes all of them
  for (int i = 0; i < kLinesOfDaemon; ++i)
    std::printf("much %d %s\n", i, std::string(60, 'x').c_str());
}

TEST(HostGuardTest, TheLastLinesArriveThoughTheLauncherReadsSlowly) {
  int in[2], out[2];
  ASSERT_EQ(pipe2(in, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  std::thread guard([&] {
    EXPECT_TRUE(RunHostGuard(in[0], out[1]).ok());
    close(out[1]);
  });
  const std::string name = std::filesystem::read_symlink("/proc/self/exe").filename().string();
  const std::string start =
      Encode({1,
              "start",
              {"d", "log.0", "0", "0", "127.0.0.1", name, "--gtest_also_run_disabled_tests",
               "--gtest_filter=HostGuardTest.DISABLED_DaemonThatLogsMuch"}});
  ASSERT_EQ(write(in[1], start.data(), start.size()), static_cast<ssize_t>(start.size()));
  LineCutter cutter;
  bool closed = false;
  int seen = 0;
  std::vector<char> bytes(4096);
  for (;;) {
    const ssize_t n = read(out[0], bytes.data(), bytes.size());
    if (n <= 0) break;
    for (const std::string& line : cutter.Take({bytes.data(), static_cast<size_t>(n)})) {
      const auto message = ParseGuardMessage(line);
      ASSERT_TRUE(message.ok()) << line;
      if (message->verb != "log" || message->fields[1].rfind("much ", 0) != 0) continue;
      ++seen;
      // The launcher leaves while most lines wait for room in the pipe.
      if (!closed) close(in[1]);
      closed = true;
    }
  }
  guard.join();
  close(in[0]);
  close(out[0]);
  EXPECT_EQ(seen, kLinesOfDaemon);
}

// A guard, and the launcher's ends of its pipes.
class TalkingGuard {
 public:
  explicit TalkingGuard(absl::Duration patience = absl::Minutes(9)) {
    EXPECT_EQ(pipe2(in_, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out_, O_CLOEXEC), 0);
    guard_ = std::thread([this, patience] {
      EXPECT_TRUE(RunHostGuard(in_[0], out_[1], patience).ok());
      close(out_[1]);
    });
  }
  ~TalkingGuard() {
    EndInput();
    while (Next().has_value()) {
    }
    guard_.join();
    close(in_[0]);
    close(out_[0]);
  }
  void Send(const GuardMessage& message) {
    const std::string line = Encode(message);
    EXPECT_EQ(write(in_[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  void EndInput() {
    if (in_[1] >= 0) close(in_[1]);
    in_[1] = -1;
  }
  // The next message; none: the guard has ended.
  std::optional<GuardMessage> Next() {
    std::vector<char> bytes(64 << 10);
    while (lines_.empty()) {
      const ssize_t n = read(out_[0], bytes.data(), bytes.size());
      if (n <= 0) return std::nullopt;
      for (std::string& line : cutter_.Take({bytes.data(), static_cast<size_t>(n)}))
        lines_.push_back(std::move(line));
    }
    auto message = ParseGuardMessage(lines_.front());
    EXPECT_TRUE(message.ok()) << lines_.front();
    lines_.pop_front();
    return message.ok() ? std::optional(*std::move(message)) : std::nullopt;
  }
  // The next message with this verb, and what came before it.
  GuardMessage Await(const std::string& verb, std::vector<GuardMessage>* before = nullptr) {
    while (std::optional<GuardMessage> message = Next()) {
      if (message->verb == verb) return *std::move(message);
      if (before != nullptr) before->push_back(*std::move(message));
    }
    ADD_FAILURE() << "the guard has ended without " << verb;
    return {};
  }

 private:
  int in_[2], out_[2];
  LineCutter cutter_;
  std::deque<std::string> lines_;
  std::thread guard_;
};

TEST(HostGuardTest, RunsAProgramOfTheUserWithItsVariables) {
  TalkingGuard guard;
  guard.Send({1,
              "run",
              {"w", "workerlog.0", "1", "2", "ONE=1 2", "TWO=", "sh", "-c",
               "echo \"$ONE,$TWO\"; exit 3"}});
  guard.Send({2, "run", {"w", "workerlog.0", "1", "9", "sh"}});
  guard.Send({3, "run", {"w", "workerlog.0", "1", "0", "no-such-program"}});
  guard.Send({4, "port", {"0", "0"}});
  guard.Send({5, "python", {"/no/python"}});
  std::vector<std::string> verbs(6);
  std::string logged, status, port;
  while (status.empty() || verbs[5].empty()) {
    const std::optional<GuardMessage> message = guard.Next();
    ASSERT_TRUE(message.has_value());
    if (message->tag > 0 && message->tag < verbs.size()) verbs[message->tag] = message->verb;
    if (message->tag == 4) port = message->fields[0];
    if (message->verb == "out") logged = message->fields[1];
    if (message->verb == "ended") status = message->fields[2];
  }
  EXPECT_EQ(verbs, (std::vector<std::string>{"", "ok", "error", "error", "ok", "error"}));
  EXPECT_EQ(logged, "1 2,");
  EXPECT_EQ(status, std::to_string(3 << 8));
  EXPECT_GT(std::stoi(port), 0);
}

uint64_t BytesIn(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

TEST(HostGuardTest, AFloodOfOutputArrivesWholeAndLeavesNothingOnTheDisk) {
  TalkingGuard guard;
  const std::string folder = guard.Await("hello").fields[2];
  constexpr int kFlood = 400'000;
  for (const char* const shown : {"1", "0"}) {
    guard.Send({1,
                "run",
                {"w", "workerlog.0", shown, "0", "sh", "-c",
                 "yes 0123456789012345678901234567890123456789 | head -n 400000"}});
    const char* const verb = *shown == '1' ? "out" : "log";
    std::vector<GuardMessage> before;
    guard.Await("ended", &before);
    EXPECT_EQ(std::count_if(before.begin(), before.end(),
                            [&](const GuardMessage& one) { return one.verb == verb; }),
              kFlood);
    EXPECT_LT(BytesIn(folder), 1 << 20);
  }
}

TEST(HostGuardTest, TheEndOfTheOutputArrivesThoughADescendantHoldsThePipe) {
  TalkingGuard guard;
  guard.Send({1,
              "run",
              {"w", "workerlog.0", "1", "0", "sh", "-c",
               "sleep 1000 & echo $!; yes x | head -n 20000; printf 'the end'"}});
  std::vector<GuardMessage> before;
  guard.Await("ended", &before);
  std::vector<std::string> lines;
  for (const GuardMessage& message : before) {
    if (message.verb == "out") lines.push_back(message.fields[1]);
  }
  ASSERT_EQ(lines.size(), 20002u);
  EXPECT_EQ(lines.back(), "the end");
  kill(std::stoi(lines[0]), SIGKILL);
}

TEST(HostGuardTest, BeatsGoOnWhileAnInterpreterIsSlow) {
  std::string folder = testing::TempDir() + "/host_guard_test.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string fifo = folder + "/fifo", slow = folder + "/python";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::ofstream(slow) << "#!/bin/sh\nread word < " << fifo << "\necho warning\necho $word\n";
  ASSERT_EQ(chmod(slow.c_str(), 0700), 0);
  {
    TalkingGuard guard;
    guard.Send({7, "python", {slow}});
    for (int i = 0; i < 2; ++i) guard.Await("beat");
    // Other requests are answered meanwhile.
    guard.Send({8, "exists", {slow}});
    EXPECT_EQ(guard.Await("ok").tag, 8u);
    std::ofstream(fifo) << "0.1.0\n";
    const GuardMessage answer = guard.Await("ok");
    EXPECT_EQ(answer.tag, 7u);
    EXPECT_EQ(answer.fields, std::vector<std::string>{"0.1.0"});
  }
  {
    TalkingGuard guard(/*patience=*/absl::ZeroDuration());
    guard.Send({9, "python", {slow}});
    const GuardMessage answer = guard.Await("error");
    EXPECT_EQ(answer.tag, 9u);
    EXPECT_NE(answer.fields.at(0).find(slow), std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::cli
