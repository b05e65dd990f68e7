#include "scheduler/registry/job_records.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/printable.h"

namespace sluice {
namespace {

MetaStore::Entry EntryOf(const MetaStore::Write& write) { return {write.key, *write.value}; }

TEST(JobRecordsTest, ARecordSaysWhatTheJobIs) {
  Job::Submission submission;
  submission.job_id = "a-7";
  submission.config.set_output_dir("/out");
  submission.order = 3;
  submission.resumed_from = "/c/step-9";
  Job job(std::move(submission));
  job.SetRequest("r", /*allow_older=*/true);
  job.attempt.MutableSpecForTest()->add_tables()->set_name("wide");
  job.attempt.RestoreInstances({uint64_t{1} << 63, 5});
  job.AddWarning("w");
  job.course.RestoreBegun(true);
  job.recovery.Restore(Recovery(), absl::UnixEpoch());
  job.pservers.Choose({0, 2});
  const JobRecord record = RecordOf(job, {"boot"});
  EXPECT_EQ(record.job_id(), "a-7");
  EXPECT_FALSE(record.has_config());
  EXPECT_EQ(ConfigOf(job).job_id(), "a-7");
  EXPECT_EQ(ConfigOf(job).config().output_dir(), "/out");
  EXPECT_EQ(ConfigOf(job).tables(0).name(), "wide");
  EXPECT_EQ(record.order(), 3);
  EXPECT_EQ(record.warnings(0), "w");
  EXPECT_TRUE(record.allow_older());
  EXPECT_TRUE(record.begun());
  EXPECT_EQ(record.resume_from(), "/c/step-9");
  EXPECT_EQ(record.recovery().scheduler_restarts(), 1);
  EXPECT_EQ(record.instances(0), uint64_t{1} << 63);
  EXPECT_EQ(record.pservers(1), 2);
  EXPECT_EQ(record.request_id(), "r");
  EXPECT_EQ(record.outcome(), JOB_STATE_UNSPECIFIED);

  job.course.End(JOB_CANCELLED, "m", absl::UnixEpoch());
  JobResult result;
  result.set_global_step(12);
  job.course.SetResult(result);
  job.attempt.MutableSpecForTest()->set_instance(0xabc);
  EXPECT_EQ(RecordOf(job, {"boot"}).outcome(), JOB_CANCELLED);
  EXPECT_EQ(RecordOf(job, {"boot"}).message(), "m");
  EXPECT_EQ(RecordOf(job, {"boot"}).result().global_step(), 12);
  EXPECT_EQ(RecordOf(job, {"boot"}).save_id(), "0000000000000abc");
}

TEST(JobRecordsTest, LossesOfAnEarlierSchedulerKeepTheirTimesOnTheSameClock) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(30);
  JobRecord record;
  EXPECT_TRUE(LossesIn(record, {"boot"}, now).empty()) << "an earlier version wrote no times";
  record.add_losses_s(3600);
  record.add_losses_s(31 * 3600);
  record.set_losses_clock("boot");
  EXPECT_EQ(LossesIn(record, {"boot"}, now), (std::vector<absl::Time>{now}))
      << "the first is older than 24 hours, the second ahead of the clock";
  record.set_losses_s(0, 7 * 3600);
  EXPECT_EQ(LossesIn(record, {"boot"}, now),
            (std::vector<absl::Time>{absl::UnixEpoch() + absl::Hours(7), now}));
  // Their times mean nothing on another clock, so none is forgotten too early.
  EXPECT_EQ(LossesIn(record, {"another boot"}, now), (std::vector<absl::Time>{now, now}));
}

TEST(JobRecordsTest, LossesKeepTheirTimesOfDayOnAnotherClock) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(5);
  const absl::Duration day = absl::Hours(1000);
  Job job({"a-1"}, 1);
  job.recovery.RestoreLosses(
      {absl::UnixEpoch() + absl::Hours(1), absl::UnixEpoch() + absl::Hours(4)});
  const JobRecord record = RecordOf(job, {"boot", day});
  // Two hours after the second loss another host, which has run for one hour, takes over.
  const absl::Time there = absl::UnixEpoch() + absl::Hours(1);
  const auto losses_after = [&](absl::Duration later) {
    return LossesIn(record, {"another boot", day + absl::Hours(4) + later - absl::Hours(1)}, there);
  };
  EXPECT_EQ(losses_after(absl::Hours(2)),
            (std::vector<absl::Time>{there - absl::Hours(5), there - absl::Hours(2)}));
  EXPECT_EQ(losses_after(absl::Hours(22)), (std::vector<absl::Time>{there - absl::Hours(22)}));
  EXPECT_TRUE(losses_after(absl::Hours(30)).empty());
  // The other clock is behind.
  EXPECT_EQ(losses_after(-absl::Hours(9)), (std::vector<absl::Time>{there, there}));
  EXPECT_EQ(LossesIn(record, {"another boot"}, now), (std::vector<absl::Time>{now, now}));
}

