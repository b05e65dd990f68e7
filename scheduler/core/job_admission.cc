#include "scheduler/core/job_admission.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/config/output_folder.h"
#include "scheduler/recovery/member_loss.h"
#include "scheduler/registry/job_records.h"

namespace sluice {
namespace {

// Tells the members what they must know of checkpoints, and from which one the job continues.
void FillCheckpoints(const JobConfig& config, const ResumePoint* point, JobSpec* spec) {
  if (CanCheckpoint(config)) {
    // job.textproto keeps it empty: run again with another output_dir, the job must not write here.
    spec->mutable_config()->mutable_checkpoint()->set_dir(CheckpointRoot(config));
    if (config.has_export_())
      spec->mutable_config()->mutable_export_()->set_dir(ExportRoot(config));
  }
  if (ModeOf(config.strategy()) == Mode::kSync) {
    // Also when the job has been scaled: the position in the data counts such batches.
    spec->set_global_batch(StepExamples(config) * config.worker_num());
  }
  if (point == nullptr) {
    if (config.initial_checkpoint().empty()) return;
    spec->mutable_restore()->set_directory(config.initial_checkpoint());
    spec->mutable_restore()->set_kind(Restore::INITIAL);
    return;
  }
  // PER_RANK_FILES keeps the number of workers, so the product is the same.
  if (point->state().global_batch() > 0) spec->set_global_batch(point->state().global_batch());
}

// Workers wait for each other as long as a lost one may be replaced.
void FillRecovery(absl::Duration wait, JobSpec* spec) {
  RecoveryConfig* const recovery = spec->mutable_config()->mutable_recovery();
  if (!recovery->has_max_losses()) recovery->set_max_losses(kDefaultMaxLosses);
  if (!recovery->has_wait_s()) recovery->set_wait_s(absl::ToDoubleSeconds(wait));
}

}  // namespace

absl::Status JobAdmission::CheckWorkers(const JobConfig& config) const {
  const uint32_t wanted = config.worker_num();
  if (wanted == 0) return absl::InvalidArgumentError("worker_num is 0; a job needs a worker");
  if (options_.worker_num == 0 && parts_.members->Alive(ROLE_WORKER).empty()) {
    return absl::FailedPreconditionError(
        "the cluster has no workers: its worker_num is 0 and none has registered; start "
        "sluice-worker, or set worker_num in the cluster file");
  }
  if (options_.worker_num > 0 && wanted > options_.worker_num) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job asks for ", wanted, " workers (worker_num), but the cluster has ",
                     options_.worker_num,
                     " (worker_num of the cluster); lower --worker_num or use a larger cluster"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Job>> JobAdmission::Prepare(
    const JobConfig& config, const std::vector<TableConfig>& tables,
    const std::string& default_output, uint64_t first_number, std::vector<std::string> warnings,
    std::unique_ptr<const ResumePoint> resume) {
  SLUICE_RETURN_IF_ERROR(CheckWorkers(config));
  // Before anything is reserved for the job.
  if (parts_.queue->full()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        parts_.queue->size(), " jobs are queued, and the scheduler keeps no more than ",
        JobQueue::kMaxJobs, "; submit again when some have ended, or cancel some (sluice cancel)"));
  }
  // Gaps are harmless, but no number may be given twice: it names folders.
  next_number_ = std::max(next_number_, first_number);
  Job::Submission submission;
  submission.job_id = absl::StrCat(config.name(), "-", next_number_);
  submission.order = next_order_;
  submission.config = config;
  if (resume != nullptr) submission.resumed_from = resume->dir;
  std::string* const output = submission.config.mutable_output_dir();
  if (output->empty()) *output = absl::StrCat(default_output, "/", submission.job_id);
  // CheckOutputs compares folders as text, so trailing slashes must not make a difference.
  while (output->size() > 1 && output->back() == '/') output->pop_back();
  SLUICE_RETURN_IF_ERROR(parts_.jobs->CheckOutputs(submission.config));
  auto job = std::make_unique<Job>(std::move(submission), options_.first_version);
  for (std::string& warning : warnings) job->AddWarning(std::move(warning));
  parts_.lifecycle->SetNewInstance(job.get());
  FillSpec({tables.begin(), tables.end()}, std::move(resume), job.get());
  return job;
}

void JobAdmission::FillSpec(const google::protobuf::RepeatedPtrField<TableConfig>& tables,
                            std::unique_ptr<const ResumePoint> resume, Job* job) {
  JobSpec spec;
  spec.set_job_id(job->id());
  *spec.mutable_config() = job->config();
  *spec.mutable_tables() = tables;
  spec.set_worker_num(job->config().worker_num());
  FillCheckpoints(job->config(), resume.get(), &spec);
  FillRecovery(options_.wait, &spec);
  if (resume != nullptr) {
    job->ledger.PassOver(resume->damaged);
    job->recovery.Continue(resume->state().result().recovery());
  }
  job->attempt.Specify(std::move(spec), std::move(resume));
}

