// The changes of a pserver's shards on their way to its follower, in the order in which the shards
// applied them.
//
// One log belongs to one stream to the follower. A shard adds a change in the critical section that
// applies it. While a shard's image is being sent, its changes are set aside (SetAside, Release).
//
// Thread safety: safe from any thread. Its mutex is taken under a shard's, briefly and last.
//
// Memory: at most max_bytes of changes that the follower has not confirmed, as the received slices
// that hold them. The log closes when there are more.
//
// Invariants: positions count the changes of the log. Every change has a position, even a dropped
// one, so a dropped change never counts as confirmed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/base/slice.h"
#include "proto/replica.pb.h"
#include "server/shards/delivery_gate.h"

namespace sluice {

class ChangeLog {
 public:
  explicit ChangeLog(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // A shard applies a part of a frame. `wire`: its array as received.
  void AddPart(uint32_t table, uint32_t shard, const FrameId& frame, uint32_t rows, Message wire);
  // A shard applies the gradients that wait for gradients_to_wait.
  void AddFlush(uint32_t table, uint32_t shard);

  // A shard erases the rows of these keys. Throws bad_alloc, changing nothing.
  void AddErasure(uint32_t table, uint32_t shard, const uint64_t* keys, size_t n);

  // Call when the image of the shard begins. Later changes follow the image. Changes that were set
  // aside before are in the image, and are dropped.
  void SetAside(uint32_t table, uint32_t shard);
  // Call when the image was sent. The changes that were set aside follow.
  void Release(uint32_t table, uint32_t shard);
  // The image was given up: drops the changes that were set aside.
  void Drop(uint32_t table, uint32_t shard);
  // Adds the message `complete`.
  // REQUIRES: nothing is set aside.
  void AddComplete();

  // The position of the last change.
  uint64_t end();
  // Moves the next message to *message, about kChunkBytes at most. False when there is none.
  bool Next(Message* message);
  // Call when the follower has confirmed this position.
  void Confirm(uint64_t position);
  // Drops everything; nothing is sent any more.
  void Close();
  // The same after memory ran out; status() then says so. Allocates nothing.
  void FailWithoutMemory();
  // Not OK: the log has closed itself, or FailWithoutMemory was called.
  absl::Status status();

 private:
  using ShardId = std::pair<uint32_t, uint32_t>;  // table and shard
  struct Change {
    enum Kind { kPart, kFlush, kErasure, kComplete } kind = kPart;
    ShardId shard;
    FrameId frame;
    uint32_t rows = 0;
    Message wire;
    uint64_t bytes = 0;
  };

  void Add(Change change);
  void CloseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the change to the header, as a part of its frame if the last one was of the same.
  static void Encode(const Change& change, ReplicaHeader* header);

  const uint64_t max_bytes_;
  const absl::Status no_memory_ =
      absl::ResourceExhaustedError("no memory for changes on their way to the follower");
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  uint64_t end_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;   // position
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // not confirmed, those set aside included
  std::deque<Change> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<ShardId, std::vector<Change>> aside_ ABSL_GUARDED_BY(mutex_);
  // Messages that are sent and not confirmed: position and bytes.
  std::deque<std::pair<uint64_t, uint64_t>> unconfirmed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
