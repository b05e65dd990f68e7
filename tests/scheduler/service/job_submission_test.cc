#include "scheduler/service/job_submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/meta_store/record_parts.h"
#include "common/saved_model/checkpoint.h"
#include "model/data/expand_files.h"
#include "tests/scheduler/logged_lines.h"
#include "tests/scheduler/loop_fixture.h"

namespace sluice {
namespace {

class KeptSubmissionTest : public KeptState {};

TEST(JobSubmissionTest, ResumingWithoutACheckpointStartsFromTheBeginningAndWarns) {
  LocalScheduler scheduler;
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  SubmitJobRequest submit = SmallJob("sync", 1);
  submit.set_resume(true);
  submit.mutable_config()->mutable_strategy()->set_a_sync(false);
  EXPECT_TRUE(absl::IsInvalidArgument(scheduler.Submit(submit).status()));  // no output_dir
  submit.mutable_config()->set_output_dir(testing::TempDir() + "job_submission_test_resume");
  const auto job = scheduler.Submit(submit);
  ASSERT_TRUE(job.ok()) << job.status();
  const ClusterStatus status = scheduler.loop().GetStatus();
  ASSERT_EQ(status.jobs_size(), 1);
  ASSERT_EQ(status.jobs(0).warnings_size(), 1);
  EXPECT_NE(status.jobs(0).warnings(0).find("there is no checkpoint"), std::string::npos);
}

TEST(JobSubmissionTest, TheCheckpointsOfAnUnfinishedRunAreNotLeftToANewJob) {
  LocalScheduler scheduler;
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  SubmitJobRequest submit = SmallJob("again", 1);
  const std::string dir = testing::TempDir() + "job_submission_test_unfinished";
  std::filesystem::remove_all(dir);
  submit.mutable_config()->set_output_dir(dir);
  Manifest manifest;
  manifest.set_global_step(4368);
  manifest.mutable_checkpoint()->set_global_step(4368);
  ASSERT_TRUE(CommitCheckpoint(dir + "/checkpoints/step-4368", submit.config(), manifest,
                               Env::Real(), CheckpointSaveId(1, 1))
                  .ok());
  const absl::Status refused = scheduler.Submit(submit).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("step-4368"));
  submit.mutable_config()->set_overwrite(true);
  const auto running = scheduler.Submit(submit);
  ASSERT_TRUE(running.ok());
  // The checkpoints of a job that has not ended are no reason to continue or to overwrite it.
  submit.mutable_config()->set_overwrite(false);
  const absl::Status busy = scheduler.Submit(submit).status();
  EXPECT_TRUE(absl::IsAlreadyExists(busy)) << busy;
  EXPECT_THAT(std::string(busy.message()),
              testing::AllOf(testing::HasSubstr(running->job_id()),
                             testing::Not(testing::HasSubstr("--overwrite"))));
}

TEST(JobSubmissionTest, JobsOfSeveralClustersWithOneLogFolderHaveDifferentIds) {
  const std::string file = testing::TempDir() + "job_submission_test_numbers";
  std::filesystem::remove(file);
  std::set<std::string> ids;
  for (const char* dir : {"/d1", "/d2", "/d3"}) {
    SchedulerLoop loop(LocalScheduler::Small());
    auto options = LocalScheduler::IntakeOptions(LocalScheduler::Small(), &loop);
    options.numbers_file = file;
    RequestIntake intake(options);
    SubmitJobRequest request = SmallJob("shop", 1);
    request.mutable_config()->set_output_dir(dir);
    const auto reply = intake.SubmitJob(request, "");
    ASSERT_TRUE(reply.ok()) << reply.status();
    ids.insert(reply->job_id());
  }
  EXPECT_EQ(ids, (std::set<std::string>{"shop-1", "shop-2", "shop-3"}));
}

TEST(JobSubmissionTest, SubmissionLogsThePathOfTheEffectiveConfiguration) {
  LoggedLines logged;
  LocalScheduler::Options options = LocalScheduler::Small();
  options.log = [&logged](const std::string& line) { logged.Add(line + "\n"); };
  LocalScheduler scheduler(std::move(options));
  SubmitJobRequest request = SmallJob("logged", 1);
  ASSERT_TRUE(scheduler.Submit(request).ok());
  request.mutable_config()->set_output_dir("/out");
  ASSERT_TRUE(scheduler.Submit(request).ok());
  const std::string log = absl::StrJoin(logged.Get(), "");
  EXPECT_NE(log.find("/logged-1/job.textproto\n"), std::string::npos) << log;
  EXPECT_NE(log.find("job logged-2: effective configuration: /out/job.textproto\n"),
            std::string::npos)
      << log;
}

TEST(JobSubmissionTest, AJobWithTooManyShardsIsRefused) {
  LocalScheduler scheduler;
  SubmitJobRequest request = SmallJob("huge");
  // 65536 x 65536 weights in blocks of 1 MiB: 16384 shards for each layer but the first.
  const auto submit = [&](int layers) {
    auto* const units = request.mutable_config()->mutable_model()->mutable_wide_deep();
    units->clear_hidden_units();
    for (int i = 0; i < layers; ++i) units->add_hidden_units(65536);
    return scheduler.Submit(request).status();
  };
  EXPECT_TRUE(submit(63).ok());
  const absl::Status refused = submit(66);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::HasSubstr("1048576"), testing::HasSubstr("shards")));
  EXPECT_EQ(scheduler.loop().GetStatus().jobs_size(), 1);
}

