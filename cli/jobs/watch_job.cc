#include "cli/jobs/watch_job.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/screen/command_line.h"
#include "cli/screen/format.h"
#include "cli/screen/progress.h"
#include "cli/screen/stderr_lines.h"
#include "common/base/printable.h"
#include "common/daemon/scheduler_wait.h"
#include "common/transport/retry.h"

namespace sluice::cli {
namespace {

constexpr uint32_t kWaitMs = 500;

class Watch {
 public:
  explicit Watch(const WatchOptions& options) : o_(options) {}

  absl::StatusOr<JobStatus> Run() {
    for (;;) {
      Ask();
      if (HasEnded(status_.state())) return WithCause();
      if (unreachable_ || o_.clock->Now() >= deadline_) return GaveUp();
      if (o_.interrupted && o_.interrupted()) {
        if (!o_.cancel_on_interrupt) return status_;
        Stop();
      }
      CheckCluster();
    }
  }

 private:
  // The scheduler may know only that a process is silent. This program started the process and
  // knows how it ended.
  JobStatus WithCause() {
    if (status_.state() != JOB_FAILED) return status_;
    // A process that has died just now may be the cause.
    if (!o_.explain) CheckCluster();
    // The cause is "sluice-worker rank 1 (pid 7) was killed ...". It is left out when the scheduler
    // was told in time, and its message already says how the process ended.
    std::string cause = o_.explain ? o_.explain(status_.message()) : "";
    if (cause.empty() && broken_.ok()) return status_;
    if (cause.empty()) cause = Cause();
    const std::string how = cause.substr(cause.find(") ") + 1);
    if (!absl::StrContains(status_.message(), how)) {
      absl::StrAppend(status_.mutable_message(), "; ", cause);
    }
    return status_;
  }

  // Returns the first part of the error. The rest, the end of a log, was printed when the cluster
  // broke.
  std::string Cause() const {
    return std::string(broken_.message().substr(0, broken_.message().find(';')));
  }

  void Ask() {
    WatchJobRequest request;
    request.set_job_id(o_.job_id);
    request.set_seen_version(status_.version());
    request.set_wait_ms(kWaitMs);
    request.set_seen_steps(steps_seen_);
    request.set_seen_epochs(o_.printer->epochs_shown());
    const auto reply = o_.client->WatchJob(request);
    // The scheduler holds the call until something changes, at most for kWaitMs, so no pause is
    // needed here.
    if (reply.ok()) {
      status_ = reply->status();
      if (status_.state() != JOB_QUEUED && !started_ && o_.on_started) o_.on_started();
      started_ = started_ || status_.state() != JOB_QUEUED;
      silence_.Answered();
      steps_seen_ = reply->steps_seen();
      o_.printer->Steps(reply->steps());
      o_.printer->Update(status_);
      if (o_.on_status) o_.on_status(status_);
      return;
    }
    error_ = reply.status();
    // A scheduler that was restarted knows neither of the checkpoint nor of the cancellation.
    save_.set_number(0);
    cancelled_ = false;
    // A refusal (no such job) does not get better.
    unreachable_ =
        !GotNoAnswer(error_) || silence_.Unanswered(o_.clock->Now()) >= o_.unreachable_after;
    if (absl::IsNotFound(error_) && !status_.job_id().empty()) {
      error_ = absl::AbortedError(absl::StrCat(
          "the scheduler at ", o_.client->address(), " no longer knows job ", o_.job_id,
          ": either it was restarted and the job is lost, or the job ended long ago"));
    }
    o_.clock->Sleep(absl::Milliseconds(100));
  }

  // Cancels the job, once its last checkpoint is over.
  void Stop() {
    const absl::Time now = o_.clock->Now();
    if (!asked_to_stop_) {
      asked_to_stop_ = true;
      save_until_ = now + o_.save_grace;
      // The job makes its checkpoint and writes its result in this time; a user who has pressed
      // Ctrl-C does not wait longer.
      deadline_ = std::min(deadline_, save_until_ + o_.grace);
      o_.printer->Note(absl::StrCat("stopping ", o_.job_id));
      save_.set_job_id(o_.job_id);
      // The scheduler would wait for the first step.
      const bool stepped = status_.state() == JOB_RUNNING && status_.global_step() > 0;
      if (!o_.saves_nothing.empty()) {
        EndSave(o_.saves_nothing);
      } else if (!stepped) {
        EndSave("it has not finished a step");
      } else if (!NewestHasAllSteps()) {
        o_.printer->Note(absl::StrCat("it saves a checkpoint first, for ",
                                      absl::FormatDuration(o_.save_grace),
                                      " at most; a second signal ends it at once"));
      }
    }
    if (saving_) Save(now);
    if (!saving_ && !cancelled_) Cancel();
  }

  // The job evaluates, or writes the best model, between two epochs or after the last one.
  bool MakesNoSteps() const { return status_.phase() == "eval" || status_.phase() == "save"; }

