#include "worker/service/job_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/config/job_config.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"
#include "tests/worker/fake_scheduler.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// A scheduler that answers NextPhase with `error`, and counts what is reported.
class FailingScheduler : public FakeScheduler {
 public:
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest&) override {
    if (errors_left-- != 0) return error;
    NextPhaseReply reply;
    reply.set_ready(true);
    reply.mutable_phase()->set_kind(Phase::FINISH);
    return reply;
  }
  absl::Status FailJob(const FailJobRequest& request) override {
    reports.push_back(request.message());
    incarnations.push_back(request.incarnation());
    return absl::OkStatus();
  }
  absl::Status error;
  int errors_left = -1;  // then the job is over; negative: never
  std::vector<std::string> reports;
  std::vector<uint64_t> incarnations;  // of the reports
};

// Nobody answers.
class NoTransport : public Transport {
 public:
  std::unique_ptr<Stream> Connect(const PserverAddress&, StreamCallbacks) override {
    return nullptr;
  }
  absl::StatusOr<std::string> Call(const PserverAddress&, const std::string&, const std::string&,
                                   absl::Duration) override {
    return absl::UnavailableError("nobody");
  }
};

WorkerAssignment Assignment() {
  JobConfig config;
  config.set_name("small");
  config.mutable_data()->set_format(DataConfig::CSV);
  config.mutable_data()->add_train_files("train.csv");
  config.mutable_data()->mutable_csv()->set_header(true);
  config.mutable_data()->mutable_label()->set_column("label");
  Feature* feature = config.add_features();
  feature->set_name("c");
  feature->mutable_categorical();
  config.mutable_model()->mutable_wide_deep()->set_embedding_dim(2);
  config.mutable_model()->mutable_wide_deep()->add_hidden_units(2);
  const auto effective = EffectiveJobConfig(config, "", BuiltInSpecs());
  EXPECT_TRUE(effective.ok()) << effective.status();
  const auto model = ModelSpec::Create(*effective, BuiltInSpecs());
  EXPECT_TRUE(model.ok()) << model.status();
  WorkerAssignment assignment;
  JobSpec* spec = assignment.mutable_job();
  spec->set_job_id("small-1");
  spec->set_worker_num(1);
  *spec->mutable_config() = *effective;
  for (const TableConfig& table : (*model)->tables()) *spec->add_tables() = table;
  for (TableConfig& table : *spec->mutable_tables()) {
    table.set_num_shards(1);
    spec->mutable_route()->add_tables()->add_owner(0);
  }
  spec->mutable_route()->add_pservers("127.0.0.1:1");
  spec->mutable_route()->set_generation(1);
  return assignment;
}

class JobRunnerTest : public testing::Test {
 protected:
  std::unique_ptr<JobRunner> Runner(const absl::Status& error, absl::Duration patience) {
    scheduler_.error = error;
    JobRunner::Options options = OptionsOf(Assignment());
    options.attempt_patience = patience;
    return std::make_unique<JobRunner>(std::move(options));
  }
  JobRunner::Options OptionsOf(WorkerAssignment assignment) {
    JobRunner::Options options;
    options.models = &BuiltInModels();
    options.member.assignment = std::move(assignment);
    options.member.scheduler = &scheduler_;
    options.scheduler_patience = absl::ZeroDuration();
    options.member.key = [] { return MemberKey{1, "secret"}; };
    options.member.transport = &transport_;
    options.member.clock = Clock::Real();
    options.env = Env::Real();
    options.log = [](const std::string&) {};
    return options;
  }
  FailingScheduler scheduler_;
  NoTransport transport_;
};

TEST_F(JobRunnerTest, WaitsForTheNextAttemptAfterWhatALossMayExplain) {
  for (const absl::Status& error :
       {absl::AbortedError("rank 0 is withdrawn"), absl::UnavailableError("no answer"),
        absl::DeadlineExceededError("pull 7 did not come")}) {
    const auto runner = Runner(error, absl::Hours(1));
    absl::Status status;
    std::thread thread([&] { status = runner->Run(); });
    while (runner->Progress().doing() != "waiting for the job's next attempt")
      std::this_thread::yield();
    EXPECT_EQ(runner->Progress().job_id(), "small-1");  // it still reports the job
    runner->Cancel();
    thread.join();
    EXPECT_EQ(status, error);
    EXPECT_TRUE(scheduler_.reports.empty());
  }
}

TEST_F(JobRunnerTest, ACallForWhichTheSchedulerHasNoMemoryIsRetried) {
  const auto runner = Runner(absl::ResourceExhaustedError("memory limit"), absl::Hours(1));
  scheduler_.errors_left = 1;
  const absl::Status status = runner->Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(scheduler_.reports.empty());
}

TEST_F(JobRunnerTest, ReportsTheErrorWhenNoAttemptFollows) {
  const auto runner = Runner(absl::AbortedError("fenced"), absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsAborted(runner->Run()));
  EXPECT_THAT(scheduler_.reports, testing::ElementsAre("fenced"));
}

