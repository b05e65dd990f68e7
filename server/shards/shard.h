// One shard of a table: the unit of placement, of locking and of application.
//
// A push brings a part of a frame. Decode validates the whole part outside the lock. Apply then
// applies it, or buffers it for its step (sync), and records its sequence in the same critical
// section.
//
// A cut (BeginCut) is the shard at one moment, which is written to a file while updates continue.
// An update first copies the values that it changes, if the cut still needs them. A checkpoint's
// cut also has the optimizer state and the shard's facts (ShardFacts), from which Restore* make an
// equal shard.
//
// Thread safety: safe from any thread. Each shard has one mutex, and calls nothing outside while
// holding it, but for the ChangeLog of a shard with a follower.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/base/slice.h"
#include "common/config/mode.h"
#include "common/saved_model/shard_image.h"
#include "common/table/table_layout.h"
#include "common/wire/frame.h"
#include "common/wire/train_position.h"
#include "proto/errors.pb.h"
#include "proto/model.pb.h"
#include "proto/replica.pb.h"
#include "proto/scheduler.pb.h"
#include "server/shards/change_log.h"
#include "server/shards/delivery_gate.h"
#include "server/shards/gradient_sum.h"
#include "server/shards/pre_images.h"
#include "server/shards/row_memory.h"
#include "server/shards/row_store.h"

namespace sluice {

class BufferBudget;

// How a job's strategy applies updates.
struct UpdatePolicy {
  Mode mode = Mode::kAsync;
  uint32_t worker_num = 1;
  uint32_t gradients_to_wait = 1;  // async
  double merge_scale = 1;          // Geo
  // Async: how many steps a worker may be ahead of the slowest one. Absent: any number.
  std::optional<uint64_t> max_staleness;
  // Changes go to a follower (Shard::BeginSeed).
  bool replicated = false;
  // The job exports, so its deltas have to name the rows that are gone.
  bool keeps_tombstones = false;
  // The day of the data, counted from 1970-01-01 (DataConfig.day).
  std::optional<int32_t> day;
};

// True if pushes are not applied at once: in sync, and in async with gradients_to_wait.
inline bool GradientsWait(const UpdatePolicy& policy) {
  return policy.mode == Mode::kSync ||
         (policy.mode == Mode::kAsync && policy.gradients_to_wait > 1);
}

// Bounds on the memory of sparse shards; null: no bound.
struct ShardLimits {
  std::shared_ptr<RowMemory> row_memory;  // of the process
  std::shared_ptr<BufferBudget> buffers;  // of the job
};

// A part of a push as a shard decodes it. It belongs to its stream, or to the shard that buffers
// it; its memory is reused from part to part.
struct PushPart {
  uint32_t rows = 0;
  std::vector<uint64_t> keys;  // sparse: [rows]
  std::vector<float> values;   // sparse: [rows][dim]; dense: [elements] or none
  // Dense parts that are applied at once, unless they are lent: the validated values stay in
  // `message` as received, and `values` is scratch space.
  bool in_message = false;
  PayloadReader message;
  Message wire;  // of a shard with a follower: the part's array as received

  // Frees memory that only an unusually large part needs. Call it between messages.
  void Shrink();
};

struct ApplyResult {
  PartStatus status = PART_OK;  // also for a repeated part
  uint64_t last_sequence = 0;
  // Nothing has changed: the rank would have more gradients waiting than ShardLimits.buffers allows
  // (buffered_bytes of this part).
  bool no_room = false;
};

struct CutOptions {
  bool state = false;  // true: a checkpoint; false: values only, for a model
  // Pays for the copies that updates make meanwhile. Null: no limit.
  std::shared_ptr<PreImageBudget> budget;
  // Above 0, without state: a delta. Sparse shards leave out rows whose last update lies before
  // this schedule step, and name the rows that have gone since.
  uint64_t since = 0;
};

class Shard {
 public:
  virtual ~Shard() = default;

