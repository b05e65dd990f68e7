#include "common/security/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/security/recorded_audit.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kSubmit[] = "/sluice.Scheduler/SubmitJob";

PeerIdentity Worker(const std::string& name) {
  PeerIdentity peer;
  peer.verified = true;
  peer.role = PeerRole::kWorker;
  peer.name = name;
  return peer;
}

using Line = std::map<std::string, std::string>;

// Reads a JSON object of strings and numbers, strictly. Returns an empty one for anything else.
class FlatJson {
 public:
  static Line Parse(const std::string& text) {
    FlatJson json(text);
    Line line;
    if (!json.Take("{")) return {};
    do {
      const std::string key = json.String();
      if (key.empty() || !json.Take(": ") || line.count(key) > 0) return {};
      line[key] = json.rest_.rfind('"', 0) == 0 ? json.String() : json.Number();
    } while (json.Take(", "));
    return json.Take("}") && json.rest_.empty() && json.good_ ? line : Line();
  }

 private:
  explicit FlatJson(std::string text) : rest_(std::move(text)) {}

  bool Take(const std::string& token) {
    if (rest_.rfind(token, 0) != 0) return false;
    rest_.erase(0, token.size());
    return true;
  }
  std::string Number() {
    const std::string digits = rest_.substr(0, rest_.find_first_not_of("0123456789"));
    good_ = good_ && Take(digits) && !digits.empty();
    return digits;
  }
  std::string String() {
    std::string value;
    good_ = Take("\"") && good_;
    while (good_ && !Take("\"")) {
      const bool escaped = Take("\\");
      const char c = rest_.empty() ? '\0' : rest_[0];
      const bool known = c == '"' || c == '\\' || c == 'n' || c == 't';
      good_ = escaped ? known : static_cast<unsigned char>(c) >= 0x20;
      value += escaped && c == 'n' ? '\n' : escaped && c == 't' ? '\t' : c;
      rest_.erase(0, 1);
    }
    return value;
  }

  std::string rest_;
  bool good_ = true;
};

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() {
    std::string pattern = testing::TempDir() + "/audit_log_test.XXXXXX";
    folder_ = mkdtemp(pattern.data());
    options_.path = folder_ + "/scheduleraudit.0";
    options_.role = "scheduler";
    options_.clock = &clock_;
    options_.env = &env_;
    env_.before = [this](const std::string&, const std::string&) { return disk_; };
  }
  ~AuditLogTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<AuditLog> Open() {
    auto log = AuditLog::Open(options_);
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  void Refuse(AuditLog* log, const std::string& name = "3", const std::string& method = kSubmit) {
    log->Refused(CallerOf(Worker(name), "10.0.0.7:5123"), method, RefusalReason::kRole, "detail");
  }
  std::string Text(const std::string& suffix = "") {
    auto text = Env::Real()->ReadFile(options_.path + suffix);
    return text.ok() ? *std::move(text) : "";
  }
  // The lines of the file.
  std::vector<Line> Lines(const std::string& suffix = "") {
    std::vector<Line> lines;
    const std::vector<std::string> texts = absl::StrSplit(Text(suffix), '\n', absl::SkipEmpty());
    for (const std::string& text : texts) {
      lines.push_back(FlatJson::Parse(text));
      EXPECT_FALSE(lines.back().empty()) << text;
    }
    return lines;
  }
  static std::string Value(const Line& line, const std::string& key) {
    const auto it = line.find(key);
    return it == line.end() ? "no " + key : it->second;
  }

  std::string folder_;
  FakeClock clock_{absl::FromUnixMillis(1000)};
  HookedEnv env_;
  absl::Status disk_;  // what changes of files return
  AuditLog::Options options_;
};

TEST_F(AuditLogTest, ARefusalNamesCallerMethodAndReason) {
  Refuse(Open().get());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(Value(lines[0], "time"), "1970-01-01T00:00:01.000000Z");
  EXPECT_EQ(Value(lines[0], "daemon"), "scheduler 0");
  EXPECT_EQ(Value(lines[0], "event"), "refusal");
  EXPECT_EQ(Value(lines[0], "method"), kSubmit);
  EXPECT_EQ(Value(lines[0], "reason"), "role");
  EXPECT_EQ(Value(lines[0], "role"), "worker");
  EXPECT_EQ(Value(lines[0], "name"), "3");
  EXPECT_EQ(Value(lines[0], "address"), "10.0.0.7:5123");
  EXPECT_EQ(Value(lines[0], "detail"), "detail");
}

