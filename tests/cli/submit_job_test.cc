#include "cli/submit_job.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace sluice::cli {
namespace {

// Answers the calls in turn, and remembers their ids.
class FakeScheduler : public SchedulerClient {
 public:
  explicit FakeScheduler(std::vector<absl::Status> answers) : answers_(std::move(answers)) {}
  absl::StatusOr<SubmitJobReply> SubmitJobAs(const std::string& request_id,
                                             const SubmitJobRequest&) override {
    const absl::Status answer = answers_.at(ids_.size());
    ids_.push_back(request_id);
    if (!answer.ok()) return answer;
    SubmitJobReply reply;
    reply.set_job_id("job-1");
    return reply;
  }

  const std::string& address() const override { return address_; }
  absl::Status WaitReady(absl::Duration, const std::function<void(const std::string&)>&) override {
    return No();
  }
  absl::StatusOr<RegisterReply> Register(const RegisterRequest&) override { return No(); }
  absl::StatusOr<PollReply> Poll(const PollRequest&) override { return No(); }
  absl::Status Leave(const LeaveRequest&) override { return No(); }
  absl::Status MemberEnded(const MemberEndedRequest&) override { return No(); }
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest&) override { return No(); }
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest&) override { return No(); }
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest&) override { return No(); }
  absl::Status FailJob(const FailJobRequest&) override { return No(); }
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest&) override { return No(); }
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest&) override { return No(); }
  absl::Status CancelJob(const CancelJobRequest&) override { return No(); }
  absl::StatusOr<ClusterStatus> GetStatus() override { return No(); }
  absl::Status Shutdown() override { return No(); }

  std::vector<std::string> ids_;

 private:
  static absl::Status No() { return absl::UnimplementedError("not used"); }
  const std::vector<absl::Status> answers_;
  const std::string address_ = "fake";
};

const absl::Status kSilent = absl::UnavailableError("silent");

TEST(SubmitJobTest, ACallWithoutAnAnswerIsRepeatedWithItsId) {
  FakeScheduler scheduler({kSilent, kSilent, absl::OkStatus()});
  int checks = 0;
  const auto reply = SubmitJob(&scheduler, {}, absl::Minutes(1), [&] {
    ++checks;
    return absl::OkStatus();
  });
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job_id(), "job-1");
  EXPECT_EQ(checks, 2);
  EXPECT_EQ(std::set<std::string>(scheduler.ids_.begin(), scheduler.ids_.end()).size(), 1);
  EXPECT_NE(scheduler.ids_[0], "");
}

TEST(SubmitJobTest, OtherSubmissionsHaveOtherIds) {
  FakeScheduler scheduler({absl::OkStatus(), absl::OkStatus()});
  ASSERT_TRUE(SubmitJob(&scheduler, {}, absl::Minutes(1), nullptr).ok());
  ASSERT_TRUE(SubmitJob(&scheduler, {}, absl::Minutes(1), nullptr).ok());
  EXPECT_NE(scheduler.ids_[0], scheduler.ids_[1]);
}

TEST(SubmitJobTest, ARefusalAndABrokenClusterEndIt) {
  FakeScheduler refuses({absl::InvalidArgumentError("no")});
  EXPECT_TRUE(absl::IsInvalidArgument(SubmitJob(&refuses, {}, absl::Minutes(1), nullptr).status()));
  FakeScheduler silent({kSilent});
  EXPECT_TRUE(absl::IsInternal(SubmitJob(&silent, {}, absl::Minutes(1), [] {
                                 return absl::InternalError("dead");
                               }).status()));
  FakeScheduler late({kSilent});
  EXPECT_TRUE(absl::IsUnavailable(SubmitJob(&late, {}, absl::ZeroDuration(), nullptr).status()));
}

}  // namespace
}  // namespace sluice::cli
