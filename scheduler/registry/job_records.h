// Encodes what the scheduler keeps of its jobs in its state store (proto/state.proto).
//
// A job has a record from before its submission is answered until its result is written. With the
// record, another scheduler can begin the job's next attempt: it describes the job, and says which
// checkpoints are the job's own. How far training has come is in the checkpoints.
//
// While an attempt runs, more records say what the scheduler has decided in it, so that another
// scheduler can adopt it with its members. They are complete as long as the scheduler's answers to
// the job's workers leave after the records have been kept.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/meta_store/meta_store.h"
#include "proto/state.pb.h"
#include "scheduler/job/job.h"

namespace sluice {

// The attempt that a job was running.
struct StoredRun {
  RunRecord record;
  std::map<uint32_t, PhaseReport> index;  // by rank
  std::vector<TaskRecord> tasks;          // of record.phase, in order
  BeginningRecord began;                  // instance 0: there is none
  size_t epochs = 0;                      // of the results, that have records of their own
  // The keys in the store that belong to the job's run, including the keys of other phases.
  std::vector<std::string> keys;
};

// The jobs that a scheduler finds in its store.
struct StoredJobs {
  std::vector<JobRecord> jobs;            // in order of submission
  std::map<std::string, StoredRun> runs;  // by job_id; record.phase is 0 when there is no RunRecord
  NextRecord next;                        // job_number and order are at least 1
  DrainingRecord draining;
  std::map<std::string, std::vector<std::string>> parts;  // JoinedRecords::parts
  std::vector<std::string> left_over;                     // keys that belong to nothing
};

// A run that another scheduler can adopt.
struct RunHandover {
  StoredRun run;
  std::unique_ptr<const ResumePoint> began_at;  // null: at the beginning of the job
};

// The point at which the run has begun, without the checkpoint's tables and files. Null when that
// was the beginning of the job, or is not recorded.
std::unique_ptr<const ResumePoint> BeginningOf(const StoredRun& run);

// `entries`: all that the store holds. DATA_LOSS names the key whose value is no record, or one
// with figures that no job may have.
absl::StatusOr<StoredJobs> ParseStoredJobs(const std::vector<MetaStore::Entry>& entries);

// The owner of the record under a key.
struct RecordOwner {
  std::string job_id;   // empty: not of a job
  bool of_job = false;  // a JobRecord; else a record of the job's run
};
RecordOwner OwnerOf(const std::string& key);

// The clock of the core's times.
struct CoreClock {
  std::string name;  // see RunRecord.clock; empty: it has none
  // From its times to the time of day; nullopt: not known.
  std::optional<absl::Duration> to_time_of_day;
};

// Without configuration and tables, which the ConfigRecord has.
JobRecord RecordOf(const Job& job, const CoreClock& clock);
ConfigRecord ConfigOf(const Job& job);
// When the job has lost members lately (JobRecovery::losses_at), for a scheduler with this clock.
// Times ahead of the clock count as now, also when the time of day was set back.
std::vector<absl::Time> LossesIn(const JobRecord& record, const CoreClock& clock, absl::Time now);
MetaStore::Write WriteOf(const JobRecord& record);
MetaStore::Write WriteOf(const ConfigRecord& record);
MetaStore::Write WriteOf(const NextRecord& next);
MetaStore::Write WriteOf(const DrainingRecord& draining);

// Collects the changes of records since they were last taken, in order.
class JobRecords {
 public:
  // `clock` names the clock of the core's times.
  explicit JobRecords(std::string clock = "") { clock_.name = std::move(clock); }
  const CoreClock& clock() const { return clock_; }
  void SetTimeOfDay(absl::Duration from_clock) { clock_.to_time_of_day = from_clock; }

  // Why the state store takes no records at present. "": it takes them. Until then nothing begins
  // that must be durable first: a job, an attempt, another generation or incarnation. Another
  // scheduler would not know of it.
  const std::string& refused() const { return refused_; }
  void SetRefused(std::string why) { refused_ = std::move(why); }

  // Writes the job's record as the job is now.
  void Changed(const Job& job);
  // Deletes the job's records.
  void Dropped(const std::string& job_id);

  void DrainingChanged(const DrainingRecord& draining) { writes_.push_back(WriteOf(draining)); }

  // Call when the job's run or its next phase has begun.
  void PhaseBegan(const Job& job);
  // Call when a member of the attempt is lost or replaced, or its followers have changed. The
  // present phase can be adopted while the job is complete.
  void MembersChanged(const Job& job);
  // Call when a life of the rank is over and it is settled where the next one continues. `held`:
  // what the pservers hold of it.
  void LifeSettled(const Job& job, uint32_t rank, uint64_t incarnation, const HeldOfRank& held);
  // Call when a later life of the rank has reported the files that it sees.
  void SawFiles(const Job& job, uint32_t rank);
  // Call when all ranks have given to a call of their program.
  void Gathered(GatherRecord call);
  // Call when the rank's first report of this phase, INDEX or TRAIN, was taken.
  void Reported(const Job& job, uint32_t rank, const PhaseReport& report);
  // Call when the program has ended the job, whose present phase ends early.
  void EndsEarly(const Job& job);
  // Call when the request was answered.
  void TaskAsked(const Job& job, const NextTaskRequest& request);
  // Call when the run is over. The calls of its ranks before their first batch stay.
  void RunEnded(const std::string& job_id);
  // Call when the run of an earlier scheduler continues, with the records that it left.
  void RunAdopted(const std::string& job_id, const StoredRun& run);
  // The job of an earlier scheduler is known again, with the calls of its ranks.
  void GathersKept(const JobRecord& record);
  // This scheduler does not continue the run; its records are deleted.
  void RunRefused(const StoredRun& run);

  std::vector<MetaStore::Write> Take() { return std::exchange(writes_, {}); }

 private:
  // The parts of a job's run that are in the store.
  struct Run {
    bool adoptable = false;  // the tasks of the phase are all there
    bool recorded = false;   // and so is the run record
    bool began = false;      // there is a record of its beginning
    uint64_t phase = 0;
    RunState state;              // at its beginning
    uint64_t tasks = 0;          // task records of the phase
    uint64_t lost_lives = 0;     // how many of them have `lost`
    std::set<uint32_t> indexed;  // ranks
    size_t epochs = 0;           // of the results, that are in the store
  };
  // Writes the job's configuration and tables if the store lacks them.
  void KeepConfig(const Job& job);
  // Writes what is new of the job's epochs.
  void KeepEpochs(const std::string& job_id,
                  const google::protobuf::RepeatedPtrField<EpochResult>& epochs, Run* run);
  void Delete(std::string key) { writes_.push_back({std::move(key), std::nullopt}); }
  void AddTask(const Job& job, const TaskRecord& task);
  void DeleteTasks(const std::string& job_id, Run* run);
  // Deletes the calls of the job's ranks, but for those at the border `but`.
  enum class Borders { kAll, kEndsOfEpochs };
  void DeleteGathers(const std::string& job_id, Borders which,
                     std::optional<uint32_t> but = std::nullopt);
  // The present phase cannot be adopted any more.
  void PhaseLost(const std::string& job_id);

  CoreClock clock_;
  std::string refused_;
  std::vector<MetaStore::Write> writes_;
  std::map<std::string, Run> runs_;  // by job_id
  // By job_id: the calls of its ranks that are in the store, as (epochs_done, number).
  std::map<std::string, std::set<std::pair<uint32_t, uint32_t>>> gathers_;
  std::map<std::string, uint64_t> tables_kept_;  // by job_id: a fingerprint of those in the store
};

}  // namespace sluice
