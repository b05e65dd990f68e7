// A core with fake members and a fake clock. Every step is an explicit call; nothing runs by
// itself.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/eval/eval_accumulator.h"
#include "tests/scheduler/core_of_known_callers.h"

namespace sluice {

class FakeCluster {
 public:
  explicit FakeCluster(uint32_t pservers = 1, uint32_t workers = 2)
      : FakeCluster(Options(pservers, workers)) {}
  explicit FakeCluster(SchedulerCore::Options options) : core_(std::move(options), now_) {}

  static SchedulerCore::Options Options(uint32_t pservers, uint32_t workers) {
    SchedulerCore::Options options;
    options.cluster = "test";
    options.pserver_num = pservers;
    options.worker_num = workers;
    options.pass_key = std::string(32, 'k');
    options.place = [](const std::vector<std::string>& addresses, JobSpec* spec) {
      spec->mutable_route()->set_generation(1);
      spec->mutable_route()->mutable_pservers()->Assign(addresses.begin(), addresses.end());
      // One table with a shard on every pserver.
      spec->mutable_route()->clear_tables();
      TableRoute* const table = spec->mutable_route()->add_tables();
      for (uint32_t i = 0; i < addresses.size(); ++i) table->add_owner(i);
      return absl::OkStatus();
    };
    return options;
  }

  // The effective configuration of a job. `k_steps`: -1 for sync, 0 for async, otherwise Geo.
  static JobConfig Config(int k_steps, uint32_t workers, uint32_t epochs = 1) {
    JobConfig config;
    config.set_name("job");
    config.set_worker_num(workers);
    config.mutable_train()->set_batch_size(10);
    config.mutable_train()->set_epochs(epochs);
    config.mutable_strategy()->set_a_sync(k_steps >= 0);
    config.mutable_strategy()->mutable_a_sync_configs()->set_k_steps(k_steps < 0 ? 0 : k_steps);
    config.mutable_data()->set_task_bytes(100);
    config.mutable_data()->add_eval_files("e");
    // A lost worker ends the job, unless a test wants it replaced.
    config.mutable_recovery()->set_max_losses(0);
    return config;
  }

  static RegisterRequest Registration(Role role, uint32_t rank, uint32_t pid = 1) {
    RegisterRequest request;
    request.set_protocol(1);
    request.set_role(role);
    request.set_rank(rank);
    request.set_host("h");
    request.set_pid(pid);
    request.set_life(1000 + pid);
    request.set_process_space("space");
    if (role == ROLE_PSERVER) request.set_address(absl::StrCat("ps", rank));
    return request;
  }
  uint64_t Join(Role role, uint32_t rank, uint32_t pid = 1) {
    return Join(Registration(role, rank, pid));
  }
  uint64_t Join(const RegisterRequest& request) {
    const auto reply = core_.Register(request, now_);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->member_id() : 0;
  }
  void JoinAll(uint32_t pservers, uint32_t workers) {
    for (uint32_t i = 0; i < pservers; ++i) pservers_.push_back(Join(ROLE_PSERVER, i));
    for (uint32_t i = 0; i < workers; ++i) workers_.push_back(Join(ROLE_WORKER, i));
    PollAll();
  }

