// Runs a worker's job beside a real pserver, under a scheduler whose answers the input changes:
// assignments, phases, tasks, routes and checkpoints. The input also changes the pserver's answers
// to calls. Other inputs are answers to a member that registers and reports.
//
// Checks: a run ends once it is cancelled, with a status; a member hands over no state after its
// end.
#include <fcntl.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/config/job_config.h"
#include "common/daemon/member_session.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"
#include "server/service/pserver.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/transport/in_process_transport.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/worker/fake_scheduler.h"
#include "worker/service/job_runner.h"

namespace sluice {
namespace {

constexpr char kPserver[] = "127.0.0.1:1";
constexpr absl::Duration kLongestRun = absl::Milliseconds(150);
constexpr int kMostAnswers = 12;

// The machine's files, none of which can be changed.
class ReadOnlyEnv : public Env {
 public:
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    return Env::Real()->ReadFile(path);
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override {
    return Env::Real()->ReadRange(path, offset, n);
  }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    return Env::Real()->FileSize(path);
  }
  absl::Status WriteFile(const std::string&, absl::Span<const absl::string_view>) override {
    return Refused();
  }
  absl::Status RenameFile(const std::string&, const std::string&) override { return Refused(); }
  absl::Status MakeDirs(const std::string&) override { return absl::OkStatus(); }
  absl::Status MakeNewDir(const std::string&) override { return Refused(); }
  absl::Status RemoveDir(const std::string&) override { return Refused(); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return Env::Real()->List(path);
  }
  bool Exists(const std::string& path) override { return Env::Real()->Exists(path); }
  absl::Status RemoveFile(const std::string&) override { return Refused(); }
  absl::StatusOr<int> OpenFile(const std::string& path, int flags, uint32_t mode) override {
    if ((flags & (O_ACCMODE | O_CREAT | O_TRUNC)) != O_RDONLY) return Refused();
    return Env::Real()->OpenFile(path, flags, mode);
  }

