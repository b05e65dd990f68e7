// Starts a scheduler's core from a store that the input has changed: fields, bytes and keys of the
// records that a job leaves in each mode and phase. Its members then come back and go on.
//
// Checks: records that cannot be read are DATA_LOSS with a printable reason; all others give a core
// that answers its members, and whose status can be shown.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/printable.h"
#include "scheduler/registry/job_records.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

constexpr int kMostChanges = 12, kMostCalls = 16;
constexpr uint32_t kRanks = 2;

using Records = std::map<std::string, std::string>;

void Keep(std::vector<MetaStore::Write> writes, Records* records) {
  for (MetaStore::Write& write : writes) {
    if (write.value.has_value()) {
      (*records)[write.key] = *std::move(write.value);
    } else {
      records->erase(write.key);
    }
  }
}

std::unique_ptr<const ResumePoint> Checkpoint() {
  auto point = std::make_unique<ResumePoint>();
  point->dir = "/c/step-7";
  CheckpointState* const state = point->manifest.mutable_checkpoint();
  state->set_global_step(7);
  state->set_epoch(1);
  state->set_worker_num(kRanks);
  point->manifest.set_global_step(7);
  return point;
}

// The scheduler before: a job that came as far as the input says.
class Before {
 public:
  explicit Before(FuzzedDataProvider* input) {
    cluster_.JoinAll(2, kRanks);
    JobConfig config = FakeCluster::Config(input->ConsumeIntegralInRange(-1, 1), kRanks, 3);
    config.mutable_recovery()->set_max_losses(10);
    const bool resumed = input->ConsumeBool();
    auto job = cluster_.core_.operators().PrepareJob(config, {}, "/output", 1, {},
                                                     resumed ? Checkpoint() : nullptr);
    FUZZ_CHECK(job.ok());
    Keep(cluster_.core_.operators().RecordsOf(**job), &records_);
    job_id_ = *cluster_.core_.operators().AddJob(*std::move(job), cluster_.now_);
    const int steps = input->ConsumeIntegralInRange(0, 5);
    for (int i = 0; i < steps; ++i) Advance(i);
    Keep(cluster_.core_.TakeRecords(), &records_);
  }

  // The jobs that the member holds.
  RegisterRequest Registration(Role role, uint32_t rank) {
    RegisterRequest request = FakeCluster::Registration(role, rank);
    const uint64_t id = (role == ROLE_PSERVER ? cluster_.pservers_ : cluster_.workers_)[rank];
    const PollReply& told = cluster_.desired_[id];
    for (const JobSpec& spec : told.host()) Add(spec, &request);
    if (!told.has_assignment()) return request;
    HeldJob* const held = Add(told.assignment().job(), &request);
    held->set_rank(told.assignment().rank());
    held->set_incarnation(told.assignment().incarnation());
    return request;
  }

  Records records_;
  FakeCluster cluster_{2, kRanks};
  std::string job_id_;

 private:
  static HeldJob* Add(const JobSpec& spec, RegisterRequest* request) {
    HeldJob* const held = request->add_holds();
    held->set_job_id(spec.job_id());
    held->set_instance(spec.instance());
    held->set_generation(spec.route().generation());
    return held;
  }
  // The job starts; the ranks index; one of them asks for tasks; it trains; all do.
  void Advance(int step) {
    const auto report = [this](uint32_t rank, const PhaseReport& phase) {
      cluster_.Phase(job_id_, rank, phase).status().IgnoreError();
    };
    if (step == 0) cluster_.PollAll();
    if (step == 1) report(0, Indexed(50, 0));
    if (step == 2) report(1, Indexed(50, 1));
    if (step == 3) {
      cluster_.Task(job_id_, 0, 0, 0, 1).status().IgnoreError();
      cluster_.Task(job_id_, 1, 0, 0, 1).status().IgnoreError();
      cluster_.Task(job_id_, 0, 0, 1, 2, 5).status().IgnoreError();
    }
    if (step >= 4) {
      report(0, Trained(2, 50));
      if (step == 5) report(1, Trained(2, 50));
    }
    cluster_.PollAll();
  }
};

template <class Record>
bool MutateAs(const std::string& key, const char* prefix, unsigned int seed, std::string* value) {
  Record record;
  if (key.rfind(prefix, 0) != 0 || !record.ParseFromString(*value)) return false;
  MessageMutator(seed).Mutate(&record);
  *value = record.SerializeAsString();
  return true;
}

void MutateRecord(const std::string& key, unsigned int seed, std::string* value) {
  MutateAs<JobRecord>(key, "job/", seed, value) || MutateAs<RunRecord>(key, "run/", seed, value) ||
      MutateAs<BeginningRecord>(key, "began/", seed, value) ||
      MutateAs<PhaseReport>(key, "index/", seed, value) ||
      MutateAs<TaskRecord>(key, "task/", seed, value) ||
      MutateAs<DrainingRecord>(key, "draining", seed, value) ||
      MutateAs<NextRecord>(key, "next", seed, value);
}