NextRecord JobAdmission::NextAfter(const Job& job) const {
  NextRecord next;
  next.set_job_number(next_number_ + 1);
  next.set_order(job.submission().order + 1);
  return next;
}

Job* JobAdmission::Add(std::unique_ptr<Job> job) {
  ++next_number_;
  ++next_order_;
  Job* const queued = parts_.jobs->Add(std::move(job));
  parts_.queue->Add(queued);
  return queued;
}

Job* JobAdmission::Restore(const JobRecord& record,
                           absl::StatusOr<std::unique_ptr<const ResumePoint>> resume,
                           std::optional<RunHandover> handover, absl::Time now) {
  Job::Submission submission;
  submission.job_id = record.job_id();
  submission.config = record.config();
  submission.order = record.order();
  submission.request_id = record.request_id();
  submission.allow_older = record.allow_older();
  submission.resumed_from = record.resume_from();
  auto restored = std::make_unique<Job>(std::move(submission), options_.first_version);
  Job* const job = restored.get();
  job->course.RestoreBegun(record.begun());
  if (record.has_early_end()) job->course.EndEarly(record.early_end());
  for (const std::string& warning : record.warnings()) job->AddWarning(warning);
  job->attempt.RestoreInstances({record.instances().begin(), record.instances().end()});
  job->pservers.Choose({record.pservers().begin(), record.pservers().end()});
  job->ledger.PassOver({record.damaged().begin(), record.damaged().end()});
  job->ledger.RestoreStatus(record.checkpoints());
  job->recovery.NoteReached(record.steps_reached(), record.examples_reached());
  job->recovery.RestoreLosses(LossesIn(record, parts_.effects->records()->clock(), now));
  for (const GatherRecord& call : record.gathers()) job->gathers.Restore(call);
  parts_.effects->records()->GathersKept(record);
  parts_.jobs->Add(std::move(restored));
  if (handover) {
    if (resume.ok() && *resume != nullptr) job->ledger.PassOver((*resume)->damaged);
    // If the records do not suffice, the job goes on below as if there were no run.
    const absl::Status adopted = parts_.lifecycle->Adopt(
        job, record.recovery(), handover->run, std::move(handover->began_at), &resume, now);
    if (adopted.ok()) return job;
    const std::string why =
        absl::StrCat("the run of the earlier scheduler cannot continue: ", adopted.message());
    job->AddWarning(why);
    parts_.effects->Log(*job, why);
    parts_.effects->records()->RunRefused(handover->run);
  }
  // The attempt of these calls is over.
  job->gathers.EndAttempt();
  parts_.effects->records()->RunEnded(job->id());
  FillSpec(record.tables(), resume.ok() ? *std::move(resume) : nullptr, job);
  if (record.worker_num() > 0) job->attempt.SetWorkerNum(record.worker_num());
  if (record.outcome() != JOB_STATE_UNSPECIFIED) {
    job->course.RestoreEnd(record, now);
    parts_.lifecycle->WriteResultAgain(job, now);
  } else if (record.begun()) {
    parts_.lifecycle->Restore(job, record.recovery(), now);
  } else {
    parts_.lifecycle->SetNewInstance(job);
    parts_.effects->records()->Changed(*job);
    parts_.queue->Add(job);
  }
  return job;
}

ClusterView JobAdmission::ViewCluster() const {
  ClusterView cluster;
  cluster.missing_pservers = parts_.members->MissingPservers();
  for (const Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (const std::string& program = worker->self.program(); !program.empty()) {
      ++cluster.programs[program].alive;
      cluster.programs[program].free += worker->free();
      continue;
    }
    ++cluster.alive_workers;
    cluster.free_workers += worker->free();
  }
  return cluster;
}

void JobAdmission::Schedule(absl::Time now) {
  // Starting a job or giving one up makes the queue due again.
  while (parts_.queue->due()) {
    uint32_t position = 0;
    for (const JobQueue::Decided& decided : parts_.queue->Decide(ViewCluster())) {
      const std::string& refused = parts_.effects->records()->refused();
      if (decided.decision.start && !refused.empty()) {
        Wait(decided.job, {false, false, absl::StrCat("waits for the state store: ", refused)},
             position++, now);
      } else if (decided.decision.start) {
        parts_.lifecycle->Start(decided.job, now);
      } else {
        Wait(decided.job, decided.decision, position++, now);
      }
    }
  }
}

void JobAdmission::Wait(Job* job, const QueueDecision& decision, uint32_t position,
                        absl::Time now) {
  if (job->course.Wait(decision.reason, position)) parts_.effects->StatusChanged(job);
  const absl::Time absent_since = job->course.NoteAbsent(decision.members_absent, now);
  // Members may be absent because nothing begins at present.
  if (!parts_.effects->records()->refused().empty()) return;
  // Busy members are waited for without a bound; absent ones may never come.
  if (parts_.pauses->Since(absent_since, now) < options_.wait) return;
  parts_.lifecycle->End(job, JOB_FAILED,
                        absl::StrCat("gave up after ", absl::FormatDuration(options_.wait),
                                     " in the queue: ", decision.reason),
                        now);
}

}  // namespace sluice
