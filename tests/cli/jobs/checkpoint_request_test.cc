#include "cli/jobs/checkpoint_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "tests/common/base/fake_clock.h"
#include "tests/common/daemon/refusing_scheduler.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Gives the answers one after the other, the last one again and again.
class AnsweringScheduler : public RefusingScheduler {
 public:
  absl::StatusOr<CheckpointJobReply> CheckpointJob(const CheckpointJobRequest& request) override {
    EXPECT_EQ(request.job_id(), "a-1");
    numbers.push_back(request.number());
    const auto answer = answers.front();
    if (answers.size() > 1) answers.pop_front();
    return answer;
  }
  std::deque<absl::StatusOr<CheckpointJobReply>> answers;
  std::vector<uint64_t> numbers;  // of the questions
};

CheckpointJobReply Reply(uint64_t number, bool done, const std::string& error = "") {
  CheckpointJobReply reply;
  reply.set_number(number);
  reply.set_done(done);
  reply.set_error(error);
  if (done) reply.set_dir("/out/step-9");
  return reply;
}

class CheckpointRequestTest : public testing::Test {
 protected:
  absl::StatusOr<CheckpointJobReply> Request(bool wait = true) {
    return RequestCheckpoint("a-1", wait, &scheduler_, &clock_);
  }
  FakeClock clock_;
  AnsweringScheduler scheduler_;
};

TEST_F(CheckpointRequestTest, WaitsForTheCheckpointThatItHasStarted) {
  scheduler_.answers = {Reply(3, false), Reply(3, false), Reply(3, true)};
  const auto reply = Request();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->dir(), "/out/step-9");
  EXPECT_THAT(scheduler_.numbers, ElementsAre(0, 3, 3));
}

TEST_F(CheckpointRequestTest, WithoutWaitOneAnswerIsEnough) {
  scheduler_.answers = {Reply(3, false)};
  const auto reply = Request(/*wait=*/false);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->number(), 3u);
  EXPECT_FALSE(reply->done());
  EXPECT_THAT(scheduler_.numbers, ElementsAre(0));
}

TEST_F(CheckpointRequestTest, ASchedulerThatTakesOverIsAskedAnew) {
  scheduler_.answers = {Reply(3, false), absl::UnavailableError("gone"), Reply(7, false),
                        Reply(7, true)};
  ASSERT_TRUE(Request().ok());
  EXPECT_THAT(scheduler_.numbers, ElementsAre(0, 3, 0, 7));
}

TEST_F(CheckpointRequestTest, AFailureAndASilentSchedulerAreErrors) {
  scheduler_.answers = {Reply(3, false), Reply(3, true, "disk full")};
  const auto failed = Request();
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("a-1 failed: disk full"));
  scheduler_.answers = {absl::NotFoundError("no job a-1")};
  EXPECT_EQ(Request().status().code(), absl::StatusCode::kNotFound);
  scheduler_.answers = {absl::UnavailableError("gone")};
  const absl::Time begun = clock_.Now();
  EXPECT_EQ(Request().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_GE(clock_.Now() - begun, kTakeoverPatience);
  EXPECT_LT(clock_.Now() - begun, 2 * kTakeoverPatience);
}

}  // namespace
}  // namespace sluice::cli
