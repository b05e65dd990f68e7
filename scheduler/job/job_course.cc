#include "scheduler/job/job_course.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/printable.h"

namespace sluice {

bool JobCourse::Wait(const std::string& why, uint32_t position) {
  if (message_ == why && queue_position_ == position) return false;
  message_ = why;
  queue_position_ = position;
  return true;
}

absl::Time JobCourse::NoteAbsent(bool absent, absl::Time now) {
  if (!absent) {
    absent_since_ = absl::InfiniteFuture();
  } else if (absent_since_ == absl::InfiniteFuture()) {
    absent_since_ = now;
  }
  return absent_since_;
}

void JobCourse::LeaveQueue() {
  message_.clear();
  queue_position_ = 0;
}

void JobCourse::Start() {
  state_ = JOB_STARTING;
  begun_ = true;
}

void JobCourse::Run() {
  state_ = JOB_RUNNING;
  message_.clear();
}

bool JobCourse::EndEarly(const EarlyEnd& end) {
  // No step after the smallest one can close, so no other rank can have gone on.
  if (early_end_ && early_end_->last_step() <= end.last_step()) return false;
  early_end_ = end;
  return true;
}

bool JobCourse::Say(const std::string& message) {
  if (message_ == message) return false;
  message_ = message;
  return true;
}

void JobCourse::End(JobState outcome, const std::string& message, absl::Time now) {
  outcome_ = outcome;
  message_ = message;
  queue_position_ = 0;
  ended_at_ = now;
}

bool JobCourse::AwaitOutput(const std::string& why) {
  if (away_ == why) return false;
  away_ = why;
  return true;
}

void JobCourse::WriteFailed(absl::string_view error) {
  // When the output folder was refused at the start, the message already says so.
  if (!absl::StrContains(message_, error)) {
    absl::StrAppend(&message_, message_.empty() ? "" : "; ",
                    "the result could not be written: ", error);
  }
  outcome_ = JOB_FAILED;
  result_.set_status("failed");
  // The model may not be in force, so the result names none.
  result_.clear_model_dir();
  result_.clear_model_digest();
  result_.set_message(message_);
}

void JobCourse::Written() {
  state_ = outcome_;
  away_.clear();
  auto* const epochs = result_.mutable_epochs_log();
  if (epochs->size() > kEpochsKept) epochs->DeleteSubrange(0, epochs->size() - kEpochsKept);
}

void JobCourse::RestoreEnd(const JobRecord& record, absl::Time now) {
  // Not the outcome: nobody may see the job as ended before its result is written.
  state_ = record.begun() ? JOB_RUNNING : JOB_QUEUED;
  outcome_ = record.outcome();
  // The store is outside of this process, and the message is shown on terminals.
  message_ = PrintableLine(record.message());
  ended_at_ = now;
  result_ = record.result();
  recorded_save_id_ = record.save_id();
}

void JobCourse::Archive() {
  JobResult result;
  result.set_status(result_.status());
  result_ = std::move(result);
}

}  // namespace sluice
