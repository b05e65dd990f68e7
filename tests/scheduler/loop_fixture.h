// A scheduler without gRPC: a loop and the intake of its calls; and members that call it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "scheduler/service/request_intake.h"
#include "tests/common/meta_store/fake_meta_store.h"

namespace sluice {

template <class Reply>
Done<Reply> Into(std::promise<absl::StatusOr<Reply>>* promise) {
  return [promise](absl::StatusOr<Reply> answer) { promise->set_value(std::move(answer)); };
}

// Calls wait for their answers, unless their names say otherwise.
class LocalScheduler {
 public:
  struct Options : SchedulerLoop::Options {
    std::string default_output;
  };
  // For one pserver and one worker.
  static Options Small() {
    Options options;
    options.core.pserver_num = 1;
    options.core.pass_key = std::string(32, 'k');
    options.core.worker_num = 1;
    options.core.place = [](const std::vector<std::string>&, JobSpec* spec) {
      spec->mutable_route()->add_tables()->add_owner(0);
      return absl::OkStatus();
    };
    options.clock = Clock::Real();
    options.env = Env::Real();
    options.host = "h";
    options.default_output = absl::StrCat(testing::TempDir(), "local_scheduler.", getpid());
    std::filesystem::remove_all(options.default_output);
    options.log = [](const std::string&) {};
    options.job_log = [](const std::string&, const std::string&) {};
    return options;
  }

  LocalScheduler() : LocalScheduler(Small()) {}
  explicit LocalScheduler(const Options& options)
      : loop_(options), intake_(IntakeOptions(options, &loop_)) {}

  static RequestIntake::Options IntakeOptions(const Options& options, SchedulerLoop* loop) {
    RequestIntake::Options intake;
    intake.loop = loop;
    intake.clock = options.clock;
    intake.env = options.env;
    intake.pserver_num = options.core.pserver_num;
    intake.default_output = options.default_output;
    intake.log = options.log;
    return intake;
  }

  SchedulerLoop& loop() { return loop_; }
  RequestIntake& intake() { return intake_; }

  PollReply Report(const PollRequest& request) {
    std::promise<absl::StatusOr<PollReply>> answer;
    intake_.Poll(&request, Into(&answer));
    return *answer.get_future().get();
  }
  // Registers, and returns a report of the new member.
  PollRequest Join(const RegisterRequest& self) {
    const absl::StatusOr<RegisterReply> reply = intake_.Register(self);
    EXPECT_TRUE(reply.ok()) << reply.status();
    PollRequest request;
    request.set_member_id(reply->member_id());
    request.set_secret(reply->secret());
    return request;
  }
  absl::StatusOr<SubmitJobReply> Submit(const SubmitJobRequest& request,
                                        const std::string& request_id = "") {
    return intake_.SubmitJob(request, request_id);
  }
  absl::Status FailJob(const FailJobRequest& request) {
    return Await([&](DoneStatus done) { intake_.FailJob(request, std::move(done)); });
  }
  absl::Status EndJob(const EndJobRequest& request) {
    return Await([&](DoneStatus done) { intake_.EndJob(request, std::move(done)); });
  }
  absl::Status Cancel(const std::string& job_id) {
    CancelJobRequest request;
    request.set_job_id(job_id);
    return Await([&](DoneStatus done) { intake_.CancelJob(request, std::move(done)); });
  }
  absl::Status Scale(const ScaleJobRequest& request) {
    return Await([&](DoneStatus done) { intake_.ScaleJob(request, std::move(done)); });
  }
  absl::StatusOr<DrainPserverReply> Drain(const DrainPserverRequest& request) {
    std::promise<absl::StatusOr<DrainPserverReply>> answer;
    intake_.DrainPserver(request, Into(&answer));
    return answer.get_future().get();
  }
  absl::StatusOr<CheckpointJobReply> Checkpoint(const CheckpointJobRequest& request) {
    std::promise<absl::StatusOr<CheckpointJobReply>> answer;
    intake_.CheckpointJob(&request, Into(&answer));
    return answer.get_future().get();
  }
  absl::Status Shutdown() {
    return Await([&](DoneStatus done) { intake_.Shutdown(std::move(done)); });
  }
  bool AwaitState(JobState state) {
    for (int i = 0; i < 6000; ++i) {
      const ClusterStatus status = loop_.GetStatus();
      if (status.jobs_size() > 0 && status.jobs(0).state() == state) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  template <class Call>
  static absl::Status Await(Call call) {
    std::promise<absl::Status> answer;
    call([&answer](const absl::Status& status) { answer.set_value(status); });
    return answer.get_future().get();
  }

  SchedulerLoop loop_;
  RequestIntake intake_;
};

inline RegisterRequest Worker(uint32_t pid) {
  RegisterRequest request;
  request.set_protocol(1);
  request.set_role(ROLE_WORKER);
  request.set_pid(pid);
  request.set_life(1000 + pid);
  request.set_process_space("space");
  return request;
}

inline SubmitJobRequest SmallJob(const std::string& name, uint32_t workers = 1) {
  SubmitJobRequest request;
  JobConfig* job = request.mutable_config();
  job->set_name(name);
  job->set_worker_num(workers);
  job->mutable_data()->set_format(DataConfig::LIBSVM);
  job->mutable_data()->add_train_files("t");
  Feature* feature = job->add_features();
  feature->set_name("f");
  feature->mutable_numeric();
  job->mutable_model()->mutable_wide_deep();
  return request;
}

// A pserver and a worker, which have registered, and their reports.
struct TwoMembers {
  explicit TwoMembers(LocalScheduler* s) : scheduler(s) {
    RegisterRequest pserver = Worker(2);
    pserver.set_role(ROLE_PSERVER);
    pserver.set_address("ps");
    of_pserver = s->Join(pserver);
    of_worker = s->Join(Worker(1));
    s->Report(of_worker);
  }
  // The pserver reports the tables of its only job as open.
  void OpenTables(const std::string& job_id) {
    const PollReply told = scheduler->Report(of_pserver);
    ASSERT_EQ(told.host_size(), 1);
    HostedJob* hosted = of_pserver.add_hosted();
    hosted->set_job_id(job_id);
    hosted->set_instance(told.host(0).instance());
    hosted->set_generation(told.host(0).route().generation());
    scheduler->Report(of_pserver);
  }

  LocalScheduler* const scheduler;
  PollRequest of_pserver, of_worker;
};

// Schedulers that live one after another on one store.
class KeptState : public testing::Test {
 protected:
  LocalScheduler::Options NextLife() {
    LocalScheduler::Options options = LocalScheduler::Small();
    store_ = std::make_unique<FakeMetaStore>(contents_);
    options.store = store_.get();
    options.term = *store_->AcquireTerm();
    options.core.first_id = options.core.first_version = options.term << 40;
    options.stored = Stored();
    options.core.next = options.stored.next;
    return options;
  }
  StoredJobs Stored() const { return *ParseStoredJobs(*FakeMetaStore(contents_).Scan("")); }
  std::vector<std::string> StoredIds() const {
    std::vector<std::string> ids;
    for (const JobRecord& job : Stored().jobs) ids.push_back(job.job_id());
    return ids;
  }

  const std::shared_ptr<FakeMetaStore::Contents> contents_ =
      std::make_shared<FakeMetaStore::Contents>();
  std::unique_ptr<FakeMetaStore> store_;
};

}  // namespace sluice