  const TableLayout& table() const { return *table_; }
  uint32_t index() const { return index_; }

  // Takes the array of a part with `rows` rows from the payload; from a lent one, a copy. Returns
  // PART_BAD_SIZE, PART_NOT_FINITE, or PART_OK, and in all cases consumes the payload up to the end
  // of the part.
  // REQUIRES: the payload holds the part.
  virtual PartStatus Decode(uint32_t rows, PayloadReader* payload, PushPart* part) const = 0;

  // Sync: gives `part` the memory of the rank's last part here, in exchange for its own, if that is
  // small. Call it before Decode, so that the memory of a large part serves no small one.
  void LendMemory(uint32_t rank, PushPart* part);
  // When it buffers the part, it swaps part->values and part->keys for others to reuse. What
  // changes values (Apply, CloseStep and Flush) throws NoRoom, bad_alloc and NotFiniteChange; the
  // job must then fail.
  ApplyResult Apply(const FrameId& frame, PushPart* part);
  // Bytes that the part takes from the rank's budget while it waits; 0: it has none.
  uint64_t BufferedBytes(const PushPart& part) const;
  const BufferBudget* buffers() const { return buffers_.get(); }  // may be null

  // Sync: applies the buffered parts of `step` in rank order. Call once per step.
  // REQUIRES: step == closed + 1.
  void CloseStep(uint64_t step);
  // Sync: returns the last step that `rank` has pushed.
  uint64_t LastPushed(uint32_t rank);
  // Async: applies the gradients that wait for gradients_to_wait.
  void Flush();
  void Fence(uint32_t rank, uint64_t incarnation);
  // By rank: the last frame accepted. In sync the position has no totals.
  std::vector<RankPosition> Positions();

  // Writes the current values in wire form, as one consistent snapshot. keys: [n]; a dense shard
  // ignores them and writes the whole block.
  virtual void Read(const uint64_t* keys, size_t n, uint8_t* to) = 0;
  // Returns the same bytes without a copy. The next update does not change them. Empty for sparse
  // shards and for bf16 tables.
  virtual Slice Lend() { return Slice(); }

  // Begins a cut of the shard as it is now, in O(1). The cut is read outside the lock while updates
  // continue, and the shard outlives it. A sparse shard has one cut at a time, until the cut is
  // destroyed. The cut fails with RESOURCE_EXHAUSTED when the budget does not suffice, and with
  // FAILED_PRECONDITION when a sparse shard has another cut. `facts` may be null; it gets the facts
  // of the cut, which a cut of values does not hold.
  std::unique_ptr<ShardCut> BeginCut(const CutOptions& options = CutOptions(),
                                     ShardFacts* facts = nullptr);

  // Loads initial values from a saved model. Dense: elements of the tensor from `first` on; those
  // in the block are used. Sparse: rows of this shard, weights[i] unaligned [dim]; throws
  // bad_alloc.
  virtual void LoadElements(uint64_t first, const float* values, size_t n) {}
  virtual void LoadRows(const uint64_t* keys, const char* const* weights, size_t n) {}

  // Restores a checkpoint; call before anything is applied. Dense: elements of array 0, the
  // weights, or of state array - 1. Sparse: records[i], unaligned: last_seen, count, weights [dim],
  // state [saved_state_floats()]; throws bad_alloc.
  virtual void RestoreElements(uint32_t array, uint64_t first, const float* values, size_t n) {}
  virtual void RestoreRows(const uint64_t* keys, const char* const* records, size_t n) {}
  // Restores the position of the schedule, the count of lost updates and, in sync, the steps. In
  // other modes workers start again at sequence 1.
  virtual void RestorePosition(const ShardFacts& facts);
  // Async and Geo: restores what the shard held of each rank, because the lives in `facts` may
  // continue.
  void RestoreRanks(const ShardFacts& facts);
  // Async and Geo: the shard takes over from one that was lost, and now awaits every rank.
  // `lives`: by rank, its present life. Counts as lost what the shard lacks of `ended` lives.
  void AwaitRanks(const std::vector<uint64_t>& lives,
                  const google::protobuf::RepeatedPtrField<EndedLife>& ended);
  // The rank tells which frame was the last one acknowledged to it here. If the shard awaits the
  // rank, it continues after that frame, and counts those that it lacks as lost.
  void Hear(uint32_t rank, uint64_t incarnation, const RankPosition& acknowledged);
  // HostedJob.updates_lost, of this shard.
  uint64_t updates_lost();