TEST(JobRecordsTest, StoredJobsComeInOrderOfSubmission) {
  JobRecord first, tenth;
  first.set_job_id("z-1");
  first.set_order(1);
  tenth.set_job_id("a-10");
  tenth.set_order(10);
  first.mutable_config();
  tenth.mutable_config();
  NextRecord next;
  next.set_job_number(11);
  next.set_order(12);
  const auto stored =
      ParseStoredJobs({EntryOf(WriteOf(tenth)), EntryOf(WriteOf(first)), EntryOf(WriteOf(next))});
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->jobs.size(), 2);
  EXPECT_EQ(stored->jobs[0].job_id(), "z-1");
  EXPECT_EQ(stored->jobs[1].job_id(), "a-10");
  EXPECT_EQ(stored->next.job_number(), 11);
  EXPECT_EQ(stored->next.order(), 12);
}

TEST(JobRecordsTest, AnEmptyStoreBeginsAtOne) {
  const auto stored = ParseStoredJobs({});
  ASSERT_TRUE(stored.ok());
  EXPECT_TRUE(stored->jobs.empty());
  EXPECT_EQ(stored->next.job_number(), 1);
  EXPECT_EQ(stored->next.order(), 1);
}

TEST(JobRecordsTest, ADamagedRecordIsNamed) {
  const absl::Status bytes = ParseStoredJobs({{"job/a-1", "\xff\xff"}}).status();
  EXPECT_TRUE(absl::IsDataLoss(bytes));
  EXPECT_NE(bytes.message().find("job/a-1"), absl::string_view::npos);
  JobRecord other;
  other.set_job_id("b-1");
  EXPECT_TRUE(absl::IsDataLoss(ParseStoredJobs({{"job/a-1", other.SerializeAsString()}}).status()));
}

TEST(JobRecordsTest, TheNameOfADamagedRecordIsShownAsOnePrintableLine) {
  const absl::Status damaged = ParseStoredJobs({{"job/\n\x1b[2J\xff", "\xff"}}).status();
  EXPECT_TRUE(absl::IsDataLoss(damaged));
  EXPECT_TRUE(IsPrintableLine(damaged.message())) << damaged;
}

TEST(JobRecordsTest, AJobWithMoreEpochsOrWorkersThanAJobMayHaveIsDamage) {
  JobRecord job;
  job.set_job_id("a-1");
  job.mutable_config();
  EXPECT_TRUE(ParseStoredJobs({EntryOf(WriteOf(job))}).ok());
  JobRecord epochs = job, workers = job, later_workers = job;
  epochs.mutable_config()->mutable_train()->set_epochs(UINT32_MAX);
  workers.mutable_config()->set_worker_num(UINT32_MAX);
  later_workers.set_worker_num(UINT32_MAX);
  for (const JobRecord& damaged : {epochs, workers, later_workers})
    EXPECT_TRUE(absl::IsDataLoss(ParseStoredJobs({EntryOf(WriteOf(damaged))}).status()));
}

TEST(JobRecordsTest, ARankThatDoesNotFitIsDamageAndNotAnotherRank) {
  const std::string report = PhaseReport().SerializeAsString();
  EXPECT_TRUE(ParseStoredJobs({{"index/a-1/4294967295", report}}).ok());
  EXPECT_TRUE(absl::IsDataLoss(ParseStoredJobs({{"index/a-1/4294967296", report}}).status()));
}

