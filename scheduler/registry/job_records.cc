#include "scheduler/registry/job_records.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/job_validation.h"
#include "common/meta_store/record_parts.h"

namespace sluice {
namespace {

constexpr char kJob[] = "job/";
constexpr char kNext[] = "next";
constexpr char kDraining[] = "draining";
// A commit may be cut in pieces, in the order of the keys. So the record of a phase is there before
// its tasks, and those of the phase before go away after it has been replaced. The beginning of a
// run is there before the run.
constexpr char kBegan[] = "began/";
constexpr char kConfig[] = "config/";
constexpr char kEpoch[] = "epoch/";
constexpr char kGather[] = "gather/";
constexpr char kIndex[] = "index/";
constexpr char kRun[] = "run/";
constexpr char kTask[] = "task/";
static_assert(kBegan[0] < kRun[0] && kEpoch[0] < kRun[0] && kRun[0] < kTask[0]);

// Epochs in a record. The last record is written again with each epoch, so that more of them would
// be more bytes, and fewer of them more keys.
constexpr size_t kEpochsInRecord = 16;

std::string IndexKey(const std::string& job_id, uint32_t rank) {
  return absl::StrCat(kIndex, job_id, "/", rank);
}
std::string BeganKey(const std::string& job_id) { return absl::StrCat(kBegan, job_id); }
std::string ConfigKey(const std::string& job_id) { return absl::StrCat(kConfig, job_id); }
std::string EpochKey(const std::string& job_id, size_t n) {
  return absl::StrCat(kEpoch, job_id, "/", absl::Dec(n, absl::kZeroPad10));
}
std::string GatherKey(const std::string& job_id, uint32_t epochs_done, uint32_t number) {
  return absl::StrCat(kGather, job_id, "/", epochs_done, "/", number);
}
std::string RunKey(const std::string& job_id) { return absl::StrCat(kRun, job_id); }
std::string TaskKey(const std::string& job_id, uint64_t phase, uint64_t number) {
  return absl::StrCat(kTask, job_id, "/", phase, "/", absl::Dec(number, absl::kZeroPad10));
}

// Splits "<prefix><job_id>/<number>" at the last slash.
bool SplitNumber(const std::string& key, size_t prefix, std::string* job_id, uint64_t* number) {
  const size_t slash = key.rfind('/');
  if (slash == std::string::npos || slash < prefix) return false;
  *job_id = key.substr(prefix, slash - prefix);
  return absl::SimpleAtoi(key.substr(slash + 1), number);
}

bool ParseIndex(const MetaStore::Entry& entry, StoredJobs* stored) {
  std::string job_id;
  uint64_t rank = 0;
  // A rank that wrapped around would be taken for another one.
  if (!SplitNumber(entry.key, sizeof(kIndex) - 1, &job_id, &rank) || rank > UINT32_MAX)
    return false;
  StoredRun& run = stored->runs[job_id];
  run.keys.push_back(entry.key);
  return run.index[static_cast<uint32_t>(rank)].ParseFromString(entry.value);
}

// The epochs of a run, until its record is read: they come before it.
using EpochsOfRuns = std::map<std::string, google::protobuf::RepeatedPtrField<EpochResult>>;

bool ParseEpochs(const MetaStore::Entry& entry, StoredJobs* stored, EpochsOfRuns* epochs) {
  std::string job_id;
  uint64_t n = 0;
  EpochsRecord record;
  if (!SplitNumber(entry.key, sizeof(kEpoch) - 1, &job_id, &n) ||
      !record.ParseFromString(entry.value)) {
    return false;
  }
  stored->runs[job_id].keys.push_back(entry.key);
  auto& all = (*epochs)[job_id];
  // Without the earlier ones, the later ones mean nothing.
  if (n * kEpochsInRecord == static_cast<uint64_t>(all.size())) all.MergeFrom(record.epochs());
  return true;
}

// Puts the epochs that the run's record has left out in their place. A run that lacks some cannot
// be adopted.
void AddEpochs(const google::protobuf::RepeatedPtrField<EpochResult>& epochs, StoredRun* run) {
  if (!run->record.state().results().result().epochs_log().empty()) return;
  const auto wanted = static_cast<int>(run->record.state().results().result().epochs());
  if (epochs.size() < wanted) return run->record.clear_phase();
  auto* const log = run->record.mutable_state()->mutable_results()->mutable_result();
  // The epochs of a later phase may have been written before its record.
  for (int i = 0; i < wanted; ++i) *log->add_epochs_log() = epochs[i];
  run->epochs = static_cast<size_t>(epochs.size());
}

// What a RunRecord has of its specification's configuration: the fields in which it may differ from
// the job's.
JobConfig OwnConfig(const JobConfig& of_spec) {
  JobConfig own;
  *own.mutable_checkpoint() = of_spec.checkpoint();
  *own.mutable_recovery() = of_spec.recovery();
  return own;
}

// Field by field: configuration and tables may be megabytes, and are not copied.
JobSpec SpecWithoutConfig(const JobSpec& spec) {
  JobSpec own;
  own.set_job_id(spec.job_id());
  *own.mutable_config() = OwnConfig(spec.config());
  own.set_worker_num(spec.worker_num());
  *own.mutable_route() = spec.route();
  own.set_instance(spec.instance());
  if (spec.has_restore()) *own.mutable_restore() = spec.restore();
  own.set_global_batch(spec.global_batch());
  *own.mutable_incarnations() = spec.incarnations();
  if (spec.has_takeover()) *own.mutable_takeover() = spec.takeover();
  *own.mutable_follower() = spec.follower();
  own.set_pass_key(spec.pass_key());
  return own;
}

void CompleteSpec(const JobRecord& job, JobSpec* spec) {
  // Records of earlier versions are complete.
  if (!spec->config().name().empty()) return;
  const JobConfig own = spec->config();
  *spec->mutable_config() = job.config();
  *spec->mutable_config()->mutable_checkpoint() = own.checkpoint();
  *spec->mutable_config()->mutable_recovery() = own.recovery();
  *spec->mutable_tables() = job.tables();
}

void DropEpochs(RunState* state) {
  state->mutable_results()->mutable_result()->clear_epochs_log();
  for (RunState::EpochStart& start : *state->mutable_starts())
    start.mutable_result()->clear_epochs_log();
}

// Only one of the reports is kept with its list of files.
void ShareSeenFiles(StoredRun* run) {
  IndexReport all;
  for (const auto& [rank, report] : run->index) {
    if (report.index().train_seen_size() + report.index().eval_seen_size() > 0)
      all = report.index();
  }
  for (auto& [rank, report] : run->index) {
    *report.mutable_index()->mutable_train_seen() = all.train_seen();
    *report.mutable_index()->mutable_eval_seen() = all.eval_seen();
  }
}

// The run's record is read before, since its key is less.
bool ParseTask(const MetaStore::Entry& entry, StoredJobs* stored) {
  std::string job_and_phase, job_id;
  uint64_t number = 0, phase = 0;
  const size_t prefix = sizeof(kTask) - 1;
  if (!SplitNumber(entry.key, prefix, &job_and_phase, &number) ||
      !SplitNumber(absl::StrCat(kTask, job_and_phase), prefix, &job_id, &phase)) {
    return false;
  }
  StoredRun& run = stored->runs[job_id];
  run.keys.push_back(entry.key);
  // A scheduler that died while it replaced the records may have left some of another phase.
  if (phase != run.record.phase()) return true;
  // Without the earlier ones, the later ones mean nothing.
  if (number != run.tasks.size()) run.record.clear_phase();
  return run.tasks.emplace_back().ParseFromString(entry.value);
}

// Figures that no submission has, and that would make the scheduler list phases or ranks without
// end.
bool IsPossible(const JobRecord& job) {
  return job.config().train().epochs() <= kMaxEpochs && job.config().worker_num() <= kMaxWorkers &&
         job.worker_num() <= kMaxWorkers;
}

// Gives the job the configuration that is kept for it. False: there is none.
bool TakeConfig(std::map<std::string, ConfigRecord>* configs, JobRecord* job) {
  auto config = configs->extract(job->job_id());
  if (job->has_config()) return true;
  if (config.empty()) return false;
  *job->mutable_config() = std::move(*config.mapped().mutable_config());
  *job->mutable_tables() = std::move(*config.mapped().mutable_tables());
  return true;
}

// REQUIRES: job.attempt.point().
BeginningRecord BeginningRecordOf(const Job& job) {
  BeginningRecord record;
  record.set_job_id(job.id());
  record.set_instance(job.spec().instance());
  record.set_directory(job.attempt.point()->dir);
  *record.mutable_state() = job.attempt.point()->state();
  record.set_initial_checkpoint(job.attempt.point()->initial_checkpoint);
  record.set_examples_replayed(job.attempt.point()->examples_replayed);
  return record;
}

}  // namespace

std::unique_ptr<const ResumePoint> BeginningOf(const StoredRun& run) {
  const BeginningRecord& began = run.began;
  // A commit that was cut may have left the record of another attempt.
  if (began.instance() == 0 || began.instance() != run.record.spec().instance()) return nullptr;
  auto point = std::make_unique<ResumePoint>();
  point->dir = began.directory();
  point->initial_checkpoint = began.initial_checkpoint();
  point->examples_replayed = began.examples_replayed();
  point->manifest.set_global_step(began.state().global_step());
  *point->manifest.mutable_checkpoint() = began.state();
  return point;
}

absl::StatusOr<StoredJobs> ParseStoredJobs(const std::vector<MetaStore::Entry>& entries) {
  SLUICE_ASSIGN_OR_RETURN(JoinedRecords joined, JoinParts(entries));
  StoredJobs stored;
  stored.parts = std::move(joined.parts);
  stored.left_over = std::move(joined.left_over);
  std::map<std::string, ConfigRecord> configs;               // by job_id
  std::map<std::string, std::vector<GatherRecord>> gathers;  // likewise
  EpochsOfRuns epochs;
  for (const MetaStore::Entry& entry : joined.records) {
    bool parsed = true;
    if (entry.key == kNext) {
      parsed = stored.next.ParseFromString(entry.value);
    } else if (entry.key == kDraining) {
      parsed = stored.draining.ParseFromString(entry.value);
    } else if (absl::StartsWith(entry.key, kJob)) {
      JobRecord job;
      parsed = job.ParseFromString(entry.value) && entry.key == absl::StrCat(kJob, job.job_id());
      // A commit may be cut: a job without its configuration was being deleted, or not submitted.
      if (parsed && !TakeConfig(&configs, &job)) {
        stored.left_over.push_back(entry.key);
        continue;
      }
      parsed = parsed && IsPossible(job);
      stored.jobs.push_back(std::move(job));
    } else if (absl::StartsWith(entry.key, kBegan)) {
      BeginningRecord began;
      parsed = began.ParseFromString(entry.value) && entry.key == BeganKey(began.job_id());
      StoredRun& run = stored.runs[began.job_id()];
      run.began = std::move(began);
      run.keys.push_back(entry.key);
    } else if (absl::StartsWith(entry.key, kConfig)) {
      ConfigRecord config;
      parsed = config.ParseFromString(entry.value) && entry.key == ConfigKey(config.job_id());
      configs[config.job_id()] = std::move(config);
    } else if (absl::StartsWith(entry.key, kEpoch)) {
      parsed = ParseEpochs(entry, &stored, &epochs);
    } else if (absl::StartsWith(entry.key, kGather)) {
      GatherRecord call;
      parsed = call.ParseFromString(entry.value) &&
               entry.key == GatherKey(call.job_id(), call.epochs_done(), call.number());
      gathers[call.job_id()].push_back(std::move(call));
    } else if (absl::StartsWith(entry.key, kIndex)) {
      parsed = ParseIndex(entry, &stored);
    } else if (absl::StartsWith(entry.key, kRun)) {
      RunRecord record;
      parsed = record.ParseFromString(entry.value) && entry.key == RunKey(record.job_id());
      StoredRun& run = stored.runs[record.job_id()];
      run.record = std::move(record);
      run.keys.push_back(entry.key);
    } else if (absl::StartsWith(entry.key, kTask)) {
      parsed = ParseTask(entry, &stored);
    }
    if (!parsed) {
      return absl::DataLossError(absl::StrCat(
          "the scheduler's state is damaged: the value of ", PrintableLine(entry.key),
          " is no record of this version; restore the store, or give an empty state_store"));
    }
  }
  for (const auto& config : configs) stored.left_over.push_back(ConfigKey(config.first));
  for (JobRecord& job : stored.jobs) {
    const auto calls = gathers.extract(job.job_id());
    if (calls.empty()) continue;
    job.mutable_gathers()->Assign(calls.mapped().begin(), calls.mapped().end());
  }
  for (const auto& [job_id, calls] : gathers) {
    for (const GatherRecord& call : calls)
      stored.left_over.push_back(GatherKey(job_id, call.epochs_done(), call.number()));
  }
  for (auto& [job_id, run] : stored.runs) {
    ShareSeenFiles(&run);
    if (run.record.phase() > 1) AddEpochs(epochs[job_id], &run);
  }
  for (const JobRecord& job : stored.jobs) {
    if (const auto run = stored.runs.find(job.job_id()); run != stored.runs.end())
      CompleteSpec(job, run->second.record.mutable_spec());
  }
  // The store sorts by key, and "a-10" comes before "a-2". The queue needs the order of submission.
  std::sort(stored.jobs.begin(), stored.jobs.end(),
            [](const JobRecord& a, const JobRecord& b) { return a.order() < b.order(); });
  stored.next.set_job_number(std::max<uint64_t>(stored.next.job_number(), 1));
  // The record of the next numbers may be older than the last job. Both are written together, but a
  // large commit is split, and a crash may keep only its first piece.
  const uint64_t newest = stored.jobs.empty() ? 0 : stored.jobs.back().order();
  stored.next.set_order(std::max(stored.next.order(), newest + 1));
  return stored;
}

RecordOwner OwnerOf(const std::string& key) {
  const size_t begin = key.find('/');
  if (begin == std::string::npos) return {};
  const size_t end = key.find('/', begin + 1);
  return {key.substr(begin + 1, end == std::string::npos ? end : end - begin - 1),
          absl::StartsWith(key, kJob)};
}

namespace {

// How long `now` is after a time in seconds since 1970.
absl::Duration AgeOf(double at_s, absl::Time now) {
  if (!std::isfinite(at_s)) return absl::ZeroDuration();
  return std::max(now - (absl::UnixEpoch() + absl::Seconds(at_s)), absl::ZeroDuration());
}

}  // namespace

std::vector<absl::Time> LossesIn(const JobRecord& record, const CoreClock& clock, absl::Time now) {
  const bool same_clock = !clock.name.empty() && record.losses_clock() == clock.name;
  const bool by_day =
      clock.to_time_of_day.has_value() && record.losses_at_s_size() == record.losses_s_size();
  std::vector<absl::Time> losses;
  for (int i = 0; i < record.losses_s_size(); ++i) {
    // If nothing tells, as if it had happened just now, so that none is forgotten too early.
    absl::Duration age;
    if (same_clock) {
      age = AgeOf(record.losses_s(i), now);
    } else if (by_day) {
      age = AgeOf(record.losses_at_s(i), now + *clock.to_time_of_day);
    }
    if (age < JobRecovery::kLossWindow) losses.push_back(now - age);
  }
  return losses;
}

JobRecord RecordOf(const Job& job, const CoreClock& clock) {
  JobRecord record;
  record.set_job_id(job.id());
  record.set_order(job.submission().order);
  record.mutable_warnings()->Assign(job.warnings().begin(), job.warnings().end());
  record.set_begun(job.course.begun());
  record.set_allow_older(job.submission().allow_older);
  record.set_resume_from(job.submission().resumed_from);
  *record.mutable_recovery() = job.recovery.counts();
  record.mutable_instances()->Assign(job.attempt.instances().begin(),
                                     job.attempt.instances().end());
  record.mutable_pservers()->Assign(job.pservers.ranks().begin(), job.pservers.ranks().end());
  record.set_request_id(job.submission().request_id);
  *record.mutable_checkpoints() = job.ledger.status();
  // It says what happens at this moment, and would be outdated in a record.
  record.mutable_checkpoints()->clear_doing();
  record.set_steps_reached(job.recovery.steps_reached());
  record.set_examples_reached(job.recovery.examples_reached());
  for (const absl::Time at : job.recovery.losses_at()) {
    record.add_losses_s(absl::ToDoubleSeconds(at - absl::UnixEpoch()));
    if (clock.to_time_of_day) {
      record.add_losses_at_s(absl::ToDoubleSeconds(at + *clock.to_time_of_day - absl::UnixEpoch()));
    }
  }
  if (record.losses_s_size() > 0) record.set_losses_clock(clock.name);
  if (const auto& end = job.course.early_end()) *record.mutable_early_end() = *end;
  record.mutable_damaged()->Assign(job.ledger.damaged().begin(), job.ledger.damaged().end());
  // The next scheduler does not wait for ranks that this job is about to leave out.
  const uint32_t left_out = job.ranks.left_out();
  record.mutable_recovery()->set_shrinks(record.recovery().shrinks() + left_out);
  if (const uint32_t workers = job.spec().worker_num() - left_out;
      workers != job.config().worker_num()) {
    record.set_worker_num(workers);
  }
  if (!job.over()) return record;
  record.set_outcome(job.course.outcome());
  record.set_message(job.course.message());
  *record.mutable_result() = job.course.result();
  record.set_save_id(SaveIdOf(job));
  return record;
}

ConfigRecord ConfigOf(const Job& job) {
  ConfigRecord record;
  record.set_job_id(job.id());
  *record.mutable_config() = job.config();
  *record.mutable_tables() = job.spec().tables();
  return record;
}

MetaStore::Write WriteOf(const ConfigRecord& record) {
  return {ConfigKey(record.job_id()), record.SerializeAsString()};
}

MetaStore::Write WriteOf(const JobRecord& record) {
  return {absl::StrCat(kJob, record.job_id()), record.SerializeAsString()};
}

MetaStore::Write WriteOf(const NextRecord& next) { return {kNext, next.SerializeAsString()}; }

MetaStore::Write WriteOf(const DrainingRecord& draining) {
  return {kDraining, draining.SerializeAsString()};
}

void JobRecords::Changed(const Job& job) {
  KeepConfig(job);
  writes_.push_back(WriteOf(RecordOf(job, clock_)));
}

void JobRecords::KeepConfig(const Job& job) {
  // Placement gives the tables their number of shards. Nothing else changes.
  uint64_t tables = 0;
  for (const TableConfig& table : job.spec().tables())
    tables = HashBytes(table.SerializeAsString(), tables);
  const auto [kept, added] = tables_kept_.emplace(job.id(), tables);
  if (!added && kept->second == tables) return;
  kept->second = tables;
  writes_.push_back(WriteOf(ConfigOf(job)));
}

void JobRecords::Dropped(const std::string& job_id) {
  Delete(absl::StrCat(kJob, job_id));
  Delete(ConfigKey(job_id));
  DeleteGathers(job_id, Borders::kAll);
  tables_kept_.erase(job_id);
}

void JobRecords::Gathered(GatherRecord call) {
  DeleteGathers(call.job_id(), Borders::kEndsOfEpochs, call.epochs_done());
  gathers_[call.job_id()].emplace(call.epochs_done(), call.number());
  writes_.push_back(
      {GatherKey(call.job_id(), call.epochs_done(), call.number()), call.SerializeAsString()});
}

void JobRecords::GathersKept(const JobRecord& record) {
  for (const GatherRecord& call : record.gathers())
    gathers_[record.job_id()].emplace(call.epochs_done(), call.number());
}

void JobRecords::DeleteGathers(const std::string& job_id, Borders which,
                               std::optional<uint32_t> but) {
  const auto found = gathers_.find(job_id);
  if (found == gathers_.end()) return;
  auto& kept = found->second;
  for (auto it = kept.begin(); it != kept.end();) {
    const auto [epochs_done, number] = *it;
    const bool goes = epochs_done != but && (epochs_done > 0 || which == Borders::kAll);
    if (goes) Delete(GatherKey(job_id, epochs_done, number));
    it = goes ? kept.erase(it) : std::next(it);
  }
  if (kept.empty()) gathers_.erase(found);
}

void JobRecords::PhaseBegan(const Job& job) {
  Run& run = runs_[job.id()];
  DeleteTasks(job.id(), &run);
  run.phase = job.run()->phases().current().number();
  run.adoptable = true;
  // Kept here as well: the record is written anew whenever the members change, and the state must
  // be that of the beginning of the phase.
  run.state = run.phase > 1 ? job.run()->Save() : RunState();
  if (run.phase > 1) KeepEpochs(job.id(), job.run()->epochs(), &run);
  // Once per run. It may be large, and does not change.
  if (run.phase == 1 && job.attempt.point() != nullptr) {
    run.began = true;
    writes_.push_back({BeganKey(job.id()), BeginningRecordOf(job).SerializeAsString()});
  }
  MembersChanged(job);
}

void JobRecords::KeepEpochs(const std::string& job_id,
                            const google::protobuf::RepeatedPtrField<EpochResult>& epochs,
                            Run* run) {
  const auto n = static_cast<size_t>(epochs.size());
  // The newest one that is kept may have been evaluated since.
  size_t i = (std::max<size_t>(run->epochs, 1) - 1) / kEpochsInRecord * kEpochsInRecord;
  for (; i < n; i += kEpochsInRecord) {
    EpochsRecord record;
    for (size_t at = i; at < std::min(n, i + kEpochsInRecord); ++at)
      *record.add_epochs() = epochs[static_cast<int>(at)];
    writes_.push_back({EpochKey(job_id, i / kEpochsInRecord), record.SerializeAsString()});
  }
  run->epochs = n;
}

void JobRecords::MembersChanged(const Job& job) {
  Run& run = runs_[job.id()];
  if (!run.adoptable) return;
  // The reports of INDEX have no order, so they cannot say which of them belong to a lost life.
  if (run.phase == 1 && !job.ranks.vacant().empty()) return PhaseLost(job.id());
  if (!job.complete()) {
    // A vacant place has no member that could be adopted. The tasks stay: when the place is taken,
    // they still say what has happened in this phase.
    if (run.recorded) Delete(RunKey(job.id()));
    run.recorded = false;
    return;
  }
  KeepConfig(job);
  RunRecord record;
  record.set_job_id(job.id());
  *record.mutable_spec() = SpecWithoutConfig(job.spec());
  for (const RankSlot& slot : job.ranks.slots()) {
    RunRecord::Rank* const rank = record.add_ranks();
    rank->set_worker(slot.worker());
    rank->set_incarnation(slot.incarnation());
    rank->set_rejoins(slot.rejoins());
  }
  record.mutable_ended()->Assign(job.ranks.ended().begin(), job.ranks.ended().end());
  record.set_phase(run.phase);
  record.set_lost_lives(run.lost_lives);
  record.set_clock(clock_.name);
  if (run.phase > 1) *record.mutable_state() = run.state;
  run.recorded = true;
  writes_.push_back({RunKey(job.id()), record.SerializeAsString()});
}

void JobRecords::Reported(const Job& job, uint32_t rank, const PhaseReport& report) {
  Run& run = runs_[job.id()];
  if (report.has_index()) {
    PhaseReport kept = report;
    // All ranks see the same files, so one list is enough.
    if (!run.indexed.empty()) {
      kept.mutable_index()->clear_train_seen();
      kept.mutable_index()->clear_eval_seen();
    }
    run.indexed.insert(rank);
    writes_.push_back({IndexKey(job.id(), rank), kept.SerializeAsString()});
    return;
  }
  TaskRecord record;
  record.set_rank(rank);
  *record.mutable_ended() = report;
  AddTask(job, record);
}

void JobRecords::EndsEarly(const Job& job) {
  TaskRecord record;
  *record.mutable_early_end() = *job.course.early_end();
  AddTask(job, record);
}

void JobRecords::TaskAsked(const Job& job, const NextTaskRequest& request) {
  TaskRecord record;
  *record.mutable_asked() = request;
  AddTask(job, record);
}

void JobRecords::LifeSettled(const Job& job, uint32_t rank, uint64_t incarnation,
                             const HeldOfRank& held) {
  TaskRecord record;
  record.set_rank(rank);
  LostLife* const lost = record.mutable_lost();
  lost->set_incarnation(incarnation);
  *lost->mutable_least() = held.least;
  *lost->mutable_most() = held.most;
  *lost->mutable_committed() = held.committed;
  ++runs_[job.id()].lost_lives;
  AddTask(job, record);
}

void JobRecords::SawFiles(const Job& job, uint32_t rank) {
  TaskRecord record;
  record.set_rank(rank);
  record.set_saw_files(true);
  AddTask(job, record);
}

void JobRecords::AddTask(const Job& job, const TaskRecord& task) {
  Run& run = runs_[job.id()];
  if (!run.adoptable) return;
  writes_.push_back({TaskKey(job.id(), run.phase, run.tasks++), task.SerializeAsString()});
}

void JobRecords::DeleteTasks(const std::string& job_id, Run* run) {
  for (uint64_t i = 0; i < run->tasks; ++i) Delete(TaskKey(job_id, run->phase, i));
  // Numbers begin anew with each phase, whose number is part of the key.
  run->tasks = run->lost_lives = 0;
}

void JobRecords::PhaseLost(const std::string& job_id) {
  Run& run = runs_[job_id];
  if (!run.adoptable) return;
  run.adoptable = false;
  if (run.recorded) Delete(RunKey(job_id));
  run.recorded = false;
  DeleteTasks(job_id, &run);
}

void JobRecords::RunEnded(const std::string& job_id) {
  DeleteGathers(job_id, Borders::kEndsOfEpochs);
  if (runs_.count(job_id) == 0) return;
  PhaseLost(job_id);
  if (runs_[job_id].began) Delete(BeganKey(job_id));
  for (const uint32_t rank : runs_[job_id].indexed) Delete(IndexKey(job_id, rank));
  for (size_t i = 0; i < runs_[job_id].epochs; i += kEpochsInRecord)
    Delete(EpochKey(job_id, i / kEpochsInRecord));
  // Last: the lines above read it.
  runs_.erase(job_id);
}

void JobRecords::RunAdopted(const std::string& job_id, const StoredRun& stored) {
  Run run;
  run.adoptable = run.recorded = true;
  run.began = stored.began.instance() != 0;
  run.phase = stored.record.phase();
  run.state = stored.record.state();
  run.tasks = stored.tasks.size();
  for (const TaskRecord& task : stored.tasks) run.lost_lives += task.has_lost();
  const std::string tasks = absl::StrCat(kTask, job_id, "/"),
                    of_phase = absl::StrCat(tasks, run.phase, "/");
  for (const std::string& key : stored.keys) {
    // Left by a scheduler that died while it replaced them.
    if (absl::StartsWith(key, tasks) && !absl::StartsWith(key, of_phase)) Delete(key);
  }
  for (const auto& [rank, report] : stored.index) run.indexed.insert(rank);
  // An earlier version has left them in the run's record, which is written without them next.
  run.epochs = stored.epochs;
  KeepEpochs(job_id, run.state.results().result().epochs_log(), &run);
  run.epochs = std::max(run.epochs, stored.epochs);
  DropEpochs(&run.state);
  runs_[job_id] = std::move(run);
}

void JobRecords::RunRefused(const StoredRun& stored) {
  for (const std::string& key : stored.keys) Delete(key);
}

}  // namespace sluice