TEST_F(AuditLogTest, AnActionNamesCallerTargetAndOutcome) {
  Open()->Acted(CallerOf(PeerIdentity(), "127.0.0.1:9"), AuditedAction::kCancel, "adult-1",
                absl::NotFoundError("there is no job adult-1"));
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(Value(lines[0], "event"), "action");
  EXPECT_EQ(Value(lines[0], "action"), "cancel");
  EXPECT_EQ(Value(lines[0], "target"), "adult-1");
  EXPECT_EQ(Value(lines[0], "outcome"), "NOT_FOUND");
  EXPECT_EQ(Value(lines[0], "role"), "unverified");
  EXPECT_EQ(Value(lines[0], "address"), "127.0.0.1:9");
}

TEST_F(AuditLogTest, CallersWithoutACertificateHaveTheRoleNone) {
  EXPECT_EQ(CallerOf(absl::PermissionDeniedError("no certificate"), "a:1").role, "none");
  EXPECT_EQ(CallerOf(PeerIdentity(), "a:1").role, "unverified");
  EXPECT_EQ(CallerOf(Worker("3"), "a:1").role, "worker");
}

TEST_F(AuditLogTest, TextOfPeersStaysOnItsLineAndIsCut) {
  const auto log = Open();
  const std::string forged = "3\"}\n{\"event\": \"action\"}\n\x01\xff\x1b[2J";
  Refuse(log.get(), forged, std::string("/x\n\0y", 5));
  Refuse(log.get(), std::string(100000, '\x01'));
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(Value(lines[0], "event"), "refusal");
  EXPECT_EQ(Value(lines[0], "name"), "3\"}\n{\"event\": \"action\"}\n\\x01\\xff\\x1b[2J");
  EXPECT_EQ(Value(lines[0], "method"), "/x\n\\x00y");
  EXPECT_LT(Text().size(), 8000);
}

TEST_F(AuditLogTest, AFloodIsCountedAndSummarized) {
  options_.burst = 3;
  const auto log = Open();
  for (int i = 0; i < 1000; ++i) Refuse(log.get());
  EXPECT_EQ(Lines().size(), 3);
  clock_.Advance(absl::Seconds(1));
  Refuse(log.get());
  Refuse(log.get());
  auto lines = Lines();
  ASSERT_EQ(lines.size(), 5);
  EXPECT_EQ(Value(lines[3], "event"), "left_out");
  EXPECT_EQ(Value(lines[3], "refusals"), "997");
  EXPECT_EQ(Value(lines[3], "actions"), "0");
  EXPECT_EQ(Value(lines[4], "event"), "refusal");
  log->Flush();
  log->Flush();
  lines = Lines();
  ASSERT_EQ(lines.size(), 6);
  EXPECT_EQ(Value(lines[5], "refusals"), "1");
  EXPECT_THAT(log->counts().refusals, ElementsAre(Pair(Pair(kSubmit, "role"), 1002)));
  clock_.Advance(absl::Hours(1));
  for (int i = 0; i < 10; ++i) Refuse(log.get());
  EXPECT_EQ(Lines().size(), 9) << "an hour allows no more than a burst";
}

TEST_F(AuditLogTest, AFloodOfRefusalsHidesNoAction) {
  options_.burst = 3;
  const auto log = Open();
  for (int i = 0; i < 10; ++i) Refuse(log.get());
  log->Acted(CallerOf(PeerIdentity(), "a:1"), AuditedAction::kShutdown, "", absl::OkStatus());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 5);
  EXPECT_EQ(Value(lines[3], "refusals"), "7");
  EXPECT_EQ(Value(lines[4], "action"), "shutdown");
  EXPECT_EQ(log->counts().actions["shutdown"], 1);
}

TEST_F(AuditLogTest, AFloodOfStrangersHidesNoRefusalOfAMemberAndFillsNoFileSoon) {
  options_.burst = 3;
  const auto log = Open();
  const AuditedCaller stranger = CallerOf(absl::PermissionDeniedError(""), "a:1");
  for (int i = 0; i < 3600; ++i) {
    log->Refused(stranger, kHandshakeMethod, RefusalReason::kHandshake, "no certificate");
    log->Refused(stranger, kConnectMethod, RefusalReason::kRoom, "");
    log->Refused(stranger, kSubmit, RefusalReason::kCertificate, "");
    // An admin port refuses a POST before it asks for a certificate.
    log->Refused(stranger, "/metrics", RefusalReason::kInvalid, "");
    log->LeftOut(stranger, "/metrics", RefusalReason::kInvalid);
    clock_.Advance(absl::Seconds(1));
  }
  // A line each minute, each with one about those that were left out before.
  EXPECT_LT(Lines().size(), 3 + 2 * 61);
  Refuse(log.get());
  auto lines = Lines();
  EXPECT_EQ(Value(lines.back(), "reason"), "role");
  EXPECT_EQ(Value(lines[lines.size() - 2], "event"), "left_out");
  EXPECT_NE(Value(lines[lines.size() - 2], "strangers"), "0");
  EXPECT_EQ(Value(lines[lines.size() - 2], "refusals"), "0") << "no member's line is missing";
  const size_t before = lines.size();
  log->LeftOut(CallerOf(Worker("3"), "a:1"), kSubmit, RefusalReason::kRole);
  EXPECT_EQ(Lines().size(), before);
  log->Flush();
  lines = Lines();
  EXPECT_EQ(Value(lines.back(), "refusals"), "1");
  EXPECT_EQ(Value(lines.back(), "strangers"), "0");
  EXPECT_EQ((log->counts().refusals[{kSubmit, "role"}]), 2u);
  EXPECT_EQ((log->counts().refusals[{"/metrics", "invalid"}]), 7200u);
}