  // Sends one report of a member that does at once what it is told: a pserver hosts, a worker runs
  // or stops.
  absl::StatusOr<PollReply> Poll(uint64_t id) {
    BeginOutputs();
    auto& state = desired_[id];
    PollRequest request;
    request.set_member_id(id);
    request.set_seen_version(state.version());
    for (const JobSpec& spec : state.host()) {
      HostedJob* hosted = request.add_hosted();
      hosted->set_job_id(spec.job_id());
      hosted->set_instance(spec.instance());
      hosted->set_generation(spec.route().generation());
      hosted->mutable_staleness()->set_pushes(3);
      hosted->mutable_staleness()->set_max(2);
      if (const auto held = held_.find(id); held != held_.end() && spec.incarnations_size() > 0)
        hosted->mutable_ranks()->Assign(held->second.begin(), held->second.end());
      if (const auto cut = hosted_cuts_.find(id); cut != hosted_cuts_.end())
        *hosted->mutable_cut() = cut->second;
      if (const auto more = hosted_more_.find(id); more != hosted_more_.end()) {
        if (more->second.has_value()) {
          hosted->MergeFrom(*more->second);
        } else {
          hosted->clear_generation();  // it is opening the tables
        }
      }
    }
    if (const auto cut = worker_cuts_.find(id); cut != worker_cuts_.end())
      *request.mutable_cut() = cut->second;
    if (const auto group = groups_.find(id); group != groups_.end())
      *request.mutable_group() = group->second;
    if (state.has_assignment()) {
      request.mutable_progress()->set_job_id(state.assignment().job().job_id());
      request.mutable_progress()->set_rank(state.assignment().rank());
      request.mutable_progress()->set_incarnation(state.assignment().incarnation());
      request.mutable_progress()->set_step(steps_done_);
    }
    auto reply = core_.Poll(request, now_);
    // A version that the member has seen comes without the state.
    if (reply.ok() && reply->version() != state.version()) state = *reply;
    return reply;
  }
  // Makes the output folders of started jobs ready at once.
  void BeginOutputs() {
    if (!outputs_begin_) return;
    const ClusterStatus status = core_.operators().GetStatus(now_);
    for (const JobStatus& job : status.jobs()) core_.OutputBegun(job.job_id(), now_);
  }
  // Lets all members report until nothing changes any more.
  void PollAll() {
    for (int i = 0; i < 4; ++i) {
      for (const uint64_t id : pservers_) Poll(id).status().IgnoreError();
      for (const uint64_t id : workers_) Poll(id).status().IgnoreError();
    }
  }

  // Submits a job of this core, whose record nobody keeps. Its tables are those of `config`.
  static absl::StatusOr<std::string> SubmitTo(SchedulerCore* core, const JobConfig& config,
                                              absl::Time now,
                                              std::unique_ptr<const ResumePoint> resume = nullptr) {
    absl::StatusOr<std::unique_ptr<Job>> job = core->operators().PrepareJob(
        config, {config.tables().begin(), config.tables().end()}, "/output",
        /*first_number=*/1, {}, std::move(resume));
    if (!job.ok()) return job.status();
    return core->operators().AddJob(*std::move(job), now);
  }
  absl::StatusOr<std::string> Submit(const JobConfig& config,
                                     std::unique_ptr<const ResumePoint> resume = nullptr) {
    return SubmitTo(&core_, config, now_, std::move(resume));
  }
  // Submits a job and lets members report until it runs.
  std::string Run(const JobConfig& config) {
    const auto job_id = Submit(config);
    EXPECT_TRUE(job_id.ok()) << job_id.status();
    PollAll();
    EXPECT_EQ(State(*job_id), JOB_RUNNING) << Status(*job_id).message();
    return *job_id;
  }
  // `member_id`: of the pserver that asks itself; 0: an operator asks.
  absl::StatusOr<DrainPserverReply> Drain(uint32_t rank, bool cancel = false,
                                          uint64_t member_id = 0) {
    DrainPserverRequest request;
    request.set_rank(rank);
    request.set_cancel(cancel);
    request.set_member_id(member_id);
    return core_.DrainPserver(request, now_);
  }
  JobStatus Status(const std::string& job_id) {
    WatchJobRequest request;
    request.set_job_id(job_id);
    return core_.operators().WatchJob(request)->status();
  }
  JobState State(const std::string& job_id) { return Status(job_id).state(); }

  // Finds the rank's worker by the desired state that it was last told.
  uint64_t Incarnation(const std::string& job_id, uint32_t rank) {
    for (const auto& [id, state] : desired_) {
      if (state.assignment().job().job_id() == job_id && state.assignment().rank() == rank) {
        incarnations_[{job_id, rank}] = state.assignment().incarnation();
      }
    }
    return incarnations_[{job_id, rank}];
  }
  absl::StatusOr<NextPhaseReply> Phase(const std::string& job_id, uint32_t rank,
                                       const PhaseReport& report = PhaseReport()) {
    NextPhaseRequest request;
    request.set_job_id(job_id);
    request.set_rank(rank);
    request.set_incarnation(Incarnation(job_id, rank));
    *request.mutable_report() = report;
    return core_.NextPhase(request, now_);
  }
  absl::StatusOr<NextTaskReply> Task(const std::string& job_id, uint32_t rank, uint32_t epoch,
                                     uint64_t finished, uint64_t number = 0,
                                     uint64_t examples = 0) {
    NextTaskRequest request;
    request.set_job_id(job_id);
    request.set_rank(rank);
    request.set_incarnation(Incarnation(job_id, rank));
    request.set_epoch(epoch);
    request.set_finished_task(finished);
    request.set_finished_examples(examples);
    request.set_number(number);
    return core_.NextTask(request, now_);
  }
  absl::StatusOr<GatherReply> Gather(const std::string& job_id, uint32_t rank, uint32_t epochs_done,
                                     uint32_t number, const std::string& data) {
    GatherRequest request;
    request.set_job_id(job_id);
    request.set_rank(rank);
    request.set_incarnation(Incarnation(job_id, rank));
    request.set_epochs_done(epochs_done);
    request.set_number(number);
    request.set_what("sum");
    request.set_data(data);
    return core_.Gather(request);
  }
  // Pretends to write the outputs, and reports that they are written.
  std::vector<OutputAction> WriteOutputs() {
    std::vector<OutputAction> actions = core_.TakeActions();
    for (const OutputAction& action : actions) {
      if (action.kind == OutputAction::kEnded) core_.OutputEnded(action.job_id, absl::OkStatus());
    }
    return actions;
  }
  // Advances the clock with ticks on the way, as in a running scheduler.
  void Advance(absl::Duration d) {
    for (const absl::Time end = now_ + d; now_ < end;) {
      now_ = std::min(end, now_ + absl::Milliseconds(250));
      core_.Tick(now_);
    }
  }
  // Stops the scheduler for this long. When it continues, its timer runs first.
  void Pause(absl::Duration d) {
    now_ += d;
    core_.Tick(now_);
  }