  bool NewestHasAllSteps() const {
    return MakesNoSteps() && status_.checkpoint().step() == status_.global_step();
  }

  // Asks for the last checkpoint, or for its outcome.
  void Save(absl::Time now) {
    if (o_.impatient && o_.impatient()) return EndSave("the user did not wait for it");
    if (save_.number() == 0) {
      // The next cut may be far away, and the newest checkpoint may have everything already.
      const CheckpointStatus& newest = status_.checkpoint();
      if (NewestHasAllSteps()) {
        o_.printer->Note(PrintableLine(absl::StrCat(newest.dir(), " has all of its steps")));
        return EndSave("");
      }
      // Perhaps that of the epoch's end, which is being written.
      if (MakesNoSteps() && !newest.doing().empty() && now < save_until_) return;
    }
    const auto reply = o_.client->CheckpointJob(save_);
    if (reply.ok()) {
      save_.set_number(reply->number());
      if (reply->done()) return EndSave(reply->error());
    } else if (!GotNoAnswer(reply.status())) {
      return EndSave(std::string(reply.status().message()));
    }
    if (now >= save_until_)
      EndSave(absl::StrCat("it took longer than ", absl::FormatDuration(o_.save_grace)));
  }

  void EndSave(const std::string& failure) {
    saving_ = false;
    if (!failure.empty())
      o_.printer->Note(PrintableLine(absl::StrCat("no checkpoint is saved: ", failure)));
  }

  void Cancel() {
    CancelJobRequest request;
    request.set_job_id(o_.job_id);
    const absl::Status status = o_.client->CancelJob(request);
    cancelled_ = status.ok();
    if (!status.ok()) error_ = status;
  }

  // Ends the job, which cannot continue. The scheduler then writes its result.
  bool Fail() {
    CancelJobRequest request;
    request.set_job_id(o_.job_id);
    request.set_failure(Cause());
    return o_.client->CancelJob(request).ok();
  }

  void CheckCluster() {
    if (!o_.check_cluster || !broken_.ok()) return;
    broken_ = o_.check_cluster();
    if (broken_.ok()) return;
    o_.printer->Note(std::string(broken_.message()));
    const bool hopeless = o_.hopeless && o_.hopeless() && !Fail();
    deadline_ = std::min(deadline_, o_.clock->Now() + (hopeless ? absl::ZeroDuration() : o_.grace));
  }

  absl::StatusOr<JobStatus> GaveUp() {
    // The user knows why the job has no end, so the last status is no error.
    if (asked_to_stop_) return status_;
    if (!broken_.ok()) {
      return absl::InternalError(absl::StrCat("job ", o_.job_id, " failed: ", Cause()));
    }
    return error_;
  }

  const WatchOptions& o_;
  JobStatus status_;
  bool started_ = false;  // the job has left the queue
  uint64_t steps_seen_ = 0;
  SilenceTimer silence_;      // of the scheduler
  bool unreachable_ = false;  // the scheduler was silent for too long, or refused the call
  absl::Time deadline_ = absl::InfiniteFuture();  // of a job that should end
  bool asked_to_stop_ = false;
  bool saving_ = true;  // before the job is cancelled
  absl::Time save_until_;
  CheckpointJobRequest save_;
  bool cancelled_ = false;  // the scheduler knows
  absl::Status broken_, error_;
};

}  // namespace

absl::StatusOr<JobStatus> WatchUntilEnd(const WatchOptions& options) {
  return Watch(options).Run();
}

namespace {

// Keeps the lines as they are: the scheduler has indented those that it did not write itself.
std::string EachLinePrintable(absl::string_view text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    lines.push_back(PrintableLine(line));
  return absl::StrJoin(lines, "\n");
}

}  // namespace

int ReportEnd(const absl::StatusOr<JobStatus>& status) {
  if (!status.ok()) return ReportError(status.status());
  if (status->state() == JOB_DONE) return kDone;
  PrintOnStderr(absl::StrCat("sluice: job ", status->job_id(), " ", StateName(status->state()),
                             status->message().empty() ? "" : ": ",
                             EachLinePrintable(status->message())));
  return kJobFailed;
}

void PrintNote(const std::string& note) {
  if (!note.empty()) PrintOnStderr(absl::StrCat("sluice: ", note));
}

int ReportError(const absl::Status& status) {
  const bool unreachable = GotNoAnswer(status);
  const bool says_what_to_do =
      absl::StrContains(status.message(), "--scheduler") || HasCertainTlsAdvice(status.message());
  // The message may come from a scheduler. Our own have several lines.
  PrintOnStderr(
      absl::StrCat("sluice: ", EachLinePrintable(status.message()),
                   unreachable && !says_what_to_do
                       ? "; is it running, is --scheduler right, and may this user call it?"
                       : ""));
  if (unreachable) return kUnreachable;
  if (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) return kBadUsage;
  return kJobFailed;
}

}  // namespace sluice::cli
