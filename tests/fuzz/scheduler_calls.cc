// Makes any calls to a scheduler's core with running jobs in all modes: requests of any fields,
// most with the identity of a living member, while time passes and members are lost.
//
// Requests of members pass TakeIn first, as in RequestIntake.
//
// Checks: calls return statuses; desired states and status reports can always be made; why a job
// failed is one printable line, of which any number fit into a status.
#include <memory>

#include "common/base/printable.h"
#include "scheduler/job_spec_builder.h"
#include "scheduler/request_text.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/fuzz/fuzz.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

constexpr int kMostCalls = 80;
constexpr uint32_t kRanks = 2;

class Calls {
 public:
  explicit Calls(FuzzedDataProvider* input) : input_(input) {
    cluster_.JoinAll(2, kRanks);
    JobConfig config = FakeCluster::Config(input->ConsumeIntegralInRange(-1, 1), kRanks, 2);
    if (input->ConsumeBool()) config.mutable_recovery()->set_max_losses(2);
    const auto job_id = cluster_.Submit(config);
    FUZZ_CHECK(job_id.ok());
    job_id_ = *job_id;
    cluster_.PollAll();
  }

  void Run() {
    for (int i = 0; i < kMostCalls && input_->remaining_bytes() > 0; ++i) {
      Call();
      cluster_.core_.TakeChanged();
      cluster_.core_.TakeRecords();
      cluster_.core_.TakeLines();
      cluster_.WriteOutputs();
    }
    const ClusterStatus status = cluster_.core_.GetStatus(cluster_.now_);
    FUZZ_CHECK(status.jobs_size() > 0);
    for (const JobStatus& job : status.jobs()) {
      FUZZ_CHECK(IsPrintableLine(job.message()));
      FUZZ_CHECK(job.message().size() <= 10 * kMaxSentenceBytes);
    }
  }

 private:
  // A request with any fields.
  template <class Request>
  Request Any() {
    Request request;
    if (!request.ParseFromString(input_->ConsumeRandomLengthString(300))) request.Clear();
    return request;
  }
  // Makes the call with the request as the scheduler takes it in; drops one that it would refuse.
  template <class Request, class Call>
  void TakenIn(const Request& request, Call call) {
    const auto taken = TakeIn(request);
    if (taken.ok()) call(**taken);
  }
  uint64_t Member() {
    const auto& ids = input_->ConsumeBool() ? cluster_.workers_ : cluster_.pservers_;
    return ids[input_->ConsumeIntegralInRange<size_t>(0, ids.size() - 1)];
  }
  bool Mostly() { return input_->ConsumeIntegralInRange(0, 7) != 0; }
  // A request of a worker of the job.
  template <class Request>
  Request OfRank() {
    Request request = Any<Request>();
    if (!Mostly()) return request;
    const auto rank = input_->ConsumeIntegralInRange<uint32_t>(0, kRanks - 1);
    request.set_job_id(job_id_);
    request.set_rank(rank);
    request.set_incarnation(cluster_.Incarnation(job_id_, rank));
    if (Mostly()) request.clear_pass();  // the core's caller shows its own
    return request;
  }
  // Mostly reports the end of the phase that the rank was told last.
  void NextPhase() {
    auto request = OfRank<NextPhaseRequest>();
    Phase* const told = &told_[request.rank() % kRanks];
    if (Mostly()) {
      PhaseReport* const report = request.mutable_report();
      report->set_number(told->number());
      if (told->kind() == Phase::INDEX) report->mutable_index();
      if (told->kind() == Phase::TRAIN) report->mutable_train();
      if (told->kind() == Phase::EVAL) report->mutable_eval();
      if (told->kind() == Phase::SAVE) report->mutable_save();
    }
    TakenIn(request, [&](const NextPhaseRequest& taken) {
      const auto reply = cluster_.core_.NextPhase(taken, cluster_.now_);
      if (reply.ok() && reply->ready()) *told = reply->phase();
    });
  }
  // Mostly ends the task that the rank has, and asks for another one.
  void NextTask() {
    auto request = OfRank<NextTaskRequest>();
    const uint32_t rank = request.rank() % kRanks;
    if (Mostly()) {
      request.set_epoch(told_[rank].epoch());
      request.set_finished_task(leased_[rank]);
      request.set_number(++asked_[rank]);
    }
    TakenIn(request, [&](const NextTaskRequest& taken) {
      const auto reply = cluster_.core_.NextTask(taken, cluster_.now_);
      if (reply.ok()) leased_[rank] = reply->task().id();
    });
  }
  template <class Request>
  Request OfJob() {
    Request request = Any<Request>();
    if (Mostly()) request.set_job_id(job_id_);
    return request;
  }