  bool outputs_begin_ = true;
  absl::Time now_ = absl::UnixEpoch();
  CoreOfKnownCallers core_;
  std::vector<uint64_t> pservers_, workers_;
  std::map<uint64_t, PollReply> desired_;
  uint64_t steps_done_ = 0;  // that workers report
  // Reports of members about a checkpoint, by member id.
  std::map<uint64_t, HostedCut> hosted_cuts_;
  std::map<uint64_t, WorkerCut> worker_cuts_;
  std::map<uint64_t, RankGroupReport> groups_;
  // Other reports of pservers, by member id; nothing: they have not opened the tables.
  std::map<uint64_t, std::optional<HostedJob>> hosted_more_;
  // By pserver: what it reports to hold of each rank once a rank was replaced.
  std::map<uint64_t, std::vector<RankPosition>> held_;
  std::map<std::pair<std::string, uint32_t>, uint64_t> incarnations_;
};

// The report of a rank that has ended a phase; in EVAL it has seen an example of each label.
inline PhaseReport Ended(uint64_t number) {
  // Made once: an accumulator has 16 MiB.
  static const EvalSums* const kSums = [] {
    EvalAccumulator sums;
    for (const float label : {0.0f, 1.0f}) sums.Add(0.5f, label, 1.0f);
    return new EvalSums(sums.ToProto());
  }();
  PhaseReport report;
  report.set_number(number);
  *report.mutable_eval() = *kSums;
  return report;
}
// The report of one of two ranks that has counted its half of one file.
inline PhaseReport Indexed(uint64_t examples, uint32_t rank = 0, uint32_t ranks = 2) {
  PhaseReport report = Ended(1);
  report.clear_eval();
  IndexReport* const index = report.mutable_index();
  index->set_examples(examples);
  SeenFile* const file = index->add_train_seen();
  file->set_path("train.csv");
  file->set_bytes(1000 * ranks);
  index->mutable_pieces()->add_file(0);
  index->mutable_pieces()->add_begin(1000 * rank);
  index->mutable_pieces()->add_end(1000 * (rank + 1));
  index->mutable_pieces()->add_examples(examples);
  return report;
}
// The report of a worker that takes over a rank.
inline PhaseReport SeenAgain(uint64_t examples, uint32_t rank) {
  PhaseReport report = Indexed(examples, rank);
  report.set_number(0);
  return report;
}
inline PhaseReport Trained(uint64_t number, uint64_t examples) {
  PhaseReport report = Ended(number);
  report.mutable_train()->set_examples(examples);
  report.mutable_train()->set_weight_sum(static_cast<double>(examples));
  report.mutable_train()->set_loss_sum(static_cast<double>(examples) / 2);
  return report;
}

// Reports the end of INDEX for both ranks of a sync job and returns the TRAIN phase.
inline Phase StartTraining(FakeCluster* c, const std::string& job) {
  EXPECT_EQ(c->Phase(job, 0)->phase().kind(), Phase::INDEX);
  EXPECT_FALSE(c->Phase(job, 0, Indexed(50, 0))->ready());
  return c->Phase(job, 1, Indexed(50, 1))->phase();
}

}  // namespace sluice
