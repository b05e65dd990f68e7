// One job on this pserver, from opening to end: its parts, and what the scheduler orders and asks
// of it. The job's workers speak to its RequestPath.
//
// Thread safety: safe from any thread. Shards and the ledger lock themselves, and neither is locked
// under the other. Nothing is sent under any lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/config/mode.h"
#include "common/daemon/trace_recorder.h"
#include "common/saved_model/checkpoint.h"
#include "common/security/job_passes.h"
#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"
#include "server/checkpoints/cut_writer.h"
#include "server/checkpoints/job_cuts.h"
#include "server/copies/replicator.h"
#include "server/copies/seed_stream.h"
#include "server/requests/job_ledger.h"
#include "server/requests/job_view.h"
#include "server/tables/job_copies.h"
#include "server/tables/job_opener.h"
#include "server/tables/request_path.h"

namespace sluice {

class JobTables {
 public:
  // Opens the shards that the route gives to `address`, with initial values or the values of the
  // job's initial model or checkpoint. `progress` may be null. Errors come from OpenJob.
  static absl::StatusOr<std::shared_ptr<JobTables>> Open(const JobSpec& spec,
                                                         const std::string& address,
                                                         const JobResources& resources,
                                                         LoadProgress* progress = nullptr);

  // Takes over a later route, and fences the lives of ranks before spec.incarnations. When the
  // report has the route's generation, no frame or commit of a fenced life is applied any more, and
  // HostedJob.ranks says what is here of it. FAILED_PRECONDITION when the route moves shards to or
  // from this pserver. INVALID_ARGUMENT when the route or the incarnations do not fit the job.
  absl::Status UpdateRoute(const JobSpec& spec);
  // Refuses the parked pulls and all later requests with NOT_FOUND.
  void Close();

  // Takes what workers send.
  RequestPath* requests() { return &requests_; }

  uint64_t instance() const { return instance_; }  // JobSpec.instance
  const JobPasses& passes() const { return passes_; }
  // The only folder that SaveShards may be asked to write to, and whether it may use this save_id.
  const std::string& model_dir() const { return model_dir_; }
  bool MaySaveAs(const std::string& save_id) const {
    return IsModelSaveId(saves_, instance_, save_id);
  }
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

  // Fences as UpdateRoute does, and fills in the positions of the view, which is not in force yet.
  void FenceRanks(const std::vector<uint64_t>& incarnations, JobView* view);
  absl::StatusOr<std::vector<SavedFile>> SaveAlone(const std::string& directory,
                                                   const std::string& save_id);
  // OK unless a cut after `step` would hold another step's values.
  absl::Status CanCutAfter(uint64_t step);
  // Begins to send changes to a follower, if the job has replicas.
  void StartReplication(const JobSpec& spec, const JobResources& resources);
  // Carries out what SetCutOrder is told.
  void TakeCutOrder(const CutOrder& order);
  // Keeps a cut for which rows were deleted from being reported as written until the follower has
  // deleted them. Copies that still had them could bring them back.
  void HoldBackDeletion(HostedJob* report);
  // Keeps a new generation and its positions out of the report until the follower has the changes
  // behind them.
  void HoldBackNews(HostedJob* report);

  const std::string job_id_;
  const uint64_t instance_;
  const std::string address_;
  const JobPasses passes_;
  const std::string model_dir_;
  const JobConfig saves_;  // only the fields that say which models the job saves
  Env* const env_;
  const TableLayouts layouts_;
  const Mode mode_;
  const std::unique_ptr<TraceRecorder> trace_;
  const std::unique_ptr<CutWriter> own_writer_;  // null when the process has one for all jobs
  CutWriter* const writer_;
  const std::function<uint64_t()> available_memory_;
  JobLedger ledger_;
  JobCuts cuts_;
  JobCopies copies_;
  SeedTurn seed_turn_;
  RequestPath requests_;                    // uses the parts above
  std::unique_ptr<Replicator> replicator_;  // null: the job has no replicas

  Mutex report_mutex_;
  // The newest view, and the changes that must be kept before it is reported; the last view that
  // was reported.
  JobLedger::View untold_ ABSL_GUARDED_BY(report_mutex_), told_ ABSL_GUARDED_BY(report_mutex_);
  Replicator::Mark untold_since_ ABSL_GUARDED_BY(report_mutex_);
  // The newest cut for which rows were deleted, and the changes that the follower must have first.
  uint64_t deleted_with_ ABSL_GUARDED_BY(report_mutex_) = 0;
  Replicator::Mark deleted_by_ ABSL_GUARDED_BY(report_mutex_);

  class SaveTurn;
  Mutex save_mutex_;
  CondVar saved_;
  bool saving_ ABSL_GUARDED_BY(save_mutex_) = false;
};

}  // namespace sluice
