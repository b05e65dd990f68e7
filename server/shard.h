// One shard of a table: the unit of placement, of locking and of application.
//
// A push is a part of a frame: validated whole outside the lock (Decode), then applied, or buffered
// for its step (sync), with its sequence recorded in the same critical section (Apply).
//
// Thread safety: all methods are safe from any thread; one mutex a shard, nothing is called out
// under it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/mutex.h"
#include "common/config/job_config.h"
#include "common/saved_model/shard_image.h"
#include "common/table/table_layout.h"
#include "common/wire/frame.h"
#include "proto/errors.pb.h"
#include "server/delivery_gate.h"
#include "server/gradient_sum.h"
#include "server/row_store.h"

namespace sluice {

// What a job's strategy says about updates.
struct UpdatePolicy {
  Mode mode = Mode::kAsync;
  uint32_t worker_num = 1;
  uint32_t gradients_to_wait = 1;  // async
  double merge_scale = 1;          // Geo
  // Async: how many steps a worker may be ahead of the slowest one. Absent: any number.
  std::optional<uint64_t> max_staleness;
};

// Which frame a part belongs to.
struct FrameId {
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint64_t sequence = 0;
  double weight = 0;  // n_w
};

// A decoded part. Its memory is reused from part to part.
struct PushPart {
  uint32_t rows = 0;
  std::vector<uint64_t> keys;  // sparse: [rows]
  std::vector<float> values;   // sparse: [rows][dim]; dense: [elements] or none
  // Dense, when it is applied at once: validated values stay here, as they were received, and
  // `values` is spare.
  bool in_message = false;
  PayloadReader message;
};

struct ApplyResult {
  PartStatus status = PART_OK;  // also for a repeated part
  uint64_t last_sequence = 0;
};

class Shard {
 public:
  virtual ~Shard() = default;

  const TableLayout& table() const { return *table_; }
  uint32_t index() const { return index_; }

  // Takes the array of a part with `rows` rows from the payload. PART_BAD_SIZE, PART_NOT_FINITE, or
  // OK; the payload stands behind the part in any case. REQUIRES: the payload holds the part.
  virtual PartStatus Decode(uint32_t rows, PayloadReader* payload, PushPart* part) const = 0;

  // Takes part->values and part->keys when it buffers them, leaving others to reuse.
  ApplyResult Apply(const FrameId& frame, PushPart* part);

  // Sync: applies the buffered parts of `step` in rank order. Once a step. REQUIRES: step == closed
  // + 1.
  void CloseStep(uint64_t step);
  // Sync: the last step that `rank` has pushed.
  uint64_t LastPushed(uint32_t rank);
  // Async: applies what gradients_to_wait holds back.
  void Flush();
  void Fence(uint32_t rank, uint64_t incarnation);

  // Current values in wire form, one consistent snapshot. keys [n]; dense: ignored, the whole
  // block.
  virtual void Read(const uint64_t* keys, size_t n, uint8_t* to) = 0;
  // The same without a copy: shared with the shard, whose next update leaves it as it is. Empty
  // when there is no such memory (rows, another wire form).
  virtual Slice Lend() { return Slice(); }

  // The values as they are now, O(1); the cut is read outside of the lock, and the shard outlives
  // it. Dense: updates go on with a copy. Sparse: an update meanwhile ends the cut with ABORTED.
  virtual std::unique_ptr<ShardCut> BeginCut() = 0;
  // Initial values from a saved model. Dense: elements of the tensor from `first` on, those of the
  // block are taken. Sparse: rows of this shard, weights[i] unaligned [dim]; throws bad_alloc.
  virtual void LoadElements(uint64_t first, const float* values, size_t n) {}
  virtual void LoadRows(const uint64_t* keys, const char* const* weights, size_t n) {}

  // Rows (sparse) or elements (dense); bytes that their values, state and headers use; bytes held
  // for them.
  virtual uint64_t rows() = 0;
  virtual uint64_t bytes() = 0;
  virtual uint64_t reserved_bytes() = 0;

 protected:
  Shard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy);

  struct Pending {
    bool present = false;
    double weight = 0;
    PushPart part;
  };

  // One update with the gradient in `part`, as it is (weight 0: zero).
  virtual void ApplyGradient(PushPart* part, double weight)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Sync: one update with the weighted mean of `parts` (some, in rank order, each with rows), whose
  // values it may use up.
  virtual void ApplyMean(const std::vector<Pending*>& parts, double total)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Async: what gradients_to_wait holds back.
  virtual void AddToSum(const PushPart& part, double weight)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // One update with the mean of what was added, if anything was.
  virtual void ApplySum(double total) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual void AddDelta(const PushPart& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Learning rates of the columns at this update.
  const std::vector<float>& Rates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t ScheduleStep() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Takes n values from the payload, all of them even when one is not finite.
  static PartStatus DecodeValues(PayloadReader* payload, uint32_t wire_bytes, size_t n, float* to);
  // value + scale x delta, rounded once.
  static float AddScaledDelta(float value, float delta, double scale) {
    return static_cast<float>(static_cast<double>(value) + scale * static_cast<double>(delta));
  }

  const std::shared_ptr<const TableLayout> table_;
  const uint32_t index_;
  const UpdatePolicy policy_;

  Mutex mutex_;
  DeliveryGate gate_ ABSL_GUARDED_BY(mutex_);
  uint64_t frames_ ABSL_GUARDED_BY(mutex_) = 0;           // accepted, empty ones included
  uint64_t closed_ ABSL_GUARDED_BY(mutex_) = 0;           // sync: steps applied
  uint64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;          // changes of values: the version of rows
  std::vector<Pending> pending_ ABSL_GUARDED_BY(mutex_);  // sync: by rank, of step closed_ + 1
  uint32_t held_frames_ ABSL_GUARDED_BY(mutex_) = 0;      // async: waiting for gradients_to_wait
  double held_weight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<float> rates_ ABSL_GUARDED_BY(mutex_);
};

// The shards of a pserver as [table][shard]; null where a shard is on another pserver.
using ShardTable = std::vector<std::vector<std::shared_ptr<Shard>>>;

// A block: weights [n], state arrays [state_floats][n].
std::unique_ptr<Shard> MakeDenseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                      const UpdatePolicy& policy);
// Rows by key.
std::unique_ptr<Shard> MakeSparseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                       const UpdatePolicy& policy);

}  // namespace sluice