TEST(JobRecordsTest, ChangesAreTakenOnceAndInOrder) {
  JobRecords records;
  Job::Submission submission;
  submission.job_id = "a-1";
  const Job job(std::move(submission));
  records.Changed(job);
  records.Changed(job);
  records.Dropped("a-1");
  const std::vector<MetaStore::Write> writes = records.Take();
  ASSERT_EQ(writes.size(), 5);
  EXPECT_EQ(writes[0].key, "config/a-1");
  EXPECT_EQ(writes[1].key, "job/a-1");
  EXPECT_EQ(writes[2].key, "job/a-1");  // without the configuration, which has not changed
  EXPECT_TRUE(writes[2].value.has_value());
  EXPECT_EQ(writes[3].key, "job/a-1");
  EXPECT_FALSE(writes[3].value.has_value());
  EXPECT_EQ(writes[4].key, "config/a-1");
  EXPECT_FALSE(writes[4].value.has_value());
  EXPECT_TRUE(records.Take().empty());
}

TEST(JobRecordsTest, AJobAndItsConfigurationBelongTogether) {
  JobRecord record;
  record.set_job_id("a-1");
  ConfigRecord config, other;
  config.set_job_id("a-1");
  config.mutable_config()->set_name("a");
  config.add_tables()->set_name("wide");
  other.set_job_id("b-2");
  const auto stored = ParseStoredJobs(
      {EntryOf(WriteOf(config)), EntryOf(WriteOf(other)), EntryOf(WriteOf(record))});
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->jobs.size(), 1);
  EXPECT_EQ(stored->jobs[0].config().name(), "a");
  EXPECT_EQ(stored->jobs[0].tables(0).name(), "wide");
  EXPECT_EQ(stored->left_over, std::vector<std::string>{"config/b-2"});
  // A submission or a deletion of which only one commit was made.
  const auto half = ParseStoredJobs({EntryOf(WriteOf(record))});
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_TRUE(half->jobs.empty());
  EXPECT_EQ(half->left_over, std::vector<std::string>{"job/a-1"});
}

// A run's record has the specification field by field, without configuration and tables.
TEST(JobRecordsTest, NoFieldOfASpecificationIsForgotten) {
  EXPECT_EQ(JobSpec::descriptor()->field_count(), 12)
      << "SpecWithoutConfig in job_records.cc lacks the new field";
}

std::vector<MetaStore::Entry> RunEntries(std::vector<std::string> tasks) {
  RunRecord run;
  run.set_job_id("a-1");
  run.set_phase(3);
  PhaseReport with_files, without;
  with_files.mutable_index()->add_train_seen()->set_path("f");
  without.mutable_index()->set_examples(5);
  std::vector<MetaStore::Entry> entries = {{"index/a-1/0", with_files.SerializeAsString()},
                                           {"index/a-1/1", without.SerializeAsString()},
                                           {"run/a-1", run.SerializeAsString()}};
  uint32_t rank = 0;
  for (const std::string& key : tasks) {
    TaskRecord task;
    task.mutable_asked()->set_rank(rank++);
    entries.push_back({key, task.SerializeAsString()});
  }
  return entries;
}

TEST(JobRecordsTest, ARunHasTheTasksOfItsPhase) {
  const auto stored = ParseStoredJobs(
      RunEntries({"task/a-1/2/0000000000", "task/a-1/3/0000000000", "task/a-1/3/0000000001"}));
  ASSERT_TRUE(stored.ok()) << stored.status();
  const StoredRun& run = stored->runs.at("a-1");
  EXPECT_EQ(run.record.phase(), 3);
  EXPECT_EQ(run.keys.size(), 6);
  ASSERT_EQ(run.tasks.size(), 2);
  EXPECT_EQ(run.tasks[0].asked().rank(), 1);
  EXPECT_EQ(run.tasks[1].asked().rank(), 2);
  // All ranks have seen the same files.
  EXPECT_EQ(run.index.at(1).index().train_seen(0).path(), "f");
  EXPECT_EQ(run.index.at(1).index().examples(), 5);
}