 private:
  static absl::Status Refused() { return absl::PermissionDeniedError("nothing is written"); }
};

const std::string& DataPath() {
  static const MemoryFile* const file = new MemoryFile("label,c\n0,a\n1,b\n0,c\n1,a\n1,d\n0,a\n");
  static const std::string* const path = new std::string(file->path());
  return *path;
}

// The assignment of a small job: sync, async or Geo.
WorkerAssignment MakeAssignment(int mode) {
  JobConfig config;
  config.set_name("small");
  config.mutable_data()->set_format(DataConfig::CSV);
  config.mutable_data()->add_train_files(DataPath());
  config.mutable_data()->add_eval_files(DataPath());
  config.mutable_data()->mutable_csv()->set_header(true);
  config.mutable_data()->mutable_label()->set_column("label");
  Feature* const feature = config.add_features();
  feature->set_name("c");
  feature->mutable_categorical();
  config.mutable_model()->mutable_wide_deep()->set_embedding_dim(2);
  config.mutable_model()->mutable_wide_deep()->add_hidden_units(2);
  config.mutable_strategy()->set_a_sync(mode != 0);
  if (mode == 2) config.mutable_strategy()->mutable_a_sync_configs()->set_k_steps(2);
  config.mutable_train()->set_batch_size(2);
  config.mutable_train()->set_threads(1);
  config.mutable_train()->set_reader_threads(1);
  config.mutable_train()->set_step_timeout_s(1);
  const auto effective = EffectiveJobConfig(config, "", BuiltInSpecs());
  FUZZ_CHECK(effective.ok());
  const auto model = ModelSpec::Create(*effective, BuiltInSpecs());
  FUZZ_CHECK(model.ok());
  WorkerAssignment assignment;
  assignment.set_incarnation(1);
  JobSpec* const spec = assignment.mutable_job();
  spec->set_job_id("small-1");
  spec->set_instance(7);
  spec->set_worker_num(1);
  *spec->mutable_config() = *effective;
  for (const TableConfig& table : (*model)->tables()) *spec->add_tables() = table;
  for (TableConfig& table : *spec->mutable_tables()) {
    if (table.kind() == TableConfig::SPARSE) table.set_num_shards(1);
    spec->mutable_route()->add_tables()->add_owner(0);
  }
  spec->mutable_route()->add_pservers(kPserver);
  spec->mutable_route()->set_generation(1);
  return assignment;
}

template <class T>
T Changed(T message, FuzzedDataProvider* input) {
  if (input->remaining_bytes() == 0) return message;
  const int times = input->ConsumeIntegralInRange(0, 2);
  for (int i = 0; i < times; ++i)
    MessageMutator(input->ConsumeIntegral<uint16_t>()).Mutate(&message);
  return message;
}

// Answers with what the job expects next, changed. Its input is used under a lock, because a
// worker's threads ask at the same time.
class ChangingScheduler : public FakeScheduler {
 public:
  ChangingScheduler(FuzzedDataProvider* input, const JobSpec& spec) : input_(input), spec_(spec) {}

  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest&) override {
    static constexpr Phase::Kind kOrder[] = {Phase::INDEX, Phase::TRAIN, Phase::EVAL, Phase::SAVE};
    MutexLock lock(&mutex_);
    NextPhaseReply reply;
    reply.set_ready(true);
    Phase* const phase = reply.mutable_phase();
    phase->set_number(++number_);
    phase->set_kind(number_ <= 4 ? kOrder[number_ - 1] : Phase::FINISH);
    phase->set_global_steps(3);
    phase->set_model_dir("/model");
    phase->set_save_id("5a");
    if (End()) phase->set_kind(Phase::FINISH);
    if (Said()) phase->set_kind(static_cast<Phase::Kind>(input_->ConsumeIntegralInRange(0, 6)));
    return Changed(reply, input_);
  }
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest&) override {
    MutexLock lock(&mutex_);
    NextTaskReply reply;
    if (++tasks_ > 2 || End()) {
      reply.set_kind(NextTaskReply::EPOCH_DONE);
    } else {
      reply.set_kind(NextTaskReply::TASK);
      reply.mutable_task()->set_id(tasks_);
      reply.mutable_task()->set_path(DataPath());
      reply.mutable_task()->set_begin(tasks_ == 1 ? 0 : 20);
      reply.mutable_task()->set_end(tasks_ == 1 ? 20 : 1000);
    }
    return Changed(reply, input_);
  }
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest&) override {
    MutexLock lock(&mutex_);
    GetRouteReply reply;
    *reply.mutable_route() = spec_.route();
    reply.mutable_route()->set_generation(++generation_);
    return Changed(reply, input_);
  }
  absl::StatusOr<RegisterReply> Register(const RegisterRequest&) override {
    MutexLock lock(&mutex_);
    RegisterReply reply;
    reply.set_member_id(5);
    reply.set_lease_ms(100);
    reply.set_heartbeat_ms(1);
    return Changed(reply, input_);
  }
  absl::StatusOr<PollReply> Poll(const PollRequest& request) override {
    MutexLock lock(&mutex_);
    PollReply reply;
    reply.set_version(request.seen_version() + 1);
    reply.set_stop(End());
    if (Said()) return absl::NotFoundError("no such member");
    return Changed(reply, input_);
  }

  // The answer of a pserver that has saved its shards.
  absl::StatusOr<std::string> SaveShards() {
    MutexLock lock(&mutex_);
    SaveShardsReply reply;
    SavedFile* const file = reply.add_files();
    file->set_name("embedding-0.shard");
    file->set_bytes(100);
    if (Said()) return absl::FailedPreconditionError("the route has changed");
    if (Said()) return input_->ConsumeRandomLengthString(50);
    return Changed(reply, input_).SerializeAsString();
  }

 private:
  bool End() { return input_->remaining_bytes() == 0 || ++answers_ > kMostAnswers; }
  bool Said() { return input_->remaining_bytes() > 0 && input_->ConsumeIntegralInRange(0, 7) == 0; }

  Mutex mutex_;
  FuzzedDataProvider* const input_;
  const JobSpec spec_;
  uint64_t number_ = 0, tasks_ = 0, generation_ = 1;
  int answers_ = 0;
};