  // Begins a cut with state, from which a follower makes an equal shard with RestoreSeed. From the
  // moment of the cut on, the changes go to `log`, where they are set aside.
  std::unique_ptr<ShardCut> BeginSeed(std::shared_ptr<ChangeLog> log,
                                      std::shared_ptr<PreImageBudget> budget, ShardSeed* seed,
                                      HeldSum* held);
  // The image is given up: changes go to no log any more, and those that were set aside are
  // dropped.
  void EndSeed();
  // Restores what the image of the cut leaves out; call it after the image was restored. Changes
  // that follow lead to equal bits. INVALID_ARGUMENT: it is not of such a shard.
  absl::Status RestoreSeed(const ShardSeed& seed, HeldSum held);
  bool replicated() const { return policy_.replicated; }
  // State floats of a row or dense element in a checkpoint. 0 in Geo, where the workers hold the
  // state.
  uint32_t saved_state_floats() const {
    return policy_.mode == Mode::kGeo ? 0 : table_->state_floats();
  }

  // rows: number of rows (sparse) or elements (dense).
  // bytes: used by their values, state and headers.
  // reserved_bytes: held for them, including unused room, and for keys without a row (admit).
  virtual uint64_t rows() = 0;
  virtual uint64_t bytes() = 0;
  virtual uint64_t reserved_bytes() = 0;
  // Rows that came and went, since the table began.
  virtual RowTurnover turnover() { return RowTurnover(); }
  // ShardStatus.rows_pushed
  uint64_t rows_pushed();
  // An operator deletes the rows of these keys; keys without a row are ignored. The follower hears
  // of it. Returns how many rows went. Throws bad_alloc, when maybe only some have gone; then the
  // changes to the follower end.
  virtual uint64_t DeleteRows(const uint64_t* keys, size_t n) { return 0; }
  // No export needs to name rows any more that went before this schedule step. 0: or that went
  // until now, because the next export is a base, whatever the steps of other shards are.
  virtual void DropTombstones(uint64_t before) {}
  // RESOURCE_EXHAUSTED: a delta from schedule step `since` on could not name all rows that have
  // gone.
  virtual absl::Status NamesGoneSince(uint64_t since) { return absl::OkStatus(); }

  // Bytes that a shard keeps for the job's ranks from the moment it is made: what each has
  // delivered and, in sync, its place in the open step, without the gradients there.
  static uint64_t RankStateBytes(const UpdatePolicy& policy);

 protected:
  Shard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy,
        std::shared_ptr<BufferBudget> buffers = nullptr);

  struct Pending {
    bool present = false;
    double weight = 0;
    PushPart part;
    uint64_t taken = 0;  // from buffers_
  };

