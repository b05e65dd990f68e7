// The checkpoints of one job on this pserver: begins the newest one, has it written in the
// background, and forgets it when the scheduler says that it is over.
//
// Thread safety: safe from any thread. No shard is locked under the lock that reports take.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "proto/scheduler.pb.h"
#include "server/checkpoints/cut_writer.h"
#include "server/checkpoints/job_cut.h"
#include "server/requests/job_view.h"

namespace sluice {

class JobCuts {
 public:
  struct Options {
    std::string root;  // the folder of the job's checkpoints; empty: none can be made
    // The folder of the job's exports (IsExportCut); empty: it makes none.
    std::string export_root;
    uint64_t instance = 0;
    CutWriter* writer = nullptr;  // these outlive the job's cuts
    Env* env = nullptr;
    Clock* clock = nullptr;
    std::function<uint64_t()> available_memory;
    std::function<void()> on_change;  // called when the state of a cut changes; may be null
    std::function<void(const std::string& error)> fail_job;  // JobCut::Options.fail_job
  };
  explicit JobCuts(Options options) : options_(std::move(options)) {}
  ~JobCuts() { Cancel(); }

  // Begins checkpoint `number` with what the shards hold now, after `step`. Does nothing when this
  // number or a later one has begun or is over. An earlier checkpoint that is still written is
  // given up. An error, such as a `possible` that is not OK, is reported as an error of the
  // checkpoint; the job continues.
  void Begin(uint64_t number, uint64_t step, const JobView& view,
             const absl::Status& possible = absl::OkStatus());
  // Also keeps the rows to delete with a later checkpoint, until an order has none.
  void SetOrder(const CutOrder& order, const JobView& view,
                const absl::Status& possible = absl::OkStatus());
  // Gives up what is not complete.
  void Cancel();
  // Waits until nothing is written any more, also of checkpoints that were given up.
  void AwaitEnd();
  void FillReport(HostedJob* report);
  // The newest checkpoint that the scheduler has told of or that has begun here; 0: none.
  uint64_t newest();

 private:
  std::shared_ptr<JobCut> cut();
  // Cancels `cut`, which may be null.
  void GiveUp(std::shared_ptr<JobCut> cut);
  // CutOrder.deletion.
  void SetDeletion(const CutOrder& order, const JobView& view);
  // CutOrder.export_since; shards drop what no later export names.
  void SetExportSince(std::vector<uint64_t> since, const JobView& view);

  const Options options_;
  Mutex mutex_;
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;           // the highest number
  uint64_t over_ ABSL_GUARDED_BY(mutex_) = 0;            // CutOrder.over
  std::shared_ptr<JobCut> cut_ ABSL_GUARDED_BY(mutex_);  // the newest that is not over; or null
  // Cuts that were given up while a file was still being written.
  std::vector<std::shared_ptr<JobCut>> leaving_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const DeletedKeys> deletion_ ABSL_GUARDED_BY(mutex_);  // or null
  uint64_t deletion_at_ ABSL_GUARDED_BY(mutex_) = 0;  // the checkpoint before whose cut they go
  // Held while all shards begin a cut, and while they drop the keys of rows that are gone. A drop
  // in the middle of a cut would take keys that its export, or the one after it, has to name. Taken
  // before the shards' locks; never together with mutex_.
  Mutex export_turn_;
  std::vector<uint64_t> export_since_ ABSL_GUARDED_BY(export_turn_);  // CutOrder.export_since
};

}  // namespace sluice