TEST_F(AuditLogTest, AMemberIsNoStrangerBeforeItNamesAMethod) {
  options_.burst = 3;
  const auto log = Open();
  for (int i = 0; i < 10; ++i)
    log->Refused(CallerOf(absl::PermissionDeniedError(""), "a:1"), kRequestMethod,
                 RefusalReason::kInvalid, "");
  log->Refused(CallerOf(Worker("3"), "b:1"), kRequestMethod, RefusalReason::kInvalid, "");
  EXPECT_EQ(Value(Lines().back(), "name"), "3");
}

TEST_F(AuditLogTest, WithoutTlsConnectionsHideNoRefusedCall) {
  options_.burst = 3;
  const auto log = Open();
  const AuditedCaller unverified = CallerOf(PeerIdentity(), "a:1");
  for (int i = 0; i < 10; ++i) {
    log->Refused(unverified, kConnectMethod, RefusalReason::kRoom, "");
    log->Refused(unverified, kRequestMethod, RefusalReason::kInvalid, "");
  }
  log->Refused(unverified, kSubmit, RefusalReason::kPath, "");
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 5);
  EXPECT_EQ(Value(lines[3], "strangers"), "17");
  EXPECT_EQ(Value(lines[4], "reason"), "path");
}

TEST_F(AuditLogTest, AFloodOfTakeoversHidesNoOrder) {
  options_.burst = 3;
  const auto log = Open();
  const AuditedCaller caller = CallerOf(PeerIdentity(), "a:1");
  for (int i = 0; i < 10; ++i)
    log->Acted(caller, AuditedAction::kTakeover, "worker 0", absl::OkStatus());
  log->Acted(caller, AuditedAction::kCancel, "job-1", absl::OkStatus());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 5);
  EXPECT_EQ(Value(lines[3], "actions"), "7");
  EXPECT_EQ(Value(lines[4], "action"), "cancel");
}

TEST_F(AuditLogTest, WhatWasLeftOutIsWrittenWhenTheLogCloses) {
  options_.burst = 1;
  for (int i = 0; i < 2; ++i) {
    const auto log = Open();
    Refuse(log.get());
    Refuse(log.get());
  }
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(Value(lines[3], "refusals"), "1");
}

TEST_F(AuditLogTest, MethodsWithoutARuleShareOneCount) {
  const auto log = Open();
  Refuse(log.get(), "3", "/sluice.Scheduler/Nothing1");
  Refuse(log.get(), "3", "/sluice.Scheduler/Nothing2");
  Refuse(log.get(), "3", "/metrics");
  log->Refused(CallerOf(absl::PermissionDeniedError(""), "a:1"), kHandshakeMethod,
               RefusalReason::kHandshake, "");
  EXPECT_THAT(log->counts().refusals, ElementsAre(Pair(Pair("/metrics", "role"), 1),
                                                  Pair(Pair("handshake", "handshake"), 1),
                                                  Pair(Pair("other", "no_rule"), 2)));
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(Value(lines[1], "method"), "/sluice.Scheduler/Nothing2");
}

TEST_F(AuditLogTest, FilesAreRenamedAndTheirSizeIsBounded) {
  options_.max_file_bytes = 1000;
  options_.max_files = 3;
  options_.burst = 1000;
  const auto log = Open();
  for (int i = 0; i < 100; ++i) Refuse(log.get(), absl::StrCat(i));
  uint64_t bytes = 0;
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    EXPECT_LE(file.file_size(), 1000) << file.path();
    struct stat info;
    ASSERT_EQ(stat(file.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600) << file.path();
    bytes += file.file_size();
    ++files;
  }
  ASSERT_EQ(files, 3);
  EXPECT_GT(bytes, 2000);
  EXPECT_EQ(Value(Lines().back(), "name"), "99");
  const int first = std::stoi(Value(Lines()[0], "name"));
  EXPECT_EQ(Value(Lines(".1").back(), "name"), absl::StrCat(first - 1));
  EXPECT_EQ(Value(Lines(".2").back(), "name"),
            absl::StrCat(std::stoi(Value(Lines(".1")[0], "name")) - 1));
  EXPECT_EQ(log->counts().lost_lines, 0);
}

