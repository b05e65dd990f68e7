#include "scheduler/service/job_submission.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/output_folder.h"
#include "common/saved_model/export_chain.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/unfinished_run.h"
#include "model/model_spec.h"
#include "model/resume_match.h"
#include "scheduler/files/starting_point.h"

namespace sluice {
namespace {

// Whatever names a store has, ids stay short.
constexpr uint64_t kMostNumber = uint64_t{1} << 53;

}  // namespace

absl::StatusOr<SubmitJobReply> JobSubmission::Submit(const SubmitJobRequest& request,
                                                     const std::string& request_id) {
  SubmitJobReply reply = ReplyBefore(request_id);
  if (!reply.job_id().empty()) return reply;
  // Without the lock: it reads files, perhaps whole checkpoints from a slow disk.
  SLUICE_ASSIGN_OR_RETURN(Checked job, Check(request));
  options_.log(absl::StrCat("job ", job.draft.config.name(), " submitted"));
  // One submission at a time: no other may take the number before the job has it.
  MutexLock lock(&mutex_);
  reply = ReplyBefore(request_id);
  if (!reply.job_id().empty()) return reply;
  SLUICE_ASSIGN_OR_RETURN(*reply.mutable_job_id(),
                          AddWithFolder(std::move(job), request, request_id));
  return reply;
}

SubmitJobReply JobSubmission::ReplyBefore(const std::string& request_id) {
  SubmitJobReply reply;
  options_.loop->Look([&](SchedulerCore& core, absl::Time) {
    reply.set_job_id(core.operators().JobOfRequest(request_id));
  });
  return reply;
}

absl::StatusOr<JobSubmission::Checked> JobSubmission::Check(const SubmitJobRequest& request) const {
  Checked job;
  SLUICE_ASSIGN_OR_RETURN(job.draft,
                          BuildJobDraft(request.config(), options_.pserver_num, options_.env));
  JobConfig* const config = &job.draft.config;
  if (request.resume() || request.allow_older()) {
    SubmitJobRequest effective = request;
    *effective.mutable_config() = *config;
    SLUICE_ASSIGN_OR_RETURN(
        job.resume, FindResumePoint(effective, options_.env, options_.clock, &job.draft.warnings));
  }
  if (job.resume != nullptr) {
    // The path in the request is ignored now; result.json names what the job once started from.
    config->set_initial_checkpoint(job.resume->initial_checkpoint);
    SLUICE_ASSIGN_OR_RETURN(const JobConfig saved, ReadModelJob(job.resume->dir, options_.env));
    KeepUnknownValues(saved, config);
    // It continues with its own tables, whatever they started from.
    for (TableConfig& table : job.draft.tables) table.clear_start();
    SLUICE_RETURN_IF_ERROR(FixShards(&job.resume->manifest, &job.draft.tables));
  } else {
    // First: what a running job has written there is no run to be continued or overwritten.
    if (!config->output_dir().empty()) {
      absl::Status free;
      options_.loop->Look(
          [&](SchedulerCore& core, absl::Time) { free = core.operators().CheckOutputs(*config); });
      SLUICE_RETURN_IF_ERROR(free);
    }
    if (CanCheckpoint(*config) && !config->overwrite()) {
      SLUICE_RETURN_IF_ERROR(CheckNoUnfinishedRun(CheckpointRoot(*config), *config, options_.env));
    }
    SLUICE_ASSIGN_OR_RETURN(StartCheck start, FindInitialCheckpoint(options_.env, config));
    job.draft.TakeStart(std::move(start));
    std::optional<Manifest> from;
    if (!config->initial_checkpoint().empty()) {
      SLUICE_ASSIGN_OR_RETURN(from, ReadManifest(config->initial_checkpoint(), options_.env));
    }
    SLUICE_RETURN_IF_ERROR(FixShards(from.has_value() ? &*from : nullptr, &job.draft.tables));
  }
  if (config->has_export_() && !config->overwrite()) {
    SLUICE_RETURN_IF_ERROR(
        CheckOwnExports(ExportRoot(*config), config->output_dir(), options_.env));
  }
  return job;
}

absl::StatusOr<std::string> JobSubmission::AddWithFolder(Checked job,
                                                         const SubmitJobRequest& request,
                                                         const std::string& request_id) {
  const JobConfig& config = job.draft.config;
  const std::string from = job.resume == nullptr ? "" : job.resume->dir;
  const std::vector<std::string>& notes = job.draft.notes;
  uint64_t number = 1;
  options_.loop->Look(
      [&](SchedulerCore& core, absl::Time) { number = core.operators().next_number(); });
  number = std::max(number, numbers_.Next(config.name()));
  std::string dir = config.output_dir();
  const bool reserved = dir.empty();
  if (reserved) {
    SLUICE_ASSIGN_OR_RETURN(number, ReserveFolder(config.name(), number));
    dir = absl::StrCat(options_.default_output, "/", config.name(), "-", number);
  }
  const absl::StatusOr<std::string> job_id = KeepAndAdd(&job, number, request, request_id);
  if (!job_id.ok()) {
    // The folder is empty, and a refused job should leave nothing behind.
    if (reserved) GiveBack(dir);
    return job_id;
  }
  // The job runs whether or not its number can be remembered.
  if (const absl::Status kept = numbers_.Took(config.name(), number); !kept.ok())
    options_.log(absl::StrCat("the number of job ", *job_id, " is not kept: ", kept.message()));
  options_.log(absl::StrCat("job ", *job_id, ": effective configuration: ", dir, "/job.textproto"));
  for (const std::string& note : notes) options_.log(absl::StrCat("job ", *job_id, ": ", note));
  if (!from.empty()) {
    options_.log(absl::StrCat("job ", *job_id, ": continues from ", from));
  } else if (!config.initial_checkpoint().empty()) {
    options_.log(absl::StrCat("job ", *job_id, ": starts from ", config.initial_checkpoint()));
  }
  return job_id;
}

absl::StatusOr<uint64_t> JobSubmission::ReserveFolder(const std::string& name,
                                                      uint64_t number) const {
  const std::string& parent = options_.default_output;
  if (!options_.env->PlaceOf(parent).rename) return ReserveOnStore(name, number);
  absl::Status made = options_.env->MakeDirs(parent);
  while (made.ok()) {
    // Making the folder is the reservation: of two schedulers with one output folder only one gets
    // the number.
    made = options_.env->MakeNewDir(absl::StrCat(parent, "/", name, "-", number));
    if (made.ok()) return number;
    if (!absl::IsAlreadyExists(made)) break;
    made = absl::OkStatus();
    ++number;
  }
  return absl::Status(made.code(),
                      absl::StrCat("cannot make a folder for the job in ", parent, ": ",
                                   made.message(), "; give a writable --output_dir"));
}

absl::StatusOr<uint64_t> JobSubmission::ReserveOnStore(const std::string& name,
                                                       uint64_t number) const {
  const std::string prefix = absl::StrCat(name, "-");
  const auto names = options_.env->List(options_.default_output);
  if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    absl::string_view rest = (*names)[i];
    uint64_t taken = 0;
    if (absl::ConsumePrefix(&rest, prefix) && absl::SimpleAtoi(rest, &taken) && taken >= number &&
        taken < kMostNumber)
      number = taken + 1;
  }
  while (true) {
    const std::string dir = absl::StrCat(options_.default_output, "/", prefix, number);
    // The id makes it another text than that of a scheduler that does the same.
    const absl::Status made =
        options_.env
            ->Publish(absl::StrCat(dir, "/", kReservation),
                      absl::StrCat("# Sluice: this folder belongs to job ", prefix, number,
                                   "\nreservation: ", RandomId(), "\n"),
                      std::nullopt)
            .status();
    if (made.ok()) return number;
    if (!absl::IsAlreadyExists(made)) return made;
    ++number;
  }
}

