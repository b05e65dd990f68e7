#include "worker/job_runner.h"

#include <gmock/gmock.h>

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
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest&) override { return error; }
  absl::Status FailJob(const FailJobRequest& request) override {
    reports.push_back(request.message());
    return absl::OkStatus();
  }
  absl::Status error;
  std::vector<std::string> reports;
};

// Nobody answers.
class NoTransport : public Transport {
 public:
  std::unique_ptr<Stream> Connect(const std::string&, StreamCallbacks) override { return nullptr; }
  absl::StatusOr<std::string> Call(const std::string&, const std::string&, const std::string&,
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
    JobRunner::Options options;
    options.assignment = Assignment();
    options.scheduler = &scheduler_;
    options.scheduler_patience = absl::ZeroDuration();
    options.member_id = [] { return uint64_t{1}; };
    options.attempt_patience = patience;
    options.transport = &transport_;
    options.clock = Clock::Real();
    options.log = [](const std::string&) {};
    return std::make_unique<JobRunner>(std::move(options));
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

TEST_F(JobRunnerTest, ReportsTheErrorWhenNoAttemptFollows) {
  const auto runner = Runner(absl::AbortedError("fenced"), absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsAborted(runner->Run()));
  EXPECT_THAT(scheduler_.reports, testing::ElementsAre("fenced"));
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

}  // namespace
}  // namespace sluice
