#include "cli/submit_job.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/common/daemon/refusing_scheduler.h"

namespace sluice::cli {
namespace {

// Answers the calls in turn, and remembers their ids.
class FakeScheduler : public RefusingScheduler {
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

  std::vector<std::string> ids_;

 private:
  const std::vector<absl::Status> answers_;
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