void JobSubmission::GiveBack(const std::string& dir) const {
  if (options_.env->PlaceOf(dir).rename) {
    options_.env->RemoveDir(dir).IgnoreError();
  } else {
    options_.env->RemoveFile(absl::StrCat(dir, "/", kReservation)).IgnoreError();
  }
}

absl::StatusOr<std::string> JobSubmission::KeepAndAdd(Checked* checked, uint64_t number,
                                                      const SubmitJobRequest& request,
                                                      const std::string& request_id) {
  const JobDraft& draft = checked->draft;
  absl::StatusOr<std::unique_ptr<Job>> job;
  std::vector<MetaStore::Write> records;
  options_.loop->Run([&](SchedulerCore& core, absl::Time) {
    job = core.operators().PrepareJob(draft.config, draft.tables, options_.default_output, number,
                                      draft.warnings, std::move(checked->resume));
    if (!job.ok()) return;
    (*job)->SetRequest(request_id, request.allow_older(), request.resume());
    records = core.operators().RecordsOf(**job);
  });
  SLUICE_RETURN_IF_ERROR(job.status());
  // Before the core knows the job. A job that runs but is in no record would be lost with this
  // scheduler.
  const absl::Status kept = options_.loop->Commit(records);
  if (absl::IsAborted(kept)) return SchedulerLoop::TakenOver();
  absl::StatusOr<std::string> job_id = absl::FailedPreconditionError(
      absl::StrCat("the job is refused, because the scheduler cannot keep it: ", kept.message()));
  if (kept.ok()) {
    options_.loop->Run([&](SchedulerCore& core, absl::Time now) {
      job_id = core.operators().AddJob(*std::move(job), now);
    });
    if (job_id.ok()) return job_id;
  }
  return Refuse({records[0].key, records[1].key}, job_id.status());
}

absl::Status JobSubmission::Refuse(const std::vector<std::string>& keys, const absl::Status& why) {
  // The store may hold the record in spite of an error, or may still get it. The job has been
  // refused only when the record is surely gone; otherwise the next scheduler may run it.
  std::vector<MetaStore::Write> deletions;
  for (const std::string& key : keys) deletions.push_back({key, std::nullopt});
  const absl::Status gone = options_.loop->Commit(std::move(deletions));
  if (gone.ok()) return why;
  if (absl::IsAborted(gone)) return SchedulerLoop::TakenOver();
  return absl::UnavailableError(
      absl::StrCat("the scheduler cannot keep its state at present: ", gone.message()));
}

}  // namespace sluice
