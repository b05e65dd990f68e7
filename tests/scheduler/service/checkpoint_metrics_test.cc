#include "scheduler/service/checkpoint_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(CheckpointMetricsTest, JobsThatAreNotOverHaveSeries) {
  prometheus::Registry registry;
  CheckpointMetrics metrics(&registry);
  const auto text = [&](const ClusterStatus& status) {
    metrics.Update(status);
    return prometheus::TextSerializer().Serialize(registry.Collect());
  };
  ClusterStatus status;
  JobStatus* const job = status.add_jobs();
  job->set_job_id("job-1");
  job->set_state(JOB_RUNNING);
  job->mutable_recovery()->set_worker_losses(2);
  job->mutable_recovery()->set_updates_lost(70);
  const std::string recovery = "sluice_scheduler_recovery_";
  EXPECT_THAT(text(status), AllOf(HasSubstr(recovery + "worker_losses{job=\"job-1\"} 2\n"),
                                  HasSubstr(recovery + "pserver_losses{job=\"job-1\"} 0\n"),
                                  HasSubstr(recovery + "rollbacks{job=\"job-1\"} 0\n"),
                                  HasSubstr(recovery + "steps_rolled_back{job=\"job-1\"} 0\n"),
                                  HasSubstr(recovery + "examples_replayed{job=\"job-1\"} 0\n"),
                                  HasSubstr(recovery + "updates_lost{job=\"job-1\"} 70\n"),
                                  Not(HasSubstr("sluice_scheduler_checkpoint"))))
      << "it makes no checkpoints";
  job->mutable_checkpoint()->set_failed(2);
  const std::string at = "sluice_scheduler_checkpoint", labels = "{job=\"job-1\"} ";
  EXPECT_THAT(text(status),
              AllOf(HasSubstr(at + "s_made" + labels + "0\n"),
                    HasSubstr(at + "s_failed" + labels + "2\n"), Not(HasSubstr("age_seconds{"))));
  job->mutable_checkpoint()->set_age_s(900);
  EXPECT_THAT(text(status), HasSubstr(at + "_age_seconds" + labels + "900\n"));
  job->mutable_checkpoint()->set_made(1);
  job->mutable_checkpoint()->set_step(30);
  job->mutable_checkpoint()->set_age_s(12);
  job->mutable_checkpoint()->set_seconds(3);
  EXPECT_THAT(text(status), AllOf(HasSubstr(at + "s_made" + labels + "1\n"),
                                  HasSubstr(at + "_age_seconds" + labels + "12\n"),
                                  HasSubstr(at + "_seconds" + labels + "3\n")));
  job->set_state(JOB_DONE);
  EXPECT_THAT(text(status), Not(HasSubstr("job-1")));
}

}  // namespace
}  // namespace sluice
