// Makes any calls to a scheduler's core with running jobs in all modes: requests of any fields,
// most with the identity of a living member, while time passes and members are lost. Reports of
// data and of groups take their numbers from a dictionary: small, true and huge ones.
//
// Requests of members pass TakeIn first, as in RequestIntake.
//
// Checks: calls return statuses; desired states and status reports can always be made; why a job
// failed is one printable line, of which any number fit into a status.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "scheduler/core/request_text.h"
#include "scheduler/service/job_spec_builder.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/fuzz/fuzz.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

constexpr int kMostCalls = 80;
constexpr size_t kMostBytes = 4096;  // of a request
constexpr uint32_t kRanks = 2;
// The mode after sync, async and Geo (-1, 0, 1): sync whose workers keep the dense tables.
constexpr int kCollective = 2;

class Calls {
 public:
  explicit Calls(FuzzedDataProvider* input)
      : input_(input),
        mode_(input->ConsumeIntegralInRange(-1, kCollective)),
        pservers_(mode_ == kCollective && input->ConsumeBool() ? 0 : 2),
        cluster_(pservers_, kRanks) {
    cluster_.JoinAll(pservers_, kRanks);
    JobConfig config = FakeCluster::Config(mode_ == kCollective ? -1 : mode_, kRanks, 2);
    if (input->ConsumeBool()) config.mutable_recovery()->set_max_losses(2);
    if (mode_ == kCollective) {
      SyncConfigs* const sync = config.mutable_strategy()->mutable_sync_configs();
      sync->set_dense(SyncConfigs::COLLECTIVE);
      if (input->ConsumeBool()) sync->set_on_worker_loss(SyncConfigs::SHRINK);
      config.mutable_checkpoint()->set_every_steps(3);
      config.mutable_checkpoint()->set_keep(2);
      config.set_output_dir("/out");
    }
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
      for (const OutputAction& action : cluster_.WriteOutputs()) {
        if (action.kind != OutputAction::kCheckpoint) continue;
        cluster_.core_.CheckpointWritten(action.job_id, action.number, absl::OkStatus(), "",
                                         cluster_.now_);
      }
    }
    const ClusterStatus status = cluster_.core_.operators().GetStatus(cluster_.now_);
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
    if (!request.ParseFromString(input_->ConsumeRandomLengthString(kMostBytes))) request.Clear();
    return request;
  }
  // Makes the call with the request as the scheduler takes it in; drops one that it would refuse.
  template <class Request, class Call>
  void TakenIn(const Request& request, Call call) {
    const auto taken = TakeIn(request);
    if (taken.ok()) call(**taken);
  }
  uint64_t Member() {
    const bool worker = input_->ConsumeBool() || cluster_.pservers_.empty();
    const auto& ids = worker ? cluster_.workers_ : cluster_.pservers_;
    return ids[input_->ConsumeIntegralInRange<size_t>(0, ids.size() - 1)];
  }
  bool Mostly() { return input_->ConsumeIntegralInRange(0, 7) != 0; }
  // A number near the true one, or one that overflows what is computed from it.
  uint64_t Number(uint64_t truth) {
    const uint64_t numbers[] = {truth,     truth + 1,         truth - 1,         0,
                                1,         UINT32_MAX,        uint64_t{1} << 46, uint64_t{1} << 62,
                                INT64_MAX, uint64_t{1} << 63, UINT64_MAX - 1,    UINT64_MAX};
    return input_->PickValueInArray(numbers);
  }
  int Count() {
    const int counts[] = {0, 1, kRanks, kRanks + 1, 100, 4096};
    return input_->PickValueInArray(counts);
  }
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
      if (told->kind() == Phase::EVAL) *report->mutable_eval() = Ended(1).eval();
      if (told->kind() == Phase::SAVE) report->mutable_save();
    }
    TakenIn(request, [&](const NextPhaseRequest& taken) {
      const auto reply = cluster_.core_.NextPhase(taken, cluster_.now_);
      if (reply.ok() && reply->ready()) *told = reply->phase();
    });
  }
  // Ends INDEX with any sizes and numbers of the data.
  void Index() {
    auto request = OfRank<NextPhaseRequest>();
    Phase* const told = &told_[request.rank() % kRanks];
    request.mutable_report()->set_number(told->number());
    IndexReport* const index = request.mutable_report()->mutable_index();
    index->set_examples(Number(50));
    const int files = Count();
    const uint64_t bytes = Number(250);
    for (int i = 0; i < files; ++i) {
      DataFile* const file = index->add_files();
      file->set_path(absl::StrCat("part-", request.rank(), "-", i));
      file->set_bytes(i == 0 ? Number(250) : bytes);
    }
    const int pieces = Count();
    const uint64_t lines = Number(50);
    for (int i = 0; i < pieces; ++i) {
      index->mutable_pieces()->add_file(0);
      index->mutable_pieces()->add_begin(10 * (request.rank() % kRanks * pieces + i));
      index->mutable_pieces()->add_end(10 * (request.rank() % kRanks * pieces + i + 1));
      index->mutable_pieces()->add_examples(lines);
    }
    SeenFile* const seen = index->add_train_seen();
    seen->set_path("train.csv");
    seen->set_bytes(Mostly() ? uint64_t{10} * kRanks * pieces : Number(2000));
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
  // What a worker that runs the job says of the group of the ranks.
  void Group() {
    PollRequest request;
    request.set_member_id(
        cluster_.workers_[input_->ConsumeIntegralInRange<size_t>(0, cluster_.workers_.size() - 1)]);
    const WorkerAssignment& told = cluster_.desired_[request.member_id()].assignment();
    request.set_seen_version(cluster_.desired_[request.member_id()].version());
    request.mutable_progress()->set_job_id(told.job().job_id());
    request.mutable_progress()->set_rank(told.rank());
    request.mutable_progress()->set_incarnation(told.incarnation());
    RankGroupReport* const group = request.mutable_group();
    group->set_job_id(told.job().job_id());
    group->set_rank(Mostly() ? told.rank() : static_cast<uint32_t>(Number(told.rank())));
    group->set_incarnation(Mostly() ? told.incarnation() : Number(told.incarnation()));
    group->set_generation(Mostly() ? told.job().route().generation()
                                   : Number(told.job().route().generation()));
    const size_t card_bytes[] = {0, 10, kMaxReportedCardBytes, kMaxReportedCardBytes + 1};
    group->set_card(std::string(input_->PickValueInArray(card_bytes), 'c'));
    group->set_holds_tables(input_->ConsumeBool());
    if (!Mostly()) group->set_error("the rank gave up");
    group->set_closed_steps(Number(told_[told.rank() % kRanks].first_step() + 3));
    const int totals = Count();
    for (int i = 0; i < totals; ++i) group->add_totals()->set_examples(30);
    if (totals > 0) {
      group->mutable_totals(0)->set_examples(Number(30));
      group->mutable_totals(totals - 1)->set_steps(Number(3));
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
    auto job = cluster_.core_.operators().PrepareJob(draft->config, draft->tables, "/output", 1);
    if (job.ok()) cluster_.core_.operators().AddJob(*std::move(job), cluster_.now_).IgnoreError();
  }
  void Call() {
    CoreOfKnownCallers& core = cluster_.core_;
    const absl::Time now = cluster_.now_;
    switch (input_->ConsumeIntegralInRange(0, 22)) {
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
        return TakenIn(Any<MemberEndedRequest>(), [&](const MemberEndedRequest& taken) {
          core.members().MemberEnded(taken, now);
        });
      case 8:
      case 9:
        return NextPhase();
      case 10:
      case 11:
        return NextTask();
      case 12:
        return core.workers().GetRoute(OfJob<GetRouteRequest>()).IgnoreError();
      case 13:
        return TakenIn(OfJob<FailJobRequest>(), [&](const FailJobRequest& taken) {
          core.FailJob(taken, now).IgnoreError();
        });
      case 14:
        return core.operators().WatchJob(OfJob<WatchJobRequest>()).IgnoreError();
      case 15: {
        const auto request = OfJob<CheckpointJobRequest>();
        return core.operators()
            .CheckpointJob(request.job_id(), request.number(), now)
            .IgnoreError();
      }
      case 16: {
        const auto request = OfJob<ScaleJobRequest>();
        return core.operators().ScaleJob(request.job_id(), request.worker_num(), now).IgnoreError();
      }
      case 17:
        return core.DrainPserver(Any<DrainPserverRequest>(), now).IgnoreError();
      case 19:
        return Group();
      case 20:
        return Index();
      case 21: {
        // As RequestIntake does it.
        const auto request = OfJob<CancelJobRequest>();
        return core.operators()
            .CancelJob(request.job_id(), now, PrintableLine(request.failure()))
            .IgnoreError();
      }
      case 22:
        return TakenIn(OfJob<EndJobRequest>(),
                       [&](const EndJobRequest& taken) { core.EndJob(taken, now).IgnoreError(); });
      default:
        return Submit();
    }
  }

  FuzzedDataProvider* const input_;
  const int mode_;
  const uint32_t pservers_;
  FakeCluster cluster_;
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
