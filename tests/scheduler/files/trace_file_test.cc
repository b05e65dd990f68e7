#include "scheduler/files/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/file_origin.h"
#include "common/base/output_target.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "tests/common/base/planted.h"

namespace sluice {
namespace {

using google::protobuf::Struct;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

class TraceFileTest : public testing::Test {
 protected:
  TraceFileTest() : dir_(testing::TempDir() + "trace_file_test"), path_(dir_ + "/sub/trace.json") {
    std::filesystem::remove_all(dir_);
  }
  std::unique_ptr<TraceFile> Create(uint64_t max_spans = TraceFile::kMaxSpans) {
    auto file = TraceFile::Create(Env::Real(), path_, "job-1", "here", max_spans);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  static TraceReport Report(uint64_t member, Role role, uint64_t number, int spans,
                            int64_t start = 1000) {
    TraceReport report;
    report.member_id = member;
    report.member.set_role(role);
    report.member.set_rank(1);
    report.member.set_pid(7);
    report.member.set_host("here");
    report.received = absl::FromUnixMicros(5000);
    TraceBatch* batch = &report.batch;
    batch->set_number(number);
    batch->set_sent_us(4000);
    batch->add_tracks("training");
    for (int i = 0; i < spans; ++i) {
      batch->add_name(role == ROLE_WORKER ? TraceBatch::STEP : TraceBatch::PUSH);
      batch->add_start_us(i == 0 ? start : 10);
      batch->add_duration_us(5);
      batch->add_track(0);
      batch->add_step(1);
      batch->add_rank(2);
      batch->add_bytes(64);
    }
    return report;
  }
  // Returns the text of the file, which must be JSON.
  Struct Read() {
    Struct json;
    const std::string text = *Env::Real()->ReadFile(path_);
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(text, &json).ok()) << text;
    return json;
  }
  // Returns "name@ts" for each span.
  std::vector<std::string> Spans() {
    std::vector<std::string> spans;
    const Struct json = Read();
    for (const auto& value : json.fields().at("traceEvents").list_value().values()) {
      const auto& event = value.struct_value().fields();
      if (event.at("ph").string_value() != "X") continue;
      spans.push_back(
          absl::StrCat(event.at("name").string_value(), "@", event.at("ts").number_value()));
    }
    return spans;
  }
  std::string Text() { return *Env::Real()->ReadFile(path_); }

