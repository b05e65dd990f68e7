#include "cli/jobs/end_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/common/base/fake_clock.h"
#include "tests/common/daemon/refusing_scheduler.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Has jobs that end when they are cancelled. A checkpoint takes `questions` questions.
class EndingScheduler : public RefusingScheduler {
 public:
  JobStatus* Add(const std::string& id, JobState state, uint64_t steps) {
    JobStatus* const job = status.add_jobs();
    job->set_job_id(id);
    job->set_state(state);
    job->set_global_step(steps);
    job->set_worker_num(1);
    job->set_workers_alive(1);
    job->mutable_config()->set_output_dir("/out/" + id);
    return job;
  }
  absl::StatusOr<ClusterStatus> GetStatus() override { return status; }
  absl::StatusOr<CheckpointJobReply> CheckpointJob(const CheckpointJobRequest& request) override {
    EXPECT_THAT(cancelled, IsEmpty());
    CheckpointJobReply reply;
    reply.set_number(3);
    if (request.number() == 0) {
      saved.push_back(request.job_id());
      return reply;
    }
    if (--questions > 0) return reply;
    reply.set_done(true);
    Find(request.job_id())->mutable_checkpoint()->set_dir("/out/" + request.job_id() + "/step-9");
    return reply;
  }
  absl::Status CancelJob(const CancelJobRequest& request) override {
    cancelled.push_back(request.job_id());
    Find(request.job_id())->set_state(JOB_CANCELLED);
    return absl::OkStatus();
  }
  JobStatus* Find(const std::string& id) {
    return &*std::find_if(status.mutable_jobs()->begin(), status.mutable_jobs()->end(),
                          [&](const JobStatus& job) { return job.job_id() == id; });
  }

  ClusterStatus status;
  int questions = 2;
  std::vector<std::string> saved, cancelled;
};

class EndJobsTest : public testing::Test {
 protected:
  void End(absl::Duration grace = absl::Seconds(30)) {
    EndJobsOptions options;
    options.clock = &clock_;
    options.client = &scheduler_;
    options.save_grace = grace;
    options.say = [this](const std::string& line) { lines_.push_back(line); };
    EndJobs(options);
  }
  FakeClock clock_;
  EndingScheduler scheduler_;
  std::vector<std::string> lines_;
};

TEST_F(EndJobsTest, RunningJobsSaveACheckpointAndTheirContinuationIsNamed) {
  scheduler_.Add("done-1", JOB_DONE, 9);
  scheduler_.Add("a-2", JOB_RUNNING, 9);
  scheduler_.Add("young-3", JOB_RUNNING, 0);
  scheduler_.Add("lacks-4", JOB_RUNNING, 9)->set_workers_alive(0);
  scheduler_.Add("waits-5", JOB_QUEUED, 0);
  End();
  EXPECT_THAT(scheduler_.saved, ElementsAre("a-2"));
  EXPECT_THAT(scheduler_.cancelled, ElementsAre("a-2", "young-3", "lacks-4", "waits-5"));
  EXPECT_THAT(lines_, Contains(AllOf(HasSubstr("cancelled a-2"), HasSubstr("/out/a-2/step-9"),
                                     HasSubstr("--job=/out/a-2/step-9/job.textproto --resume"))));
  EXPECT_THAT(lines_, Contains(AllOf(HasSubstr("waits-5"), HasSubstr("no checkpoint"))));
}

TEST_F(EndJobsTest, WaitsABoundedTimeAndNotAtAllWithoutIt) {
  scheduler_.Add("a-1", JOB_RUNNING, 9);
  scheduler_.questions = 1'000'000;
  const absl::Time begun = clock_.Now();
  End();
  EXPECT_GE(clock_.Now() - begun, absl::Seconds(30));
  EXPECT_LT(clock_.Now() - begun, absl::Seconds(31));
  EXPECT_THAT(lines_, Contains(HasSubstr("no checkpoint of a-1 is saved: it took longer")));
  EXPECT_THAT(scheduler_.cancelled, ElementsAre("a-1"));
  scheduler_.saved.clear();
  scheduler_.Find("a-1")->set_state(JOB_RUNNING);
  End(absl::ZeroDuration());
  EXPECT_THAT(scheduler_.saved, IsEmpty());
  EXPECT_THAT(scheduler_.cancelled, ElementsAre("a-1", "a-1"));
}

TEST_F(EndJobsTest, WithoutJobsItSaysNothing) {
  End();
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace sluice::cli
