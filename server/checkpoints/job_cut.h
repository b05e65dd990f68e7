// One checkpoint of one job on this pserver: the cuts of all its shards, written to files one after
// another.
//
// The cuts begin together (Begin). Each ends as soon as its file is complete, which gives back the
// memory that updates needed meanwhile. After an error, or when it is cancelled before all files
// are complete, the files that were written are removed.
//
// Thread safety: safe from any thread. Begin comes first, on one thread. No lock is held while
// files are written or callbacks run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/saved_model/shard_image.h"
#include "proto/scheduler.pb.h"
#include "server/requests/job_view.h"
#include "server/shards/pre_images.h"

namespace sluice {

// Rows that an operator deletes (DeletionOrder), by shard of their table.
struct DeletedKeys {
  uint64_t id = 0;
  uint32_t table = 0;
  std::vector<std::vector<uint64_t>> by_shard;
};

class JobCut {
 public:
  struct Options {
    uint64_t checkpoint = 0;  // its number in the job
    uint64_t step = 0;        // of its folder
    std::string directory, save_id;
    // An export: values only; CutOptions.since by table, or empty for a base. When a shard cannot
    // name all rows that have gone since then, the cut is that of a base, and the report says why
    // (HostedCut.error).
    std::optional<std::vector<uint64_t>> export_since;
    // Each shard drops these rows right before its cut. Null: none.
    std::shared_ptr<const DeletedKeys> deletion;
    std::shared_ptr<PreImageBudget> budget;
    Env* env = nullptr;               // outlives the cut
    Clock* clock = nullptr;           // outlives the cut
    std::function<void()> on_change;  // called when the state in Report changes; may be null
    // Fails the job: a value is NaN or infinite, so that no later checkpoint could be written
    // either. May be null.
    std::function<void(const std::string& error)> fail_job;
  };
  explicit JobCut(Options options) : options_(std::move(options)) {}

  uint64_t checkpoint() const { return options_.checkpoint; }

  // Begins the cuts of the view's shards, O(1) each, under each shard's lock in turn. Called once.
  // No shard may drop tombstones meanwhile.
  void Begin(const JobView& view);
  // Call instead of Begin when the checkpoint cannot be made.
  void Refuse(absl::Status why);
  // Writes a file that nobody has begun yet. False when there is none: the calls that are under way
  // write the rest.
  bool WriteOne();
  // Cancels the checkpoint unless all its files are complete. The cuts of its shards end at once,
  // so that others can begin; a file under way ends at its next piece, for which a store may take
  // long.
  void Cancel();
  // True when nothing is written any more.
  bool ended();
  void AwaitEnd();
  HostedCut Report();

 private:
  struct Part {
    std::shared_ptr<Shard> shard;  // destroyed after the cut, which uses it
    std::unique_ptr<ShardCut> cut;
  };
  // Cuts that have begun; the positions and, by table, the schedule steps behind all of them.
  struct Begun {
    std::vector<Part> parts;
    std::vector<RankPosition> least;
    std::vector<uint64_t> schedule_steps;  // HostedCut.schedule_step
    uint64_t deleted = 0;                  // rows of Options::deletion
  };
  class Watched;

  // `since`: Options::export_since.
  Begun BeginAll(const JobView& view, const std::vector<uint64_t>& since) const;
  absl::StatusOr<SavedFile> Write(const Shard& shard, Watched* cut);
  // The state after the file of this cut was written or cut short.
  void EndOne(const Watched* cut, absl::StatusOr<SavedFile> file);
  // Ends these cuts. Not to be called with the lock.
  static void EndAll(const std::vector<std::shared_ptr<Watched>>& cuts);
  void EndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the checkpoint: removes its files if it failed, and calls on_change.
  void Finish();

  const Options options_;
  // Relaxed: figures.
  std::atomic<uint64_t> written_bytes_{0}, rows_{0}, gone_{0};

  Mutex mutex_;
  CondVar ended_changed_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);      // the first error
  std::vector<Part> parts_ ABSL_GUARDED_BY(mutex_);  // those from next_ on are to be written
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Watched>> running_ ABSL_GUARDED_BY(mutex_);  // files under way
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);  // of files that were begun
  std::vector<SavedFile> files_ ABSL_GUARDED_BY(mutex_);    // complete
  std::vector<RankPosition> least_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> schedule_steps_ ABSL_GUARDED_BY(mutex_);  // HostedCut.schedule_step
  std::vector<uint64_t> since_ ABSL_GUARDED_BY(mutex_);           // HostedCut.since
  std::string why_base_ ABSL_GUARDED_BY(mutex_);                  // although a delta was asked for
  uint64_t deleted_ ABSL_GUARDED_BY(mutex_) = 0;                  // rows of options_.deletion
  absl::Time begun_ ABSL_GUARDED_BY(mutex_), end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