TEST_F(JobRunnerTest, AFailureOfTheProcessEndsTheRunAndIsReported) {
  // The scheduler keeps the run waiting for a phase.
  const auto runner = Runner(absl::UnavailableError("no answer"), absl::Hours(1));
  absl::Status status;
  std::thread thread([&] { status = runner->Run(); });
  while (runner->Progress().doing() != "waiting for the job's next attempt")
    std::this_thread::yield();
  runner->Fail(absl::UnknownError("Traceback: ZeroDivisionError"));
  runner->Fail(absl::UnknownError("a later one"));
  thread.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(scheduler_.reports, testing::ElementsAre("Traceback: ZeroDivisionError"));

  scheduler_.reports.clear();
  const auto other = Runner(absl::UnavailableError("no answer"), absl::Hours(1));
  other->Fail(absl::UnknownError("Traceback: ZeroDivisionError"));
  EXPECT_EQ(other->Run().code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(scheduler_.reports, testing::ElementsAre("Traceback: ZeroDivisionError"));
}

TEST_F(JobRunnerTest, AFailureOfTheProcessIsOneOfNoAttempt) {
  WorkerAssignment assignment = Assignment();
  assignment.set_incarnation(5);
  scheduler_.error = absl::InternalError("defect");
  JobRunner runner(OptionsOf(assignment)), other(OptionsOf(assignment));
  runner.Run().IgnoreError();
  EXPECT_TRUE(other.Fail(absl::UnknownError("Traceback")));
  other.Run().IgnoreError();
  EXPECT_THAT(scheduler_.incarnations, testing::ElementsAre(5u, 0u));
  EXPECT_FALSE(runner.Fail(absl::UnknownError("Traceback"))) << "the run has ended without it";
  EXPECT_TRUE(other.Fail(absl::UnknownError("a later one"))) << "the first one is reported";
}

TEST_F(JobRunnerTest, UsesTheModelsOfItsOptions) {
  const ModelList none({});
  scheduler_.error = absl::InternalError("not reached");
  JobRunner::Options options = OptionsOf(Assignment());
  options.models = &none;
  const absl::Status status = JobRunner(std::move(options)).Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("wide_deep"));
}

TEST_F(JobRunnerTest, ReportsOtherErrorsAtOnce) {
  for (const absl::Status& error :
       {absl::InvalidArgumentError("NaN"), absl::FailedPreconditionError("the data has changed"),
        absl::NotFoundError("no file"), absl::DataLossError("damaged"),
        absl::InternalError("defect"), absl::ResourceExhaustedError("no memory")}) {
    scheduler_.reports.clear();
    EXPECT_EQ(Runner(error, absl::Hours(1))->Run(), error);
    EXPECT_EQ(scheduler_.reports.size(), 1u) << error;
  }
}

TEST_F(JobRunnerTest, AnInterruptedProgramCancelsTheJobAsTheMemberThatItIs) {
  class Scheduler : public FailingScheduler {
   public:
    absl::Status EndJob(const EndJobRequest& request) override {
      asked = request;
      return absl::OkStatus();
    }
    EndJobRequest asked;
  } scheduler;
  WorkerAssignment assignment = Assignment();
  assignment.set_incarnation(5);
  JobRunner::Options options = OptionsOf(assignment);
  options.member.scheduler = &scheduler;
  EXPECT_TRUE(JobRunner(std::move(options)).CancelJob().ok());
  EXPECT_TRUE(scheduler.asked.cancels());
  EXPECT_EQ(scheduler.asked.job_id(), "small-1");
  EXPECT_EQ(scheduler.asked.member_id(), 1u);
  EXPECT_EQ(scheduler.asked.secret(), "secret");
  EXPECT_EQ(scheduler.asked.incarnation(), 5u);
}

// Answers the first NextPhase with any phase, and all later ones with FINISH.
class OnePhase : public FailingScheduler {
 public:
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest&) override {
    NextPhaseReply reply;
    reply.set_ready(true);
    reply.mutable_phase()->set_number(1);
    reply.mutable_phase()->set_kind(std::exchange(kind, Phase::FINISH));
    reply.mutable_phase()->set_failure(failure);
    return reply;
  }
  Phase::Kind kind = Phase::FINISH;
  std::string failure;
};

TEST_F(JobRunnerTest, TheEndOfAJobThatIsNotDoneIsKnownButNoErrorOfTheRank) {
  for (const std::string failure : {"", "failed: no data"}) {
    OnePhase scheduler;
    scheduler.failure = failure;
    JobRunner::Options options = OptionsOf(Assignment());
    options.member.scheduler = &scheduler;
    JobRunner runner(std::move(options));
    EXPECT_TRUE(runner.Run().ok());
    EXPECT_EQ(runner.job_end().message(), failure.empty() ? "" : "the job has failed: no data");
  }
}

TEST_F(JobRunnerTest, RefusesPhasesThatNeedDataBeforeItHasLookedAtTheData) {
  for (const Phase::Kind kind : {Phase::TRAIN, Phase::EVAL}) {
    OnePhase scheduler;
    scheduler.kind = kind;
    JobRunner::Options options = OptionsOf(Assignment());
    options.member.scheduler = &scheduler;
    EXPECT_EQ(JobRunner(std::move(options)).Run().code(), absl::StatusCode::kInternal);
  }
}

TEST_F(JobRunnerTest, RefusesARankThatTheJobDoesNotHave) {
  WorkerAssignment outside = Assignment(), none = Assignment();
  outside.set_rank(1);
  none.mutable_job()->set_worker_num(0);
  for (const WorkerAssignment& assignment : {outside, none})
    EXPECT_EQ(JobRunner(OptionsOf(assignment)).Run().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