// A pserver that serves the job as it was assigned before any change.
class Tables {
 public:
  // The scheduler has the input.
  Tables(const JobSpec& spec, ChangingScheduler* scheduler) : pserver_(Resources(&env_)) {
    google::protobuf::RepeatedPtrField<JobSpec> desired;
    *desired.Add() = spec;
    pserver_.Reconcile(kPserver, desired);
    pserver_.WaitUntilOpenForTest();
    transport_.Bind(kPserver, [this](std::shared_ptr<Stream> stream, const PeerIdentity&) {
      return pserver_.NewHandler(std::move(stream));
    });
    transport_.RegisterUnary(kPserver, "/sluice.Pserver/SaveShards",
                             [scheduler](const std::string&) { return scheduler->SaveShards(); });
  }
  Transport* transport() { return &transport_; }

 private:
  static JobResources Resources(Env* env) {
    JobResources resources;
    resources.clock = Clock::Real();
    resources.env = env;
    resources.available_memory = [] { return UINT64_MAX; };
    return resources;
  }
  ReadOnlyEnv env_;
  Pserver pserver_;
  InProcessTransport transport_;
};

void RunJob(FuzzedDataProvider* input) {
  WorkerAssignment assignment = MakeAssignment(input->ConsumeIntegralInRange(0, 2));
  ChangingScheduler scheduler(input, assignment.job());
  Tables tables(assignment.job(), &scheduler);
  if (input->ConsumeIntegralInRange(0, 3) == 0) {
    // The scheduler has checked the configuration.
    const JobConfig config = assignment.job().config();
    assignment = Changed(assignment, input);
    *assignment.mutable_job()->mutable_config() = config;
  }
  const WorkerCheckpoint checkpoint = Changed(WorkerCheckpoint(), input);
  ReadOnlyEnv env;
  FakeClock clock;
  JobRunner::Options options;
  options.models = &BuiltInModels();
  options.member.assignment = assignment;
  options.member.scheduler = &scheduler;
  options.scheduler_patience = absl::ZeroDuration();
  options.attempt_patience = absl::ZeroDuration();
  options.member.key = [] { return MemberKey{1, "secret"}; };
  options.member.transport = tables.transport();
  options.member.clock = &clock;
  options.env = &env;
  options.log = [](const std::string&) {};
  JobRunner runner(std::move(options));
  std::atomic<bool> ended{false};
  std::thread run([&] {
    runner.Run().IgnoreError();
    ended = true;
  });
  runner.SetCheckpoint(checkpoint);
  const absl::Time end = Clock::Real()->Now() + kLongestRun;
  while (!ended && Clock::Real()->Now() < end) Clock::Real()->Sleep(absl::Microseconds(200));
  runner.Cancel();
  run.join();
  runner.Progress();
  HeldJob held;
  runner.Holds(&held);
}

void BeMember(FuzzedDataProvider* input) {
  ChangingScheduler scheduler(input, JobSpec());
  std::atomic<bool> ended{false};
  MemberSession::Options options;
  options.scheduler = &scheduler;
  options.clock = Clock::Real();
  options.wait = options.place_pause = absl::Milliseconds(1);
  options.retry_pause = absl::Milliseconds(1);
  options.lost_after = absl::Milliseconds(20);
  options.fill_report = [](PollRequest*) {};
  options.on_desired = [&ended](const PollReply&) { FUZZ_CHECK(!ended); };
  options.on_end = [&ended](const absl::Status&) { ended = true; };
  options.log = [](const std::string&) {};
  auto session = MemberSession::Start(std::move(options));
  if (!session.ok()) return;
  for (int i = 0; i < 50 && !ended; ++i) {
    (*session)->ReportSoon();
    Clock::Real()->Sleep(absl::Microseconds(200));
  }
  (*session)->key();
  (*session)->silent();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  if (input.ConsumeIntegralInRange(0, 7) == 0) {
    BeMember(&input);
  } else {
    RunJob(&input);
  }
  return 0;
}
