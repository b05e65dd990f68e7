#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "scheduler/files/starting_point.h"
#include "scheduler/recovery/job_adoption.h"
#include "tests/common/base/fake_clock.h"
#include "tests/scheduler/loop_fixture.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// A sync job of an earlier scheduler, whose attempt has begun at a checkpoint that is gone.
class AdoptionFromDiskTest : public testing::Test {
 protected:
  AdoptionFromDiskTest() {
    job_.set_job_id("a-1");
    *job_.mutable_config() = SmallJob("a").config();
    job_.mutable_config()->set_output_dir(options_.default_output + "/a-1");
    job_.mutable_config()->mutable_strategy()->set_a_sync(false);
    job_.set_order(1);
    job_.set_begun(true);
    job_.add_pservers(0);
    run_.set_job_id("a-1");
    run_.set_phase(1);
    JobSpec* const spec = run_.mutable_spec();
    spec->set_job_id("a-1");
    spec->set_instance(7);
    spec->set_worker_num(1);
    spec->mutable_route()->add_pservers("ps");
    spec->mutable_restore()->set_directory("/gone/step-9");
    run_.add_ranks()->set_incarnation(3);
    began_.set_job_id("a-1");
    began_.set_instance(7);
    began_.set_directory("/gone/step-9");
    began_.mutable_state()->set_worker_num(1);
    began_.mutable_state()->add_workers();
  }

  // The job under the next scheduler, which finds `entries`.
  JobStatus Restored(const std::vector<MetaStore::Entry>& entries) {
    const auto stored = ParseStoredJobs(entries);
    EXPECT_TRUE(stored.ok()) << stored.status();
    SchedulerCore::Options options = options_.core;
    options.next = stored->next;
    SchedulerCore core(options, clock_.Now());
    JobRestorer::Calls calls;
    calls.log = [this](const std::string& job_id, const std::string& line) {
      absl::StrAppend(&log_, job_id, ": ", line, "\n");
    };
    calls.find_point = [this](const JobRecord& record, bool verify,
                              std::vector<std::string>* warnings) {
      return FindRestartPoint(record, verify, Env::Real(), &clock_, warnings);
    };
    calls.read_point = [this](const std::string& dir, const JobConfig& config) {
      return ReadResumePoint(dir, config, Env::Real(), &clock_);
    };
    calls.restore = [&](const JobRecord& record, JobRestorer::Point point,
                        std::optional<RunHandover> run) {
      core.RestoreJob(record, std::move(point), std::move(run), clock_.Now());
    };
    calls.forget = [&](const StoredRun& run) { core.ForgetRun(run); };
    JobRestorer(std::move(calls)).RestoreAll(*stored);
    records_ = core.TakeRecords();
    const ClusterStatus status = core.operators().GetStatus(clock_.Now());
    EXPECT_EQ(status.jobs_size(), 1);
    return status.jobs(0);
  }
  MetaStore::Entry JobEntry() const { return {"job/a-1", job_.SerializeAsString()}; }
  MetaStore::Entry RunEntry() const { return {"run/a-1", run_.SerializeAsString()}; }
  MetaStore::Entry BeganEntry() const { return {"began/a-1", began_.SerializeAsString()}; }
  bool Deletes(const std::string& key) const {
    return std::any_of(records_.begin(), records_.end(), [&](const MetaStore::Write& record) {
      return record.key == key && !record.value.has_value();
    });
  }

  const LocalScheduler::Options options_ = LocalScheduler::Small();
  FakeClock clock_;
  JobRecord job_;
  RunRecord run_;
  BeginningRecord began_;  // of the run
  std::string log_;
  std::vector<MetaStore::Write> records_;  // that the core has changed
};

TEST_F(AdoptionFromDiskTest, ARunIsAdoptedWithTheRecordOfItsBeginning) {
  EXPECT_EQ(Restored({BeganEntry(), JobEntry(), RunEntry()}).state(), JOB_RUNNING) << log_;
  EXPECT_FALSE(Deletes("run/a-1"));
}

TEST_F(AdoptionFromDiskTest, WithoutTheRecordOrTheFolderItGoesBackAndTheLogSaysWhy) {
  EXPECT_EQ(Restored({JobEntry(), RunEntry()}).state(), JOB_RECOVERING) << log_;
  EXPECT_THAT(log_, HasSubstr("/gone/step-9"));
  EXPECT_TRUE(Deletes("run/a-1"));
}

TEST_F(AdoptionFromDiskTest, ARunThatBeganWithTheJobNeedsNoCheckpoint) {
  run_.mutable_spec()->clear_restore();
  EXPECT_EQ(Restored({JobEntry(), RunEntry()}).state(), JOB_RUNNING) << log_;
}

TEST_F(AdoptionFromDiskTest, WithoutARunTheJobGoesBack) {
  EXPECT_EQ(Restored({JobEntry()}).state(), JOB_RECOVERING) << log_;
}

TEST_F(AdoptionFromDiskTest, TheRunOfAnUnknownJobIsDeleted) {
  run_.set_job_id("b-2");
  Restored({JobEntry(), {"run/b-2", run_.SerializeAsString()}});
  EXPECT_TRUE(Deletes("run/b-2"));
}

TEST_F(AdoptionFromDiskTest, AJobThatHadNotBegunIsQueued) {
  job_.set_begun(false);
  job_.clear_pservers();
  EXPECT_EQ(Restored({JobEntry()}).state(), JOB_QUEUED) << log_;
}

TEST_F(AdoptionFromDiskTest, AStoredOutcomeIsShownAsOnePrintableLine) {
  job_.set_outcome(JOB_FAILED);
  job_.set_message("a row\nof \x1b[31mbytes");
  const std::string message = Restored({JobEntry()}).message();
  EXPECT_TRUE(IsPrintableLine(message)) << message;
  EXPECT_THAT(message, HasSubstr("a row"));
}

}  // namespace
}  // namespace sluice
