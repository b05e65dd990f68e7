// The copies of one pserver's shards of one job, on its follower: made from images, then kept equal
// to the bit by the primary's changes.
//
// Thread safety: safe from any thread. Its mutex is held while a message is applied, and shards are
// locked under it. Sealing therefore waits for a message that is being applied.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/table/table_layout.h"
#include "common/wire/frame.h"
#include "proto/scheduler.pb.h"
#include "server/copies/seed_stream.h"
#include "server/shards/shard.h"

namespace sluice {

class ShardCopy {
 public:
  // Copies of the shards that the route gives to pserver `primary`. `row_memory` bounds their rows;
  // null: nothing does.
  ShardCopy(const TableLayouts& layouts, const UpdatePolicy& policy, const Route& route,
            uint32_t primary, std::shared_ptr<RowMemory> row_memory = nullptr);

  // Applies a message of the primary. An error leaves the copies useless, unless it is ABORTED:
  // they are sealed. INVALID_ARGUMENT: the message does not fit. RESOURCE_EXHAUSTED: no memory.
  absl::Status Apply(const ReplicaHeader& header, PayloadReader payload);
  // OK when all shards are here, so that `complete` can be true.
  absl::Status CheckWhole();
  // Seals the copies, which then take no more changes.
  void Seal();

  uint64_t position();    // of the last change applied
  uint64_t seed_bytes();  // of all images
  uint64_t bytes();       // reserved for the shards
  // All shards that are here.
  std::vector<std::shared_ptr<Shard>> shards();

 private:
  Shard* NewShard(uint32_t table, uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ApplyLocked(const ReplicaHeader& header, PayloadReader* payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ApplyChanges(const FrameChanges& changes, PayloadReader* payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TableLayouts layouts_;
  const UpdatePolicy policy_;
  // The primary has bounded what waits.
  const ShardLimits limits_;

  Mutex mutex_;
  std::vector<std::vector<bool>> wanted_ ABSL_GUARDED_BY(mutex_);  // [table][shard]
  uint64_t missing_ ABSL_GUARDED_BY(mutex_) = 0;  // wanted shards without a complete image
  ShardTable shards_ ABSL_GUARDED_BY(mutex_);
  SeedReceiver seeds_ ABSL_GUARDED_BY(mutex_);
  PushPart scratch_ ABSL_GUARDED_BY(mutex_);
  uint64_t position_ ABSL_GUARDED_BY(mutex_) = 0;
  bool sealed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
