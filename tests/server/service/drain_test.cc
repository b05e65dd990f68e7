#include "server/service/drain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/daemon/refusing_scheduler.h"

namespace sluice {
namespace {

// Answers DrainPserver in turn, the last answer again and again: an error, or the jobs that are
// left.
class FakeScheduler : public RefusingScheduler {
 public:
  struct Answer {
    absl::Status status;
    std::vector<std::string> jobs;
    std::string failure = "";
  };
  explicit FakeScheduler(std::vector<Answer> answers) : answers_(std::move(answers)) {}
  absl::StatusOr<DrainPserverReply> DrainPserver(const DrainPserverRequest& request) override {
    rank = request.rank();
    member_ids.push_back(request.member_id());
    EXPECT_EQ(request.secret(), absl::StrCat("secret of ", request.member_id()));
    const Answer& answer = answers_[std::min(calls++, answers_.size() - 1)];
    if (!answer.status.ok()) return answer.status;
    DrainPserverReply reply;
    for (const std::string& job : answer.jobs) reply.add_jobs(job);
    reply.set_failure(answer.failure);
    return reply;
  }
  size_t calls = 0;
  uint32_t rank = 0;
  std::vector<uint64_t> member_ids;

 private:
  const std::vector<Answer> answers_;
};

class DrainTest : public ::testing::Test {
 protected:
  absl::Status Drain(FakeScheduler* scheduler, bool hosts_jobs = true) {
    DrainOptions options;
    options.scheduler = scheduler;
    options.rank = 3;
    options.key = [this] {
      return MemberKey{++member_id_, absl::StrCat("secret of ", member_id_)};
    };
    options.wait = wait_;
    options.clock = &clock_;
    options.hosts_jobs = [hosts_jobs] { return hosts_jobs; };
    options.log = [this](const std::string& line) { log_.push_back(line); };
    return DrainPserver(options);
  }
  FakeClock clock_;
  absl::Duration wait_ = absl::Seconds(10);
  uint64_t member_id_ = 70;
  std::vector<std::string> log_;
};

TEST_F(DrainTest, WaitsUntilNoJobIsLeft) {
  FakeScheduler scheduler({{{}, {"a", "b"}}, {{}, {"b"}}, {{}, {}}});
  EXPECT_TRUE(Drain(&scheduler).ok());
  EXPECT_EQ(scheduler.calls, 3u);
  EXPECT_EQ(scheduler.rank, 3u);
  EXPECT_EQ(scheduler.member_ids, (std::vector<uint64_t>{71, 72, 73})) << "the newest each time";
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_NE(log_[0].find("a, b"), std::string::npos);
}

TEST_F(DrainTest, APserverWithoutTablesAsksNobody) {
  FakeScheduler scheduler({{absl::InternalError("must not be called"), {}}});
  EXPECT_TRUE(Drain(&scheduler, /*hosts_jobs=*/false).ok());
  EXPECT_EQ(scheduler.calls, 0u);
}

TEST_F(DrainTest, ARefusalEndsItAtOnce) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kFailedPrecondition, absl::StatusCode::kAborted}) {
    FakeScheduler scheduler({{absl::Status(code, "no"), {}}});
    EXPECT_EQ(Drain(&scheduler).code(), code);
    EXPECT_EQ(scheduler.calls, 1u);
  }
}

TEST_F(DrainTest, DrainEndsWhenAJobCannotLeave) {
  FakeScheduler scheduler({{{}, {"a"}}, {{}, {"a"}, "disk full"}});
  const absl::Status status = Drain(&scheduler);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("disk full"), absl::string_view::npos);
  EXPECT_EQ(scheduler.calls, 2u);
}

TEST_F(DrainTest, AStandbyMayTakeOverMeanwhile) {
  const FakeScheduler::Answer none = {absl::UnavailableError("no answer"), {}};
  std::vector<FakeScheduler::Answer> answers(15, none);  // for three seconds
  answers.push_back({{}, {"a"}});
  answers.insert(answers.end(), 15, {absl::DeadlineExceededError("no answer in time"), {}});
  answers.push_back({{}, {}});
  FakeScheduler scheduler(answers);
  EXPECT_TRUE(Drain(&scheduler).ok());
  EXPECT_EQ(scheduler.calls, answers.size());
}

TEST_F(DrainTest, ASilentSchedulerIsGivenUp) {
  for (const int wait_s : {30, 2}) {
    wait_ = absl::Seconds(wait_s);
    FakeScheduler scheduler({{absl::UnavailableError("no answer"), {}}});
    const absl::Time began = clock_.Now();
    EXPECT_EQ(Drain(&scheduler).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(absl::ToInt64Seconds(clock_.Now() - began), std::min(wait_s, 5));
  }
}

TEST_F(DrainTest, TimeoutNamesTheRemainingJobs) {
  FakeScheduler scheduler({{{}, {"slow-1"}}});
  const absl::Time began = clock_.Now();
  const absl::Status status = Drain(&scheduler);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("slow-1"), absl::string_view::npos);
  EXPECT_GE(clock_.Now() - began, absl::Seconds(10));
  EXPECT_LT(clock_.Now() - began, absl::Seconds(11));
}

}  // namespace
}  // namespace sluice
