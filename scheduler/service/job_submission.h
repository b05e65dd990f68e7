// Admits submitted jobs: prepares a job and its folder, keeps its record, and then queues it.
//
// A submission reads the job's files and folders in the calling thread, and holds up no other call
// meanwhile. From the number on, one submission goes at a time.
//
// Thread safety: safe.
//
// Lock order: mutex_, then the locks of SchedulerLoop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "scheduler/service/job_numbers.h"
#include "scheduler/service/job_spec_builder.h"
#include "scheduler/service/scheduler_loop.h"

namespace sluice {

class JobSubmission {
 public:
  // The object in a folder of a store that reserves it for a job.
  static constexpr char kReservation[] = "RESERVED";

  struct Options {
    SchedulerLoop* loop = nullptr;  // outlives the object, as clock and env do
    Clock* clock = nullptr;
    Env* env = nullptr;
    uint32_t pserver_num = 1;    // of the cluster
    std::string default_output;  // parent of the output folders of jobs that name none; or a store
    std::string numbers_file;    // of JobNumbers; empty: none
    Env* numbers_env = nullptr;  // for that file, which is not below the roots of jobs; null: env
    std::function<void(const std::string&)> log;
  };
  explicit JobSubmission(Options options)
      : options_(std::move(options)),
        numbers_(options_.numbers_env == nullptr ? options_.env : options_.numbers_env,
                 options_.numbers_file) {}

  // A repeated call with the same request_id returns the job of the first one; "": a new job.
  // FAILED_PRECONDITION: the job's record cannot be kept, so it will not run. UNAVAILABLE: it is
  // not known whether the record is kept; repeat the call.
  absl::StatusOr<SubmitJobReply> Submit(const SubmitJobRequest& request,
                                        const std::string& request_id);

 private:
  // A job that has been checked, and where it starts.
  struct Checked {
    JobDraft draft;
    std::unique_ptr<const ResumePoint> resume;  // null: it does not continue
  };

  // The reply to an earlier submission with this id; without a job_id if there was none.
  SubmitJobReply ReplyBefore(const std::string& request_id);
  // Reads files: not under a lock.
  absl::StatusOr<Checked> Check(const SubmitJobRequest& request) const;
  // Gives the job a number, and a folder if it names none. Returns its id.
  absl::StatusOr<std::string> AddWithFolder(Checked job, const SubmitJobRequest& request,
                                            const std::string& request_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the folder `name`-N below default_output and returns N, the first number from `number` on
  // that is free. Safe against another scheduler that does the same at the same time.
  absl::StatusOr<uint64_t> ReserveFolder(const std::string& name, uint64_t number) const;
  // The same on a store, which has no folders: N is above the numbers of all folders that are
  // there, and kReservation in it says that it is taken.
  absl::StatusOr<uint64_t> ReserveOnStore(const std::string& name, uint64_t number) const;
  // Gives the folder back, in which no job has written.
  void GiveBack(const std::string& dir) const;
  // Keeps the job's record, and then queues the job. Moves checked->resume.
  absl::StatusOr<std::string> KeepAndAdd(Checked* checked, uint64_t number,
                                         const SubmitJobRequest& request,
                                         const std::string& request_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the record of a job that is refused with `why`. Returns the answer to the submission.
  absl::Status Refuse(const std::vector<std::string>& keys, const absl::Status& why);

  const Options options_;
  Mutex mutex_;  // held while a job gets its number and is kept
  JobNumbers numbers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