  // Makes the cut of the current contents.
  virtual std::unique_ptr<ShardCut> MakeCut(CutState state, const CutOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Makes a cut whose reading fails with `status`.
  static std::unique_ptr<ShardCut> FailedCut(absl::Status status);
  // Returns the name of this shard in messages.
  std::string Name() const;

  // One update with the gradient in `part`, unscaled. Weight 0 makes it zero.
  virtual void ApplyGradient(PushPart* part, double weight)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Sync: one update with the weighted mean of `parts`: at least one, in rank order, each with
  // rows.
  virtual void ApplyMean(const std::vector<Pending*>& parts, double total)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Async: adds to the gradients that wait for gradients_to_wait.
  virtual void AddToSum(const PushPart& part, double weight)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // One update with the mean of the added gradients, if there are any.
  virtual void ApplySum(double total) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Called after each update, and in sync at the end of each step, before it counts as closed.
  virtual void EndUpdate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {}
  virtual void AddDelta(const PushPart& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // The sum to which AddToSum adds.
  virtual HeldSum SumNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // False when the sum does not fit the shard.
  virtual bool SetSum(HeldSum sum) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Applies the gradients that wait for gradients_to_wait.
  void ApplyHeld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes that the values hold every frame that was accepted.
  void NothingHeld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the learning rates of the columns at this update.
  const std::vector<float>& Rates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t ScheduleStep() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ShardFacts Facts() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the facts of its kind of shard.
  virtual void AddFacts(ShardFacts*) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {}

  // Takes all n values from the payload, even when one is not finite.
  static PartStatus DecodeValues(PayloadReader* payload, uint32_t wire_bytes, size_t n, float* to);
  // values[i] += scale x delta[i] for i < n, each rounded once. Returns false if a new value is not
  // finite.
  static bool AddScaledDelta(const float* delta, size_t n, double scale, float* values) {
    for (size_t i = 0; i < n; ++i) {
      values[i] = static_cast<float>(static_cast<double>(values[i]) +
                                     scale * static_cast<double>(delta[i]));
    }
    return BestKernels().all_finite(n, values);
  }

  const std::shared_ptr<const TableLayout> table_;
  const uint32_t index_;
  const UpdatePolicy policy_;
  const std::shared_ptr<BufferBudget> buffers_;  // null: no bound, or nothing is buffered

  Mutex mutex_;
  // The last frame of a rank.
  struct Position {
    uint64_t incarnation = 0, sequence = 0;
    TrainPosition data;
  };

  DeliveryGate gate_ ABSL_GUARDED_BY(mutex_);
  uint64_t updates_lost_ ABSL_GUARDED_BY(mutex_) = 0;
  // Schedule steps before the first of frames_; in sync, before step 1.
  uint64_t schedule_base_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t frames_ ABSL_GUARDED_BY(mutex_) = 0;           // accepted, empty ones included
  uint64_t rows_pushed_ ABSL_GUARDED_BY(mutex_) = 0;      // in these
  uint64_t closed_ ABSL_GUARDED_BY(mutex_) = 0;           // sync: steps applied
  uint64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;          // changes of values
  std::vector<Pending> pending_ ABSL_GUARDED_BY(mutex_);  // sync: by rank, of step closed_ + 1
  uint32_t held_frames_ ABSL_GUARDED_BY(mutex_) = 0;      // async: waiting for gradients_to_wait
  double held_weight_ ABSL_GUARDED_BY(mutex_) = 0;
  // By rank: what the waiting frames have taken from buffers_.
  absl::flat_hash_map<uint32_t, uint64_t> held_taken_ ABSL_GUARDED_BY(mutex_);
  // Async, by rank: the last frame accepted, and the last one that is in the values.
  std::vector<Position> accepted_ ABSL_GUARDED_BY(mutex_), applied_ ABSL_GUARDED_BY(mutex_);
  std::vector<float> rates_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ChangeLog> log_ ABSL_GUARDED_BY(mutex_);  // of the newest seed; or null
};

// The shards of a pserver as [table][shard]; null where a shard is on another pserver.
using ShardTable = std::vector<std::vector<std::shared_ptr<Shard>>>;

// Makes a block: weights [n], state arrays [state_floats][n].
std::unique_ptr<Shard> MakeDenseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                      const UpdatePolicy& policy);
// Makes a shard of rows by key, without limits.
std::unique_ptr<Shard> MakeSparseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                       const UpdatePolicy& policy);
// Makes either, as the table is.
std::unique_ptr<Shard> MakeShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                 const UpdatePolicy& policy, const ShardLimits& limits);

}  // namespace sluice