  const std::string dir_, path_;
};

TEST_F(TraceFileTest, IsValidJsonAfterEachReport) {
  auto file = Create();
  EXPECT_THAT(Spans(), ElementsAre());
  ASSERT_TRUE(file->Add(Report(11, ROLE_WORKER, 1, 2)).ok());
  EXPECT_THAT(Spans(), ElementsAre("step@1000", "step@1010"));
  ASSERT_TRUE(file->Add(Report(12, ROLE_PSERVER, 1, 1)).ok());
  EXPECT_THAT(Spans(), ElementsAre("step@1000", "step@1010", "push@1000"));
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("\"worker 1 (pid 7 on host here)\""));
  EXPECT_THAT(text, HasSubstr("\"pserver 1 (pid 7 on host here)\""));
  EXPECT_THAT(text, HasSubstr("\"args\": {\"name\": \"training\"}"));
  EXPECT_THAT(text, HasSubstr("\"args\": {\"step\": 2}"));
  EXPECT_THAT(text, HasSubstr("\"args\": {\"sequence\": 1, \"rank\": 2, \"bytes\": 64}"));
  EXPECT_THAT(text, HasSubstr("\"otherData\": {\"job\": \"job-1\", \"spans\": 3, \"dropped\": {}"));
}

TEST_F(TraceFileTest, ARepeatedBatchIsWrittenOnce) {
  auto file = Create();
  for (const uint64_t number : {2, 2, 1, 3, 1, 2}) {
    ASSERT_TRUE(file->Add(Report(11, ROLE_WORKER, number, 1, 1000 * number)).ok());
  }
  EXPECT_THAT(Spans(), ElementsAre("step@2000", "step@1000", "step@3000"));
}

TEST_F(TraceFileTest, TracksAreBoundedInNumberAndLength) {
  auto file = Create();
  TraceReport report = Report(11, ROLE_WORKER, 1, 1);
  for (size_t i = 1; i < TraceFile::kMaxTracks; ++i)
    report.batch.add_tracks(std::string(100000, 'x'));
  ASSERT_TRUE(file->Add(report).ok());
  EXPECT_LT(Text().size(), 400 * TraceFile::kMaxTracks);
  EXPECT_THAT(Text(), HasSubstr("\"" + std::string(TraceFile::kMaxTrackBytes, 'x') + "\""));
  const std::string before = Text();
  report.batch.set_number(2);
  report.batch.add_tracks("one too many");
  EXPECT_EQ(file->Add(report).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Text(), before);
}

TEST_F(TraceFileTest, AMemberThatSkipsNumbersOrReturnsToOldOnesIsBounded) {
  auto file = Create();
  constexpr uint64_t kFar = uint64_t{1} << 63;
  ASSERT_TRUE(file->Add(Report(11, ROLE_WORKER, 5, 1, 5)).ok());
  ASSERT_TRUE(file->Add(Report(11, ROLE_WORKER, kFar, 1, 6)).ok()) << "a restarted scheduler";
  ASSERT_TRUE(file->Add(Report(11, ROLE_WORKER, kFar - 1, 1, 7)).ok()) << "out of order";
  for (const uint64_t number : {uint64_t{5}, uint64_t{6}, kFar, kFar - 1, kFar - 2000})
    ASSERT_TRUE(file->Add(Report(11, ROLE_WORKER, number, 1, 8)).ok());
  EXPECT_THAT(Spans(), ElementsAre("step@5", "step@6", "step@7"));
}

TEST_F(TraceFileTest, ALinkIsReplacedAndNotFollowed) {
  ASSERT_TRUE(Env::Real()->MakeDirs(dir_ + "/sub").ok());
  ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/outside", {"kept"}).ok());
  std::filesystem::create_symlink(dir_ + "/outside", path_);
  ASSERT_TRUE(Create()->Add(Report(11, ROLE_WORKER, 1, 1)).ok());
  EXPECT_THAT(Spans(), ElementsAre("step@1000"));
  EXPECT_FALSE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(*Env::Real()->ReadFile(dir_ + "/outside"), "kept");
}

TEST_F(TraceFileTest, WhatHasTheUnfinishedNameIsNotTruncated) {
  ASSERT_TRUE(Env::Real()->MakeDirs(dir_ + "/sub").ok());
  Planted planted(dir_ + "/victim");
  const auto name = [this](const char* number) {
    return UnfinishedName(absl::StrCat(path_, ".job-1", number));
  };
  planted.HardLink(name(""));
  planted.Link(name("-1"));
  planted.Pipe(name("-2"));
  std::filesystem::create_directory(name("-3"));
  ASSERT_TRUE(Env::Real()->WriteFile(name("-4"), {"of somebody else"}).ok());
  const auto before = *Env::Real()->List(dir_ + "/sub");
  ASSERT_TRUE(Create()->Add(Report(11, ROLE_WORKER, 1, 1)).ok());
  EXPECT_THAT(Spans(), ElementsAre("step@1000"));
  EXPECT_TRUE(planted.VictimIsUnchanged());
  EXPECT_THAT(*Env::Real()->List(dir_ + "/sub"), IsSupersetOf(before));
  EXPECT_EQ(*Env::Real()->ReadFile(name("-4")), "of somebody else");
}

// A scheduler has the same pid in each of its lives in a container.
TEST_F(TraceFileTest, WhatAKilledSchedulerHasLeftIsReplaced) {
  ASSERT_TRUE(Create()->Add(Report(11, ROLE_WORKER, 1, 1)).ok());
  const std::string left = UnfinishedName(path_ + ".job-1");
  ASSERT_TRUE(Env::Real()->WriteFile(left, {Text()}).ok());
  ASSERT_TRUE(Create()->Add(Report(11, ROLE_WORKER, 1, 1, 7)).ok());
  EXPECT_THAT(Spans(), ElementsAre("step@7"));
  EXPECT_EQ(Env::Real()->List(dir_ + "/sub")->size(), 1u);
}

// As of a process with the same pid in another container.
TEST_F(TraceFileTest, AnUnfinishedTraceOfALivingProcessIsKept) {
  ASSERT_TRUE(Create()->Add(Report(11, ROLE_WORKER, 1, 1)).ok());
  auto first = Create(), second = Create();
  ASSERT_TRUE(second->Add(Report(11, ROLE_WORKER, 1, 1, 7)).ok());
  ASSERT_TRUE(first->Add(Report(11, ROLE_WORKER, 1, 1, 8)).ok());
  EXPECT_THAT(Spans(), ElementsAre("step@8"));
}

TEST_F(TraceFileTest, APipeIsRefusedWithoutWaiting) {
  ASSERT_TRUE(Env::Real()->MakeDirs(dir_ + "/sub").ok());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(TraceFile::Create(Env::Real(), path_, "job-1", "here").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TraceFileTest, TimesOfAnotherHostShiftByTheSmallestDelay) {
  auto file = Create();
  TraceReport report = Report(11, ROLE_WORKER, 1, 1);
  report.member.set_host("there");
  ASSERT_TRUE(file->Add(report).ok());  // 1000 us in transit, or its clock is behind
  report.batch.set_number(2);
  report.batch.set_sent_us(4700);
  ASSERT_TRUE(file->Add(report).ok());
  report.batch.set_number(3);
  report.batch.set_sent_us(4600);
  ASSERT_TRUE(file->Add(report).ok());
  EXPECT_THAT(Spans(), ElementsAre("step@2000", "step@1300", "step@1300"));
  EXPECT_THAT(Text(), HasSubstr("\"clock_shift_us\": {\"worker 1 (pid 7 on host there)\": 300}"));
}

TEST_F(TraceFileTest, SpansBeyondTheLimitAreCounted) {
  auto file = Create(/*max_spans=*/3);
  TraceReport report = Report(11, ROLE_WORKER, 1, 2);
  report.batch.set_dropped(5);
  ASSERT_TRUE(file->Add(report).ok());
  ASSERT_TRUE(file->Add(Report(11, ROLE_WORKER, 2, 3)).ok());
  EXPECT_EQ(Spans().size(), 3u);
  EXPECT_THAT(Text(),
              HasSubstr("\"spans\": 3, \"dropped\": {\"worker 1 (pid 7 on host here)\": 7}"));
}

TEST_F(TraceFileTest, AMalformedBatchIsRefusedAsAWhole) {
  auto file = Create();
  TraceReport report = Report(11, ROLE_WORKER, 1, 2);
  report.batch.set_track(1, 1);
  EXPECT_EQ(file->Add(report).code(), absl::StatusCode::kInvalidArgument);
  report = Report(11, ROLE_WORKER, 1, 2);
  report.batch.mutable_step()->RemoveLast();
  EXPECT_EQ(file->Add(report).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Spans().size(), 0u);
  report = Report(11, ROLE_WORKER, 1, 2, INT64_MAX);  // absurd, but harmless
  EXPECT_TRUE(file->Add(report).ok());
}

// The limit simulates a full disk: a write is cut short there, and the next one fails.
TEST_F(TraceFileTest, AFullDiskLeavesTheFileUnchanged) {
  void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto file = Create();
  ASSERT_TRUE(file->Add(Report(11, ROLE_WORKER, 1, 2)).ok());
  const std::string whole = Text();
  // The disk fills up in the events, or in the end that follows them.
  for (const size_t room : {0, 1, 40, 400}) {
    rlimit limit = before;
    limit.rlim_cur = whole.size() + room;
    TraceReport report = Report(12, ROLE_PSERVER, 1, 20);
    report.batch.set_dropped(3);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const absl::Status status = file->Add(report);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << room;
    EXPECT_EQ(Text(), whole) << room;
    file = nullptr;
    EXPECT_TRUE(IsOwnFile(Env::Real(), path_, FileKind::kTrace));
    file = Create();
    ASSERT_TRUE(file->Add(Report(11, ROLE_WORKER, 1, 2)).ok());
    EXPECT_EQ(Text(), whole);
  }
  signal(SIGXFSZ, handler);
}

TEST_F(TraceFileTest, AnEarlierTraceStaysUntilTheFirstReport) {
  ASSERT_TRUE(Create()->Add(Report(11, ROLE_WORKER, 1, 2)).ok());
  const std::string earlier = Text();
  EXPECT_TRUE(IsOwnFile(Env::Real(), path_, FileKind::kTrace));
  Create();  // a job that fails before it trains
  EXPECT_EQ(Text(), earlier);
  EXPECT_EQ(Env::Real()->List(dir_ + "/sub")->size(), 1u);
  auto file = Create();
  EXPECT_EQ(Text(), earlier);
  ASSERT_TRUE(file->Add(Report(12, ROLE_WORKER, 1, 1)).ok());
  EXPECT_THAT(Spans(), ElementsAre("step@1000"));
}

TEST_F(TraceFileTest, AFileThatAnotherJobWritesUnderAnotherPathIsRefused) {
  auto file = Create();
  std::filesystem::create_directory_symlink(dir_ + "/sub", dir_ + "/link");
  EXPECT_EQ(
      TraceFile::Create(Env::Real(), dir_ + "/link/trace.json", "job-2", "here").status().code(),
      absl::StatusCode::kAlreadyExists);
  file = nullptr;
  EXPECT_TRUE(TraceFile::Create(Env::Real(), dir_ + "/link/trace.json", "job-2", "here").ok());
}

TEST_F(TraceFileTest, AFileThatCannotBeCreatedIsNamed) {
  ASSERT_TRUE(Env::Real()->MakeDirs(path_).ok());
  const auto file = TraceFile::Create(Env::Real(), path_, "job", "here");
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(path_));
  EXPECT_FALSE(TraceFile::Create(Env::Real(), "/proc/none/trace", "job", "here").ok());
}

}  // namespace
}  // namespace sluice
