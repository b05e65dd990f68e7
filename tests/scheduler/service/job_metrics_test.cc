#include "scheduler/service/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(JobMetricsTest, JobsThatAreNotOverHaveSeries) {
  prometheus::Registry registry;
  JobMetrics metrics(&registry);
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
  EXPECT_THAT(text(status),
              AllOf(HasSubstr(recovery + "worker_losses_total{job=\"job-1\"} 2\n"),
                    HasSubstr(recovery + "pserver_losses_total{job=\"job-1\"} 0\n"),
                    HasSubstr(recovery + "rollbacks_total{job=\"job-1\"} 0\n"),
                    HasSubstr(recovery + "steps_rolled_back_total{job=\"job-1\"} 0\n"),
                    HasSubstr(recovery + "examples_replayed_total{job=\"job-1\"} 0\n"),
                    HasSubstr(recovery + "updates_lost_total{job=\"job-1\"} 70\n"),
                    Not(HasSubstr("sluice_scheduler_checkpoint"))))
      << "it makes no checkpoints";
  job->mutable_checkpoint()->set_failed(2);
  const std::string at = "sluice_scheduler_checkpoint", labels = "{job=\"job-1\"} ";
  EXPECT_THAT(text(status), AllOf(HasSubstr(at + "s_made_total" + labels + "0\n"),
                                  HasSubstr(at + "s_failed_total" + labels + "2\n"),
                                  Not(HasSubstr("age_seconds{"))));
  job->mutable_checkpoint()->set_age_s(900);
  EXPECT_THAT(text(status), HasSubstr(at + "_age_seconds" + labels + "900\n"));
  job->mutable_checkpoint()->set_made(1);
  job->mutable_checkpoint()->set_step(30);
  job->mutable_checkpoint()->set_age_s(12);
  job->mutable_checkpoint()->set_seconds(3);
  EXPECT_THAT(text(status), AllOf(HasSubstr(at + "s_made_total" + labels + "1\n"),
                                  HasSubstr(at + "_age_seconds" + labels + "12\n"),
                                  HasSubstr(at + "_seconds" + labels + "3\n"),
                                  Not(HasSubstr("sluice_scheduler_export"))));
  job->mutable_export_()->set_made(4);
  job->mutable_export_()->set_failed(1);
  job->mutable_export_()->set_age_s(7);
  job->mutable_export_()->set_seconds(0.5);
  const std::string exported = "sluice_scheduler_export";
  EXPECT_THAT(text(status), AllOf(HasSubstr(exported + "s_made_total" + labels + "4\n"),
                                  HasSubstr(exported + "s_failed_total" + labels + "1\n"),
                                  HasSubstr(exported + "_age_seconds" + labels + "7\n"),
                                  HasSubstr(exported + "_seconds" + labels + "0.5\n")));
  job->set_state(JOB_DONE);
  EXPECT_THAT(text(status), Not(HasSubstr("job-1")));
}

TEST(JobMetricsTest, ProgressAndTheNewestEvaluationOfEachJob) {
  prometheus::Registry registry;
  JobMetrics metrics(&registry);
  ClusterStatus status;
  JobStatus* const job = status.add_jobs();
  job->set_job_id("job-1");
  job->set_state(JOB_RUNNING);
  const auto text = [&] {
    metrics.Update(status);
    return prometheus::TextSerializer().Serialize(registry.Collect());
  };
  EXPECT_THAT(text(), AllOf(HasSubstr("sluice_scheduler_job_epoch{job=\"job-1\"} 0\n"),
                            Not(HasSubstr("job_auc{")), Not(HasSubstr("job_log_loss{"))));
  job->set_epoch(3);
  job->set_global_step(70);
  job->set_examples(900);
  job->set_examples_per_second(12.5);
  job->set_loss(0.5);
  for (const double loss : {0.25, 0.125}) {
    EvalMetrics* const eval = job->add_epochs_log()->mutable_eval();
    eval->set_examples(10);
    eval->set_log_loss(loss);
    eval->set_auc(0.75 + loss);
  }
  job->add_epochs_log();  // not evaluated yet
  const std::string at = "sluice_scheduler_job_", labels = "{job=\"job-1\"} ";
  EXPECT_THAT(text(), AllOf(HasSubstr(at + "epoch" + labels + "3\n"),
                            HasSubstr(at + "steps_total" + labels + "70\n"),
                            HasSubstr(at + "examples_total" + labels + "900\n"),
                            HasSubstr(at + "examples_per_second" + labels + "12.5\n"),
                            HasSubstr(at + "loss" + labels + "0.5\n"),
                            HasSubstr(at + "log_loss" + labels + "0.125\n"),
                            HasSubstr(at + "auc" + labels + "0.875\n")));
  EXPECT_THAT(text(), HasSubstr("# TYPE sluice_scheduler_job_steps_total counter\n"));
  // The job has gone back to a checkpoint.
  job->set_global_step(40);
  EXPECT_THAT(text(), HasSubstr(at + "steps_total" + labels + "40\n"));
}

}  // namespace
}  // namespace sluice
