// Takes what workers send to one job on this pserver, hellos and requests, through the steps that
// request_path.cc lists.
//
// A request may be answered later, by the request that makes it ready: the last commit of a step,
// or a slow worker's push. Its answer still leaves through its own ReplyWriter.
//
// Thread safety: safe from any thread. Shards and the ledger lock themselves, and neither is locked
// under the other. Nothing is sent under any lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/mode.h"
#include "common/daemon/trace_recorder.h"
#include "common/security/job_passes.h"
#include "common/table/table_layout.h"
#include "common/wire/frame.h"
#include "proto/pserver.pb.h"
#include "server/checkpoints/job_cuts.h"
#include "server/copies/replicator.h"
#include "server/requests/job_ledger.h"
#include "server/requests/job_view.h"
#include "server/requests/parked_pulls.h"
#include "server/requests/reply_writer.h"
#include "server/requests/request_check.h"
#include "server/shards/shard.h"
#include "server/shards/shard_threads.h"

namespace sluice {

class RequestPath {
 public:
  // The job that is served. Everything it points to outlives the path.
  struct Job {
    std::string id;
    std::string address;  // of this pserver, for messages
    const JobPasses* passes = nullptr;
    const TableLayouts* layouts = nullptr;
    Mode mode = Mode::kAsync;
    uint64_t max_message_bytes = 0;
    JobLedger* ledger = nullptr;
    JobCuts* cuts = nullptr;
    TraceRecorder* trace = nullptr;         // null: the job asks for no trace
    ShardThreads* shard_threads = nullptr;  // null: each request does all of its work itself
    // Called when the last awaited rank has spoken; may be null.
    std::function<void()> on_report_changed;
  };
  explicit RequestPath(Job job);

  // From now on, changes also go to a follower. REQUIRES: no stream has begun yet.
  void ReplicateTo(Replicator* replicator) { replicator_ = replicator; }

  // Begins a stream of `caller`, whose route has this generation. Fences earlier lives of the rank.
  // Shards that await the rank continue after the frames that were acknowledged to it.
  // INVALID_ARGUMENT: no such rank, or lists that do not fit. ABORTED: a later life of the rank has
  // spoken. PERMISSION_DENIED: the hello lacks the caller's pass; nothing has changed.
  // FAILED_PRECONDITION: shards await the rank, and it has another generation than the job.
  absl::Status Hello(const Caller& caller, uint64_t generation,
                     const sluice::Hello& hello = sluice::Hello());

  // Handles one message of a request. The last message takes *reply, which is empty afterwards.
  // After another message, or an error, *reply stays: the caller refuses the request with the
  // status.
  //   FAILED_PRECONDITION  the message has another generation than the job
  //   ABORTED              the sender's incarnation is fenced
  //   INVALID_ARGUMENT     the message is malformed or not for the job's mode, and nothing of it
  //                        was applied; or its commit or pull names a step that is not open
  //   NOT_FOUND            the job was closed
  //   UNAVAILABLE          restored shards await the sender's hello
  //   RESOURCE_EXHAUSTED   too many pulls or gradients of the rank wait, or memory ran out; the
  //                        job fails if that cut a change short
  //   OUT_OF_RANGE         a value became NaN or infinite, and the job fails
  // `scratch` belongs to the stream. `malformed` gets an error when a part of a push has rows that
  // are not those of its shard, which no race explains. The reply refuses only that part.
  absl::Status Handle(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                      std::unique_ptr<ReplyWriter>* reply, absl::Status* malformed);

  // Drops the parked pulls and the kept answers of this stream, which has closed.
  void ForgetStream(uint64_t stream);

  // Does what the lost rank's own commit would have done. A commit that cannot count here is left
  // out: the scheduler then gives the cut up for which it needs this commit.
  void CommitForLost(uint32_t rank, const Commit& commit);
  // Answers pulls that are ready (JobLedger::TakeReady). `own` answers the request itself; null: it
  // is not answered now.
  void AnswerReady(std::vector<ParkedPull> ready, const std::function<void()>& own = nullptr);

 private:
  absl::Status HandleSteps(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                           std::unique_ptr<ReplyWriter>* reply, absl::Status* malformed);
  // Runs a change of shards. An error means that some shards may have the change and others not, or
  // that a value is NaN or infinite. No retry can repair that, so the job must fail. `what`: the
  // change, for a message that memory ran out.
  //   RESOURCE_EXHAUSTED  memory ran out, or a table's rows
  //   OUT_OF_RANGE        the change has made a value NaN or infinite
  absl::Status Change(const std::string& what, absl::FunctionRef<void()> change) const;
  // Tells the shards, which await the rank, the frames that were acknowledged to it.
  absl::Status Hear(const Caller& caller, const sluice::Hello& hello, const JobView& view);
  static void Flush(const JobView& view);
  // Step 3. Returns true when the frame counts. RESOURCE_EXHAUSTED, marked with the reason kRoom:
  // too many gradients of the rank wait.
  absl::StatusOr<bool> ApplyPush(const Caller& caller, const JobView& view,
                                 const FrameHeader& header, PayloadReader* payload,
                                 PushPart* scratch, ReplyWriter* reply, absl::Status* malformed);
  // Step 6.
  void ChangeShards(const JobLedger::Request& request, const JobLedger::Outcome& wanted);
  // Applies the step on every shard, on several threads if it is large; its cut, if it has one,
  // begins right after.
  void CloseStep(const JobView& view, uint64_t step, const JobLedger::Outcome& wanted);
  // Step 7.
  void AnswerParked(ParkedPull* parked);
  void Answer(const Caller& caller, const JobView& view, const Pull& pull, PayloadReader payload,
              const ReplyStamp& stamp, std::unique_ptr<ReplyWriter>* reply);
  // Calls work(i) for each i < n, on several threads if the job's steps are large.
  void Share(size_t n, const std::function<void(size_t)>& work);

  const std::string job_id_, address_;
  const JobPasses* const passes_;
  const TableLayouts* const layouts_;
  const RequestCheck check_;
  JobLedger* const ledger_;
  JobCuts* const cuts_;
  TraceRecorder* const trace_;         // may be null
  ShardThreads* const shard_threads_;  // may be null
  const std::function<void()> on_report_changed_;
  Replicator* replicator_ = nullptr;  // null: the job has no replicas
  // Whether the last sync step took long enough to close that helpers are worth waking up. Relaxed:
  // the results do not depend on it.
  std::atomic<bool> large_steps_{false};
};

}  // namespace sluice