TEST_F(AuditLogTest, AFileThatIsMovedAwayIsMadeAgain) {
  const auto log = Open();
  Refuse(log.get());
  std::filesystem::rename(options_.path, folder_ + "/moved");
  Refuse(log.get());
  EXPECT_EQ(Lines().size(), 1);
}

TEST_F(AuditLogTest, LinesThatCannotBeWrittenAreCountedAndToldOnce) {
  std::vector<std::string> told;
  options_.log = [&](const std::string& line) { told.push_back(line); };
  const auto log = Open();
  disk_ = absl::ResourceExhaustedError("the disk is full");
  Refuse(log.get());
  Refuse(log.get());
  EXPECT_EQ(log->counts().lost_lines, 2);
  EXPECT_THAT(told, ElementsAre(HasSubstr("the disk is full")));
  EXPECT_THAT(log->counts().refusals, ElementsAre(Pair(Pair(kSubmit, "role"), 2)));
  // A part of the lost line is in the file.
  ASSERT_TRUE(Env::Real()->AppendToFile(options_.path, "{\"time\": ").ok());
  disk_ = absl::OkStatus();
  Refuse(log.get());
  EXPECT_EQ(told.size(), 2);
  const std::vector<std::string> lines = absl::StrSplit(Text(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0], "{\"time\": ");
  EXPECT_THAT(lines[1], HasSubstr("\"refusal\""));
  EXPECT_EQ(log->counts().lost_lines, 2);
}

TEST_F(AuditLogTest, AFullFileThatCannotBeRenamedDoesNotGrow) {
  options_.max_file_bytes = 500;
  options_.burst = 1000;
  const auto log = Open();
  env_.before = [](const std::string& what, const std::string&) {
    return what == "rename" ? absl::InternalError("no") : absl::OkStatus();
  };
  for (int i = 0; i < 100; ++i) Refuse(log.get());
  EXPECT_LE(Text().size(), 500);
  EXPECT_GT(log->counts().lost_lines, 90);
}

TEST_F(AuditLogTest, AFileThatCannotBeMadeIsRefusedAtTheStart) {
  options_.path = folder_ + "/nothing/audit";
  options_.env = Env::Real();
  const auto log = AuditLog::Open(options_);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(log.status().message()), HasSubstr(options_.path));
}

TEST_F(AuditLogTest, LinesSurviveTheDeathOfTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const auto log = AuditLog::Open(options_);
    Refuse(log->get());
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Lines().size(), 1);
}

TEST_F(AuditLogTest, ManyThreadsLoseNoLineWhileFilesAreRenamed) {
  options_.env = Env::Real();
  options_.burst = 10000;
  options_.max_file_bytes = 20000;
  options_.max_files = 100;
  const auto log = Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) Refuse(log.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  size_t lines = Lines().size();
  for (int i = 1; i < 100; ++i) lines += Lines(absl::StrCat(".", i)).size();
  EXPECT_EQ(lines, 800);
  EXPECT_EQ(log->counts().lost_lines, 0);
}

TEST(AuditQueueTest, WhatWaitsIsWrittenAtTheEnd) {
  RecordedAudit audit("pserver");
  {
    AuditQueue queue(audit.log());
    for (int i = 0; i < 100; ++i)
      queue.Refused({"none", "", "10.0.0.1:5"}, kConnectMethod, RefusalReason::kRoom, "a cause");
  }
  EXPECT_EQ(audit.Refusals(kConnectMethod, "room"), 100u);
  EXPECT_THAT(audit.Text(), HasSubstr("\"address\": \"10.0.0.1:5\", \"detail\": \"a cause\""));
}

TEST(AuditQueueTest, RefusalsThatComeTooFastAreCounted) {
  RecordedAudit audit("pserver");
  constexpr uint64_t kSent = 20'000;
  {
    AuditQueue queue(audit.log());
    for (uint64_t i = 0; i < kSent; ++i)
      queue.Refused({"none", "", "10.0.0.1:5"}, kConnectMethod, RefusalReason::kRoom, "a cause");
  }
  EXPECT_EQ(audit.Refusals(kConnectMethod, "room"), kSent);
  audit.log()->Flush();
  EXPECT_THAT(audit.Text(), HasSubstr("\"event\": \"left_out\", \"refusals\": 0, \"strangers\": "));
}

}  // namespace
}  // namespace sluice
