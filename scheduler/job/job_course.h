// Where a job stands between its submission and the end of its result, and what operators are told
// of that.
//
//   QUEUED -> STARTING (pservers open its tables) -> RUNNING (phases) -> over
//                |                                      |
//                +-> RECOVERING (a member was lost,  <--+     RECOVERING -> RUNNING
//                     or a user wants other members)
//
// Invariants:
// - First the outcome is set: the job is over, and its state stays what it was. The state becomes
//   the outcome only when result.json is written, so that a caller that sees a job done finds its
//   result.
// - A job that is over changes only by SetResult, WarnInResult, AwaitOutput, WriteFailed, Written
//   and Archive.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "proto/state.pb.h"

namespace sluice {

class JobCourse {
 public:
  static constexpr int kEpochsKept = 100;

  JobState state() const { return state_; }
  JobState outcome() const { return outcome_; }
  bool over() const { return outcome_ != JOB_STATE_UNSPECIFIED; }
  // True when the job is over and its result is written.
  bool written() const { return over() && state_ == outcome_; }
  // Why the job waits, recovers or has ended; empty when there is nothing to say.
  const std::string& message() const { return message_; }
  // The job has been started once.
  bool begun() const { return begun_; }
  uint32_t queue_position() const { return queue_position_; }
  // InfiniteFuture until all phases are done.
  absl::Time finishing_since() const { return finishing_since_; }
  absl::Time ended_at() const { return ended_at_; }
  // The result of a job that is over. Once it is written, only its newest epochs are kept.
  const JobResult& result() const { return result_; }
  // The user's program has ended the job: training ends there, in this attempt and the next ones.
  const std::optional<EarlyEnd>& early_end() const { return early_end_; }
  // JobRecord.save_id of a job that was over when this scheduler began; else empty.
  const std::string& recorded_save_id() const { return recorded_save_id_; }

  // The job stays queued at this position. True when that is news.
  bool Wait(const std::string& why, uint32_t position);
  // Notes whether members that the queued job needs are absent. Returns since when they are;
  // InfiniteFuture when they are not.
  absl::Time NoteAbsent(bool absent, absl::Time now);
  void LeaveQueue();
  // -> STARTING.
  void Start();
  // -> RECOVERING.
  void Recover() { state_ = JOB_RECOVERING; }
  // -> RUNNING.
  void Run();
  // Training ends early. False when it ends there, or earlier, already.
  bool EndEarly(const EarlyEnd& end);
  // Says what the job waits for. False when that was said already.
  bool Say(const std::string& message);
  // All phases are done; the job waits for the last reports.
  void Finish(absl::Time now) { finishing_since_ = now; }
  // Sets the outcome.
  // REQUIRES: !over().
  void End(JobState outcome, const std::string& message, absl::Time now);
  void SetResult(JobResult result) { result_ = std::move(result); }
  void WarnInResult(const std::string& warning) { result_.add_warnings(warning); }
  // The result is not written yet, because its place does not answer: `why`. False when that was
  // said already.
  bool AwaitOutput(const std::string& why);
  const std::string& away() const { return away_; }
  // The result could not be written: the outcome becomes JOB_FAILED.
  void WriteFailed(absl::string_view error);
  // The state becomes the outcome.
  void Written();

  // Continues a job that an earlier scheduler knew.
  void RestoreBegun(bool begun) { begun_ = begun; }
  // The record has an outcome: the job is over, but its result may not be written.
  void RestoreEnd(const JobRecord& record, absl::Time now);

  // Drops what only the result needs.
  void Archive();

 private:
  JobState state_ = JOB_QUEUED;
  JobState outcome_ = JOB_STATE_UNSPECIFIED;
  std::string message_;
  std::string away_;  // why the result is not written yet
  bool begun_ = false;
  uint32_t queue_position_ = 0;
  absl::Time absent_since_ = absl::InfiniteFuture();
  absl::Time finishing_since_ = absl::InfiniteFuture();
  absl::Time ended_at_ = absl::InfiniteFuture();
  std::optional<EarlyEnd> early_end_;
  JobResult result_;
  std::string recorded_save_id_;
};

}  // namespace sluice