// Changes, copies or removes one record.
void Change(FuzzedDataProvider* input, Records* records) {
  if (records->empty()) return;
  const auto at = input->ConsumeIntegralInRange<size_t>(0, records->size() - 1);
  const auto record = std::next(records->begin(), static_cast<long>(at));
  std::string* const value = &record->second;
  switch (input->ConsumeIntegralInRange(0, 9)) {
    case 0: {
      // Fields merged into those of the record.
      *value += input->ConsumeRandomLengthString(80);
      return;
    }
    case 1:
      return value->resize(input->ConsumeIntegralInRange<size_t>(0, value->size()));
    case 2:
      records->erase(record);
      return;
    case 3: {
      const std::string key = input->ConsumeRandomLengthString(40);
      (*records)[key] = *value;
      return;
    }
    case 4: {
      // The same record under a key with another end, such as the next task or rank.
      std::string key = record->first;
      key.resize(key.size() - input->ConsumeIntegralInRange<size_t>(0, key.size()));
      key += input->ConsumeRandomLengthString(12);
      (*records)[key] = *value;
      return;
    }
    default: {
      const int times = input->ConsumeIntegralInRange(1, 3);
      for (int i = 0; i < times; ++i)
        MutateRecord(record->first, input->ConsumeIntegral<uint16_t>(), value);
    }
  }
}

// The scheduler after.
class After {
 public:
  After(FuzzedDataProvider* input, Before* before, StoredJobs stored)
      : input_(input), before_(before), cluster_(Options(stored)) {
    for (const JobRecord& record : stored.jobs) {
      std::optional<RunHandover> run;
      if (auto left = stored.runs.extract(record.job_id());
          !left.empty() && left.mapped().record.phase() != 0) {
        run.emplace();
        run->run = std::move(left.mapped());
        run->began_at = BeginningOf(run->run);
      }
      absl::StatusOr<std::unique_ptr<const ResumePoint>> point = nullptr;
      if (record.begun() && input->ConsumeBool()) point = Checkpoint();
      cluster_.core_.RestoreJob(record, std::move(point), std::move(run), cluster_.now_);
      jobs_.push_back(record.job_id());
    }
    for (const auto& [job_id, run] : stored.runs) cluster_.core_.ForgetRun(run);
  }

  void Run() {
    for (int i = 0; i < kMostCalls; ++i) {
      Call(i);
      Keep(cluster_.core_.TakeRecords(), &before_->records_);
      cluster_.core_.TakeChanged();
      cluster_.core_.TakeLines();
      cluster_.WriteOutputs();
    }
    const ClusterStatus status = cluster_.core_.operators().GetStatus(cluster_.now_);
    for (const JobStatus& job : status.jobs()) FUZZ_CHECK(IsPrintableLine(job.message()));
  }

 private:
  static SchedulerCore::Options Options(const StoredJobs& stored) {
    SchedulerCore::Options options = FakeCluster::Options(2, kRanks);
    options.first_id = options.first_version = uint64_t{1} << 40;
    options.next = stored.next;
    options.draining = stored.draining;
    return options;
  }
  void Register(Role role, uint32_t rank) {
    const auto reply = cluster_.core_.Register(before_->Registration(role, rank), cluster_.now_);
    if (!reply.ok() || reply->member_id() == 0) return;
    (role == ROLE_PSERVER ? cluster_.pservers_ : cluster_.workers_).push_back(reply->member_id());
  }
  // The members register first; then anything happens.
  void Call(int number) {
    if (number < 2) return Register(ROLE_PSERVER, static_cast<uint32_t>(number));
    if (number < 4) return Register(ROLE_WORKER, static_cast<uint32_t>(number - 2));
    const std::string job =
        jobs_.empty() ? "" : jobs_[input_->ConsumeIntegral<uint8_t>() % jobs_.size()];
    const auto rank = input_->ConsumeIntegralInRange<uint32_t>(0, kRanks - 1);
    switch (input_->ConsumeIntegralInRange(0, 6)) {
      case 0:
      case 1:
        return cluster_.PollAll();
      case 2:
        return cluster_.Advance(absl::Seconds(input_->ConsumeIntegralInRange(0, 12)));
      case 3:
        return cluster_.Phase(job, rank, Indexed(50, rank)).status().IgnoreError();
      case 4: {
        const auto number_of_phase = input_->ConsumeIntegralInRange<uint64_t>(2, 8);
        return cluster_.Phase(job, rank, Trained(number_of_phase, 50)).status().IgnoreError();
      }
      case 5: {
        const auto finished = input_->ConsumeIntegralInRange<uint64_t>(0, 4);
        const auto request = input_->ConsumeIntegralInRange<uint64_t>(0, 4);
        return cluster_.Task(job, rank, 0, finished, request, 5).status().IgnoreError();
      }
      default:
        return cluster_.core_.operators()
            .ScaleJob(job, input_->ConsumeIntegralInRange<uint32_t>(1, 3), cluster_.now_)
            .IgnoreError();
    }
  }

  FuzzedDataProvider* const input_;
  Before* const before_;
  FakeCluster cluster_;
  std::vector<std::string> jobs_;
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  Before before(&input);
  const int changes = input.ConsumeIntegralInRange(0, kMostChanges);
  for (int i = 0; i < changes; ++i) Change(&input, &before.records_);
  std::vector<MetaStore::Entry> entries;
  for (const auto& [key, value] : before.records_) entries.push_back({key, value});
  absl::StatusOr<StoredJobs> stored = ParseStoredJobs(entries);
  if (!stored.ok()) {
    FUZZ_CHECK(absl::IsDataLoss(stored.status()));
    FUZZ_CHECK(IsPrintableLine(stored.status().message()));
    return 0;
  }
  After(&input, &before, *std::move(stored)).Run();
  return 0;
}