TEST(JobRecordsTest, ARunThatLacksATaskCannotBeAdopted) {
  const auto stored =
      ParseStoredJobs(RunEntries({"task/a-1/3/0000000000", "task/a-1/3/0000000002"}));
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->runs.at("a-1").record.phase(), 0);
  JobRecords records;
  records.RunRefused(stored->runs.at("a-1"));
  const std::vector<MetaStore::Write> writes = records.Take();
  EXPECT_EQ(writes.size(), 5);
  for (const MetaStore::Write& write : writes) EXPECT_FALSE(write.value.has_value());
}

TEST(JobRecordsTest, TheBeginningIsOneOfTheSameAttempt) {
  RunRecord run;
  run.set_job_id("a-1");
  run.set_phase(3);
  run.mutable_spec()->set_instance(5);
  BeginningRecord began;
  began.set_job_id("a-1");
  began.set_directory("/c/step-9");
  began.mutable_state()->set_global_step(9);
  const auto beginning = [&](uint64_t instance) {
    began.set_instance(instance);
    const auto stored = ParseStoredJobs(
        {{"began/a-1", began.SerializeAsString()}, {"run/a-1", run.SerializeAsString()}});
    EXPECT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->runs.at("a-1").keys.size(), 2);
    return BeginningOf(stored->runs.at("a-1"));
  };
  EXPECT_EQ(beginning(4), nullptr);
  const auto point = beginning(5);
  ASSERT_NE(point, nullptr);
  EXPECT_EQ(point->dir, "/c/step-9");
  EXPECT_EQ(point->state().global_step(), 9);
  EXPECT_EQ(point->manifest.global_step(), 9);
}

TEST(JobRecordsTest, DrainingPserversAreKept) {
  DrainingRecord draining;
  draining.add_pservers(3);
  JobRecords records;
  records.DrainingChanged(draining);
  const std::vector<MetaStore::Write> writes = records.Take();
  ASSERT_EQ(writes.size(), 1);
  const auto stored = ParseStoredJobs({{writes[0].key, *writes[0].value}});
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->draining.pservers(0), 3);
  EXPECT_EQ(OwnerOf(writes[0].key).job_id, "");
}

TEST(JobRecordsTest, CallsOfRanksGoWithTheirBorderAndTheirJob) {
  JobRecords records;
  const auto gathered = [&](uint32_t epochs_done, uint32_t number) {
    GatherRecord call;
    call.set_job_id("a-1");
    call.set_epochs_done(epochs_done);
    call.set_number(number);
    call.add_data("x");
    records.Gathered(call);
  };
  std::map<std::string, std::string> kept;
  const auto keys = [&] {
    std::vector<std::string> all;
    for (const MetaStore::Write& write : records.Take()) {
      if (write.value.has_value()) kept[write.key] = *write.value;
      if (!write.value.has_value()) kept.erase(write.key);
    }
    for (const auto& [key, value] : kept) all.push_back(key);
    return all;
  };
  using Keys = std::vector<std::string>;
  gathered(0, 0);
  gathered(1, 0);
  gathered(1, 1);
  EXPECT_EQ(keys(), (Keys{"gather/a-1/0/0", "gather/a-1/1/0", "gather/a-1/1/1"}));
  gathered(2, 0);
  EXPECT_EQ(keys(), (Keys{"gather/a-1/0/0", "gather/a-1/2/0"}));
  // The next scheduler finds them with the job, and deletes those of a job that it does not know.
  JobRecord job;
  job.set_job_id("a-1");
  ConfigRecord config;
  config.set_job_id("a-1");
  std::vector<MetaStore::Entry> entries = {EntryOf(WriteOf(config))};
  for (const auto& [key, value] : kept) entries.push_back({key, value});
  entries.push_back(EntryOf(WriteOf(job)));
  auto stored = ParseStoredJobs(entries);
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->jobs.at(0).gathers_size(), 2);
  EXPECT_TRUE(stored->left_over.empty());
  entries.pop_back();
  EXPECT_EQ(ParseStoredJobs(entries)->left_over,
            (Keys{"config/a-1", "gather/a-1/0/0", "gather/a-1/2/0"}));
  JobRecords next;
  next.GathersKept(stored->jobs[0]);
  records = std::move(next);
  records.RunEnded("a-1");
  EXPECT_EQ(keys(), (Keys{"gather/a-1/0/0"}));
  records.Dropped("a-1");
  EXPECT_EQ(keys(), Keys{});
}

}  // namespace
}  // namespace sluice
