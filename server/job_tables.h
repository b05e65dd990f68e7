// One job on this pserver: takes its requests through the steps that job_tables.cc lists.
//
// A request may be answered later, by the request that makes it ready: the last commit of a step,
// or a slow worker's push. Its answer still leaves through its own ReplyWriter.
//
// Thread safety: safe from any thread. Shards and the ledger lock themselves, and neither is locked
// under the other. Nothing is sent under any lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/daemon/trace_recorder.h"
#include "common/security/job_passes.h"
#include "proto/scheduler.pb.h"
#include "server/cut_writer.h"
#include "server/job_copies.h"
#include "server/job_cuts.h"
#include "server/job_ledger.h"
#include "server/job_opener.h"
#include "server/replicator.h"
#include "server/reply_writer.h"
#include "server/request_check.h"
#include "server/seed_turn.h"

namespace sluice {

class JobTables {
 public:
  // Opens the shards that the route gives to `address`, with initial values or the values of the
  // job's initial model or checkpoint. `progress` may be null. Errors come from OpenJob.
  static absl::StatusOr<std::shared_ptr<JobTables>> Open(const JobSpec& spec,
                                                         const std::string& address,
                                                         const JobResources& resources,
                                                         LoadProgress* progress = nullptr);

  // Begins a stream of `caller`, whose route has this generation. Fences earlier lives of the rank.
  // Shards that await the rank take over what it says was acknowledged to it. INVALID_ARGUMENT: no
  // such rank, or lists that do not fit. ABORTED: a later life of the rank has spoken.
  // PERMISSION_DENIED: the hello lacks the caller's pass; nothing has changed.
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
  // `scratch` belongs to the stream. `malformed` gets an error when a part of a push, which the
  // reply refuses alone, can come of no race: its rows are not those of its shard.
  absl::Status Handle(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                      std::unique_ptr<ReplyWriter>* reply, absl::Status* malformed);

  // Drops the parked pulls and the kept answers of this stream, which has closed.
  void ForgetStream(uint64_t stream);
  // Takes over a later route, and fences the lives of ranks before spec.incarnations. When the
  // report has the route's generation, no frame or commit of a fenced life is applied any more, and
  // HostedJob.ranks says what is here of it. FAILED_PRECONDITION when the route moves shards to or
  // from this pserver. INVALID_ARGUMENT when the route or the incarnations do not fit the job.
  absl::Status UpdateRoute(const JobSpec& spec);
  // Refuses the parked pulls and all later requests with NOT_FOUND.
  void Close();

  uint64_t instance() const { return instance_; }  // JobSpec.instance
  const JobPasses& passes() const { return passes_; }
  // The only folder that SaveShards may be asked to write to.
  const std::string& model_dir() const { return model_dir_; }
  uint64_t generation() { return ledger_.view()->generation; }
  HostedJob Report();
  // The newest checkpoint that this job knows of; 0: none.
  uint64_t newest_cut() { return cuts_.newest(); }
  // Takes the scheduler's orders about the job's checkpoints and about commits of lost ranks.
  void SetCutOrder(const CutOrder& order);
  // Saves the values without optimizer state. Waits for a checkpoint that is being written, and for
  // an earlier call: a rank that replaces another saves under the same names. RESOURCE_EXHAUSTED
  // names the job when there is no memory to save it.
  absl::StatusOr<std::vector<SavedFile>> SaveShards(const std::string& directory,
                                                    const std::string& save_id = "");
  TraceRecorder* trace() const { return trace_.get(); }  // null: the job asks for none
  // The copies that this pserver keeps as a follower.
  JobCopies* copies() { return &copies_; }

  // Returns null when the shard is not here.
  Shard* shard_for_test(uint32_t table, uint32_t shard) {
    return ledger_.view()->FindShard(table, shard);
  }
  size_t parked_for_test() { return ledger_.parked(); }

 private:
  JobTables(const JobSpec& spec, const std::string& address, const JobResources& resources,
            OpenedJob opened);

  absl::Status HandleSteps(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                           std::unique_ptr<ReplyWriter>* reply, absl::Status* malformed);
  // Fences as UpdateRoute does, and fills in the positions of the view, which is not in force yet.
  void FenceRanks(const std::vector<uint64_t>& incarnations, JobView* view);
  absl::StatusOr<std::vector<SavedFile>> SaveAlone(const std::string& directory,
                                                   const std::string& save_id);
  // Passes on to the shards, which await the rank, what it says was acknowledged to it.
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
  // Does what the lost rank's own commit would have done. A commit that cannot count here is left
  // out: the scheduler then gives the cut up for which it needs this commit.
  void CommitForLost(uint32_t rank, const Commit& commit);
  // OK unless a cut after `step` would hold another step's values.
  absl::Status CanCutAfter(uint64_t step);
  // Step 7. `own` answers the request itself; null: it is not answered now.
  void AnswerReady(std::vector<ParkedPull> ready, const std::function<void()>& own = nullptr);
  void AnswerParked(ParkedPull* parked);
  // Calls work(i) for each i < n, on several threads if the job's steps are large.
  void Share(size_t n, const std::function<void(size_t)>& work);
  void Answer(const Caller& caller, const JobView& view, const Pull& pull, PayloadReader payload,
              const ReplyStamp& stamp, std::unique_ptr<ReplyWriter>* reply);
  // Begins to send changes to a follower, if the job has replicas.
  void StartReplication(const JobSpec& spec, const JobResources& resources);
  // Keeps a new generation and its positions out of the report until the follower has the changes
  // behind them.
  void HoldBackNews(HostedJob* report);

  const std::string job_id_;
  const uint64_t instance_;
  const std::string address_;
  const JobPasses passes_;
  const std::string model_dir_;
  Env* const env_;
  const TableLayouts layouts_;
  const Mode mode_;
  const RequestCheck check_;
  const std::unique_ptr<TraceRecorder> trace_;
  const std::unique_ptr<CutWriter> own_writer_;  // null when the process has one for all jobs
  CutWriter* const writer_;
  const std::function<uint64_t()> available_memory_;
  const std::function<void()> on_report_changed_;  // may be null
  ShardThreads* const shard_threads_;              // null: none
  // Whether the last sync step took long enough to close that helpers are worth waking up. Relaxed:
  // the results do not depend on it.
  std::atomic<bool> large_steps_{false};
  JobLedger ledger_;
  JobCuts cuts_;
  JobCopies copies_;
  SeedTurn seed_turn_;
  std::unique_ptr<Replicator> replicator_;  // null: the job has no replicas

  Mutex report_mutex_;
  // The newest view, and the changes that must be kept before it is reported; the last view that
  // was reported.
  JobLedger::View untold_ ABSL_GUARDED_BY(report_mutex_), told_ ABSL_GUARDED_BY(report_mutex_);
  Replicator::Mark untold_since_ ABSL_GUARDED_BY(report_mutex_);

  class SaveTurn;
  Mutex save_mutex_;
  CondVar saved_;
  bool saving_ ABSL_GUARDED_BY(save_mutex_) = false;
};

}  // namespace sluice