TEST(JobSubmissionTest, AJobWhosePatternsMatchTooMuchIsRefused) {
  LocalScheduler scheduler;
  SubmitJobRequest request = SmallJob("many");
  DataConfig* const data = request.mutable_config()->mutable_data();
  data->clear_train_files();
  for (size_t i = 0; i <= ExpandLimits().files; ++i) data->add_train_files("/dev/null");
  const absl::Status refused = scheduler.Submit(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::HasSubstr("data.train_files"),
                             testing::HasSubstr("/dev/null"), testing::HasSubstr("100000")));
  EXPECT_EQ(scheduler.loop().GetStatus().jobs_size(), 0);
}

TEST(JobSubmissionTest, JobsOfConcurrentSchedulersGetDifferentFolders) {
  const LocalScheduler::Options options = LocalScheduler::Small();
  LocalScheduler one(options), other(options);
  const SubmitJobRequest request = SmallJob("same");
  constexpr int kEach = 8;
  std::vector<std::string> ids(4 * kEach);
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&, user] {
      for (int i = 0; i < kEach; ++i) {
        const auto reply = (user % 2 == 0 ? one : other).Submit(request);
        EXPECT_TRUE(reply.ok()) << reply.status();
        if (reply.ok()) ids[user * kEach + i] = reply->job_id();
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  for (const std::string& id : ids)
    EXPECT_TRUE(std::filesystem::is_directory(options.default_output + "/" + id)) << id;
}

TEST(JobSubmissionTest, ARefusedJobLeavesNoFolder) {
  LocalScheduler::Options options = LocalScheduler::Small();
  LocalScheduler scheduler(options);
  SubmitJobRequest request = SmallJob("wide");
  request.mutable_config()->set_worker_num(2);  // the cluster has one
  EXPECT_FALSE(scheduler.Submit(request).ok());
  EXPECT_TRUE(std::filesystem::is_empty(options.default_output));
}

TEST(JobSubmissionTest, BadConfigurationIsRefusedAtSubmission) {
  LocalScheduler scheduler;
  SubmitJobRequest request;
  request.mutable_config()->set_name("no/slashes");
  EXPECT_TRUE(absl::IsInvalidArgument(scheduler.Submit(request).status()));
}

TEST_F(KeptSubmissionTest, AnAnsweredSubmissionIsKeptAndAnEndRemovesIt) {
  std::string job_id;
  {
    LocalScheduler scheduler(NextLife());
    ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
    const auto reply = scheduler.Submit(SmallJob("a", 1));
    ASSERT_TRUE(reply.ok()) << reply.status();
    job_id = reply->job_id();
    EXPECT_EQ(StoredIds(), std::vector<std::string>{job_id});
  }
  {
    LocalScheduler scheduler(NextLife());
    const ClusterStatus status = scheduler.loop().GetStatus();
    ASSERT_EQ(status.jobs_size(), 1);
    EXPECT_EQ(status.jobs(0).job_id(), job_id);
    EXPECT_EQ(status.jobs(0).state(), JOB_QUEUED);
    ASSERT_TRUE(scheduler.Cancel(job_id).ok());
    ASSERT_TRUE(scheduler.AwaitState(JOB_CANCELLED));
  }
  EXPECT_TRUE(StoredIds().empty());
}

TEST_F(KeptSubmissionTest, ARepeatedSubmissionReturnsTheSameJobAlsoAfterARestart) {
  std::string job_id;
  {
    LocalScheduler scheduler(NextLife());
    ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
    job_id = scheduler.Submit(SmallJob("a", 1), "r1")->job_id();
    EXPECT_EQ(scheduler.Submit(SmallJob("a", 1), "r1")->job_id(), job_id);
  }
  LocalScheduler scheduler(NextLife());
  EXPECT_EQ(scheduler.Submit(SmallJob("a", 1), "r1")->job_id(), job_id);
  EXPECT_NE(scheduler.Submit(SmallJob("a", 1), "r2")->job_id(), job_id);
  EXPECT_EQ(scheduler.loop().GetStatus().jobs_size(), 2);
}

TEST_F(KeptSubmissionTest, AStoreThatCannotBeWrittenRefusesSubmissionsAndHeals) {
  LocalScheduler scheduler(NextLife());
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  store_->SetErrorForTest(absl::ResourceExhaustedError("disk full"));
  // It is not known whether the store will still take it.
  const absl::Status refused = scheduler.Submit(SmallJob("a", 1)).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_NE(refused.message().find("disk full"), absl::string_view::npos);
  ClusterStatus status = scheduler.loop().GetStatus();
  EXPECT_EQ(status.jobs_size(), 0);
  const auto& self = status.members(status.members_size() - 1);
  EXPECT_EQ(self.role(), ROLE_SCHEDULER);
  EXPECT_NE(self.doing().find("disk full"), std::string::npos);

  store_->SetErrorForTest(absl::OkStatus());
  ASSERT_TRUE(scheduler.Submit(SmallJob("a", 1)).ok());
  EXPECT_EQ(StoredIds().size(), 1u);
  EXPECT_EQ(scheduler.loop().GetStatus().members_size(), 1);
}

TEST_F(KeptSubmissionTest, ASubmissionThatIsRefusedLeavesNoRecord) {
  LocalScheduler scheduler(NextLife());
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  store_->LoseNextAnswerForTest();
  // The check of the term may have lost the answer instead.
  const absl::Status refused = scheduler.Submit(SmallJob("a", 1)).status();
  EXPECT_TRUE(refused.ok() || absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(StoredIds().size(), refused.ok() ? 1u : 0u);
}

TEST_F(KeptSubmissionTest, ASubmissionWhoseOutcomeIsOpenCanBeRepeated) {
  LocalScheduler scheduler(NextLife());
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  store_->SetErrorForTest(absl::UnavailableError("etcd did not answer"));
  EXPECT_TRUE(absl::IsUnavailable(scheduler.Submit(SmallJob("a", 1), "r1").status()));
  store_->SetErrorForTest(absl::OkStatus());
  const auto reply = scheduler.Submit(SmallJob("a", 1), "r1");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(StoredIds(), std::vector<std::string>{reply->job_id()});
}

TEST_F(KeptSubmissionTest, ASubmissionThatIsTooLargeIsRefused) {
  LocalScheduler scheduler(NextLife());
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  SubmitJobRequest large = SmallJob("a", 1);
  large.mutable_config()->mutable_data()->set_train_files(
      0, std::string(kMaxRecordBytes, 'x'));
  EXPECT_TRUE(absl::IsFailedPrecondition(scheduler.Submit(large).status()));
  EXPECT_TRUE(scheduler.Submit(SmallJob("b", 1)).ok());
  EXPECT_EQ(StoredIds().size(), 1u);
}

}  // namespace
}  // namespace sluice
