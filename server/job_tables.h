// One job on this pserver: its shards, its fences, and the pulls that wait.
//
// Requests may be answered later, by whoever makes them ready (the last commit of a step, a slow
// worker's push): the answer leaves through the request's ReplyWriter. Thread safety: safe from any
// thread. Shards lock themselves; mutex_ guards the job's own bookkeeping. No shard is locked under
// mutex_, and nothing is sent under any lock. Invariants: shards_ never changes after Open. Parked
// pulls are at most kMaxParkedPerWorker x worker_num.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/progress/trace_recorder.h"
#include "proto/scheduler.pb.h"
#include "server/available_memory.h"
#include "server/delivery_gate.h"
#include "server/load_progress.h"
#include "server/reply_writer.h"
#include "server/shard.h"
#include "server/staleness_clock.h"
#include "server/step_barrier.h"

namespace sluice {

// What one job may ask of this process.
struct JobLimits {
  // Of one message, either way: a longer part of an answer could not be sent.
  uint64_t max_message_bytes = uint64_t{64} << 20;
  // Dense shards, or rows of a saved model, that need more bytes than this are not opened.
  std::function<uint64_t()> available_memory = [] { return AvailableMemory(); };
  // Threads that fill its tables from a saved model; 0: one a processor, at most 4.
  uint32_t load_threads = 0;
  Env* env = Env::Real();  // where saved models are read and written; outlives the job
};

class JobTables {
 public:
  static constexpr size_t kMaxParkedPerWorker = 64;
  // Of the sparse values that one pull may ask for: it may name a key many times.
  static constexpr uint64_t kMaxPullBytes = uint64_t{1} << 30;

  // Who speaks, as its Hello said.
  struct Caller {
    uint32_t rank = 0;
    uint64_t incarnation = 0;
    uint64_t stream = 0;  // unique in the process
  };

  // Opens the shards that the route gives to `address`, with initial values or those of the job's
  // initial model. `clock` outlives it; `progress` may be null. INVALID_ARGUMENT, DATA_LOSS,
  // NOT_FOUND say what is wrong with the spec or the model; RESOURCE_EXHAUSTED: its tables do not
  // fit in memory; CANCELLED: progress->Cancel().
  static absl::StatusOr<std::shared_ptr<JobTables>> Open(const JobSpec& spec,
                                                         const std::string& address, Clock* clock,
                                                         const JobLimits& limits = {},
                                                         LoadProgress* progress = nullptr);

  // INVALID_ARGUMENT: no such rank. ABORTED: a later life of the rank has spoken. Fences earlier
  // ones.
  absl::Status Hello(const Caller& caller);

  // One message of a request. With the last one the answer is taken over: *reply is empty
  // afterwards. Otherwise, and on an error, it is left: the caller refuses the request with the
  // status.
  //   FAILED_PRECONDITION  another generation than the job's
  //   ABORTED              this incarnation is fenced
  //   INVALID_ARGUMENT     malformed, or not for the job's mode; nothing of the message was applied
  //   NOT_FOUND            the job was closed
  //   RESOURCE_EXHAUSTED   too many pulls wait, or memory ran out; a change that was cut short by
  //                        that fails the job
  // `scratch` belongs to the stream.
  absl::Status Handle(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                      std::unique_ptr<ReplyWriter>* reply);

  // Its waiting pulls will never be read.
  void ForgetStream(uint64_t stream);
  // FAILED_PRECONDITION when it moves shards to or from this pserver.
  absl::Status UpdateRoute(const Route& route);
  // Answers what waits with NOT_FOUND; requests are refused from now on.
  void Close();

  uint64_t instance() const { return instance_; }  // JobSpec.instance
  uint64_t generation();
  HostedJob Report();
  absl::StatusOr<std::vector<SavedFile>> SaveShards(const std::string& directory,
                                                    const std::string& save_id = "");
  TraceRecorder* trace() const { return trace_.get(); }  // null: the job asks for none

  // Test: sees the shard, null when it is not here.
  Shard* shard_for_test(uint32_t table, uint32_t shard) { return FindShard(table, shard); }
  size_t parked_for_test() {
    MutexLock lock(&mutex_);
    return parked_.size();
  }

 private:
  struct ParkedPull {
    Caller caller;
    Pull pull;
    PayloadReader payload;
    std::unique_ptr<ReplyWriter> reply;
    absl::Time since;
    uint64_t step = 0;  // StalenessClock::StepOf when it came
  };

  JobTables(const JobSpec& spec, TableLayouts layouts, const UpdatePolicy& policy, Clock* clock,
            const JobLimits& limits);
  void OpenShards(const Route& route, const std::string& address);
  Shard* FindShard(uint32_t table, uint32_t shard) const { return shards_[table][shard].get(); }

  absl::Status CheckCaller(const Caller& caller, uint64_t generation);
  // The whole message fits the tables and the mode, before any of it is applied.
  absl::Status CheckRequest(const FrameHeader& header, size_t payload_bytes) const;
  absl::Status CheckMode(const FrameHeader& header) const;
  // The answer to it can be sent.
  absl::Status CheckAnswer(const Pull& pull) const;
  absl::Status HandleChecked(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                             std::unique_ptr<ReplyWriter>* reply);

  // `last`: of the messages of its frame.
  void ApplyPush(const Caller& caller, const Push& push, bool last, PayloadReader* payload,
                 PushPart* scratch, ReplyWriter* reply);
  void CountFrame(const Caller& caller, const Push& push, const ReplyWriter& reply);
  absl::Status CommitStep(const Caller& caller, uint64_t step);
  void CloseStep(uint64_t step);
  void EndEpoch(const Caller& caller, uint32_t epoch);
  // Answers now, or parks it and takes *reply.
  absl::Status AnswerOrPark(const Caller& caller, const Pull& pull, PayloadReader payload,
                            std::unique_ptr<ReplyWriter>* reply);
  void Answer(const Caller& caller, const Pull& pull, PayloadReader payload, ReplyWriter* reply);
  void AnswerReady();
  // `step`: StalenessClock::StepOf when the pull came.
  bool Ready(const Caller& caller, const Pull& pull, uint64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WaitingFor() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const std::string& error);

  const std::string job_id_;
  const uint64_t instance_;
  const TableLayouts layouts_;
  const UpdatePolicy policy_;
  Clock* const clock_;
  const JobLimits limits_;
  const std::unique_ptr<TraceRecorder> trace_;
  std::vector<std::vector<std::unique_ptr<Shard>>>
      shards_;  // [table][shard], null: another pserver's
  std::string address_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string error_ ABSL_GUARDED_BY(mutex_);
  DeliveryGate frames_ ABSL_GUARDED_BY(mutex_);  // whole frames, for fencing and counting
  StalenessClock staleness_ ABSL_GUARDED_BY(mutex_);
  StepBarrier barrier_ ABSL_GUARDED_BY(mutex_);                 // sync
  std::vector<uint32_t> epochs_ended_ ABSL_GUARDED_BY(mutex_);  // by rank
  uint32_t epochs_flushed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<ParkedPull> parked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
