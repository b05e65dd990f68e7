#include "worker/service/program_end.h"

#include <atomic>
#include <deque>
#include <vector>

#include "gtest/gtest.h"
#include "tests/common/base/fake_clock.h"
#include "tests/worker/fake_scheduler.h"

namespace sluice {
namespace {

// Answers EndJob with these, the last one again and again.
class AnsweringScheduler : public FakeScheduler {
 public:
  absl::Status EndJob(const EndJobRequest& request) override {
    asked.push_back(request);
    const absl::Status answer = answers_left.front();
    if (answers_left.size() > 1) answers_left.pop_front();
    return answer;
  }
  std::deque<absl::Status> answers_left = {absl::OkStatus()};
  std::vector<EndJobRequest> asked;
};

class ProgramEndTest : public ::testing::Test {
 protected:
  ProgramEnd Make() {
    ProgramEnd::Options options;
    options.job_id = "job-1";
    options.rank = 2;
    options.incarnation = 5;
    options.key = [this] { return MemberKey{++life_, "secret"}; };
    options.scheduler = &scheduler_;
    options.patience = absl::Seconds(3);
    options.clock = &clock_;
    options.cancelled = &cancelled_;
    options.ends = [this](const EarlyEnd& end) { told_.push_back(end.last_step()); };
    return ProgramEnd(std::move(options));
  }

  AnsweringScheduler scheduler_;
  FakeClock clock_;
  std::atomic<bool> cancelled_{false};
  uint64_t life_ = 0;
  std::vector<uint64_t> told_;  // steps, by Options.ends
};

TEST_F(ProgramEndTest, TrainingEndsOnceTheSchedulerHasAnswered) {
  ProgramEnd end = Make();
  EXPECT_FALSE(end.end().known());
  // A scheduler that was started again does not know the member before it has registered anew.
  scheduler_.answers_left = {absl::UnavailableError("restarts"), absl::NotFoundError("who?"),
                             absl::OkStatus()};
  EXPECT_TRUE(end.EndTraining(12).ok());
  EXPECT_TRUE(end.end().Ends(12));
  EXPECT_FALSE(end.end().Ends(11));
  EXPECT_EQ(told_, std::vector<uint64_t>{12});
  ASSERT_EQ(scheduler_.asked.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(scheduler_.asked[i].member_id(), i + 1) << "the key of that moment";
    EXPECT_EQ(scheduler_.asked[i].job_id(), "job-1");
    EXPECT_EQ(scheduler_.asked[i].rank(), 2u);
    EXPECT_EQ(scheduler_.asked[i].incarnation(), 5u);
    EXPECT_EQ(scheduler_.asked[i].last_step(), 12u);
    EXPECT_FALSE(scheduler_.asked[i].cancels());
  }
}

TEST_F(ProgramEndTest, ARefusalASilentSchedulerAndACancelledRankEndTheWait) {
  ProgramEnd end = Make();
  scheduler_.answers_left = {absl::FailedPreconditionError("not in this mode")};
  EXPECT_TRUE(absl::IsFailedPrecondition(end.EndTraining(1)));
  EXPECT_EQ(scheduler_.asked.size(), 1u);
  scheduler_.answers_left = {absl::UnavailableError("silent")};
  EXPECT_TRUE(absl::IsUnavailable(end.EndTraining(1)));
  EXPECT_GE(clock_.Now(), absl::UnixEpoch() + absl::Seconds(3));
  cancelled_ = true;
  EXPECT_TRUE(absl::IsCancelled(end.EndTraining(1)));
  EXPECT_FALSE(end.end().known());
}

TEST_F(ProgramEndTest, TheSchedulerMaySayThatAnotherProgramHasEndedTheTraining) {
  ProgramEnd end = Make();
  EarlyEnd said;
  said.set_last_step(7);
  end.Set(said);
  EXPECT_TRUE(end.end().known());
  EXPECT_TRUE(end.end().NeverCloses(8));
  EXPECT_EQ(told_, std::vector<uint64_t>{7});
  EXPECT_TRUE(scheduler_.asked.empty());
}

TEST_F(ProgramEndTest, CancelAsksOnce) {
  ProgramEnd end = Make();
  scheduler_.answers_left = {absl::UnavailableError("silent")};
  EXPECT_TRUE(absl::IsUnavailable(end.CancelJob()));
  ASSERT_EQ(scheduler_.asked.size(), 1u);
  EXPECT_TRUE(scheduler_.asked[0].cancels());
  EXPECT_FALSE(end.end().known());
}

}  // namespace
}  // namespace sluice