  void Report() {
    PollRequest request = Any<PollRequest>();
    if (Mostly()) request.set_member_id(Member());
    const PollReply& told = cluster_.desired_[request.member_id()];
    // About the jobs that the member was told of.
    for (HostedJob& hosted : *request.mutable_hosted()) {
      if (told.host_size() == 0 || !Mostly()) continue;
      hosted.set_job_id(told.host(0).job_id());
      hosted.set_instance(told.host(0).instance());
      if (Mostly()) hosted.set_generation(told.host(0).route().generation());
    }
    if (request.has_progress() && Mostly()) {
      request.mutable_progress()->set_job_id(job_id_);
      request.mutable_progress()->set_incarnation(told.assignment().incarnation());
    }
    if (request.has_cut() && Mostly()) {
      request.mutable_cut()->set_job_id(job_id_);
      request.mutable_cut()->set_incarnation(told.assignment().incarnation());
    }
    TakenIn(request, [&](const PollRequest& taken) {
      cluster_.core_.Poll(taken, cluster_.now_).IgnoreError();
    });
  }
  void Register() {
    // One after the other: compilers evaluate arguments in different orders.
    const Role role = input_->ConsumeBool() ? ROLE_WORKER : ROLE_PSERVER;
    const uint32_t rank = input_->ConsumeIntegralInRange(0, 2);
    const uint32_t pid = input_->ConsumeIntegralInRange(1, 3);
    RegisterRequest request = FakeCluster::Registration(role, rank, pid);
    request.MergeFrom(Any<RegisterRequest>());
    TakenIn(request, [&](const RegisterRequest& taken) {
      const auto reply = cluster_.core_.Register(taken, cluster_.now_);
      if (!reply.ok() || reply->member_id() == 0) return;
      (taken.role() == ROLE_PSERVER ? cluster_.pservers_ : cluster_.workers_)
          .push_back(reply->member_id());
    });
  }
  // Checks a submission as JobSubmission does, up to the files that it would read.
  void Submit() {
    JobConfig config = Any<SubmitJobRequest>().config();
    // Patterns would be looked for in the machine's folders.
    for (std::string& file : *config.mutable_data()->mutable_train_files()) file = "/data/train";
    for (std::string& file : *config.mutable_data()->mutable_eval_files()) file = "/data/eval";
    const auto draft = BuildJobDraft(config, /*pserver_num=*/1, &env_);
    if (!draft.ok()) return;
    auto job = cluster_.core_.PrepareJob(draft->config, draft->tables, "/output", 1);
    if (job.ok()) cluster_.core_.AddJob(*std::move(job), cluster_.now_).IgnoreError();
  }
  void Call() {
    CoreOfKnownCallers& core = cluster_.core_;
    const absl::Time now = cluster_.now_;
    switch (input_->ConsumeIntegralInRange(0, 18)) {
      case 0:
        return Register();
      case 1:
      case 2:
      case 3:
        return Report();
      case 4:
        return cluster_.PollAll();
      case 5:
        return cluster_.Advance(absl::Milliseconds(input_->ConsumeIntegralInRange(0, 20000)));
      case 6: {
        LeaveRequest request = Any<LeaveRequest>();
        if (Mostly()) request.set_member_id(Member());
        return TakenIn(request, [&](const LeaveRequest& taken) { core.Leave(taken, now); });
      }
      case 7:
        return TakenIn(Any<MemberEndedRequest>(),
                       [&](const MemberEndedRequest& taken) { core.MemberEnded(taken, now); });
      case 8:
      case 9:
        return NextPhase();
      case 10:
      case 11:
        return NextTask();
      case 12:
        return core.GetRoute(OfJob<GetRouteRequest>()).IgnoreError();
      case 13:
        return TakenIn(OfJob<FailJobRequest>(), [&](const FailJobRequest& taken) {
          core.FailJob(taken, now).IgnoreError();
        });
      case 14:
        return core.WatchJob(OfJob<WatchJobRequest>()).IgnoreError();
      case 15: {
        const auto request = OfJob<CheckpointJobRequest>();
        return core.CheckpointJob(request.job_id(), request.number(), now).IgnoreError();
      }
      case 16: {
        const auto request = OfJob<ScaleJobRequest>();
        return core.ScaleJob(request.job_id(), request.worker_num(), now).IgnoreError();
      }
      case 17:
        return core.DrainPserver(Any<DrainPserverRequest>(), now).IgnoreError();
      default:
        return Submit();
    }
  }

  FuzzedDataProvider* const input_;
  FakeCluster cluster_{2, 2};
  MemoryEnv env_;
  std::string job_id_;
  // By rank.
  Phase told_[kRanks];
  uint64_t leased_[kRanks] = {}, asked_[kRanks] = {};
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  sluice::Calls(&input).Run();
  return 0;
}
