// The copies that this pserver keeps for one job, as the follower of other pservers.
//
// Thread safety: safe from any thread. No shard is locked under its lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"
#include "server/copies/copy_register.h"
#include "server/copies/shard_copy.h"

namespace sluice {

class JobCopies {
 public:
  // `on_change`: called when copies become complete, useless or are dropped; may be null.
  // `row_memory` bounds the rows of the copies; may be null.
  JobCopies(TableLayouts layouts, const UpdatePolicy& policy, std::function<void()> on_change,
            std::shared_ptr<RowMemory> row_memory = nullptr)
      : layouts_(std::move(layouts)),
        policy_(policy),
        on_change_(std::move(on_change)),
        row_memory_(std::move(row_memory)) {}

  // A route is in force in which this pserver is number `self` (-1: none).
  void TakeSpec(const JobSpec& spec, int64_t self);

  // Copies that a primary fills or a successor reads.
  struct Held {
    uint32_t primary = 0;
    uint64_t number = 0;
    std::shared_ptr<ShardCopy> copy;
  };
  // A primary begins to send copies. Errors come from CopyRegister::Begin.
  absl::StatusOr<Held> Begin(const ReplicaHello& hello);
  // Marks the copies as complete: they have every update that was acknowledged.
  // FAILED_PRECONDITION: the copies were dropped.
  absl::Status Complete(const Held& held);
  // The stream of the primary is over. Incomplete copies are dropped, complete ones stay.
  void EndOfStream(const Held& held);
  // Seals the copies, which a successor reads. Errors come from CopyRegister::Seal.
  absl::StatusOr<Held> Seal(const ReplicaHello& hello);
  // OK while a successor that sealed them in this generation may read them. Errors come from
  // CopyRegister::CheckReader.
  absl::Status CheckReader(const Held& held, uint64_t generation);
  // That successor has them all. The report can wait, since it reports soon itself.
  absl::Status DropRead(const Held& held, uint64_t generation);
  void Drop(const Held& held);

  void FillReport(HostedJob* report);

 private:
  void Changed() const {
    if (on_change_) on_change_();
  }

  const TableLayouts layouts_;
  const UpdatePolicy policy_;
  const std::function<void()> on_change_;
  const std::shared_ptr<RowMemory> row_memory_;
  Mutex mutex_;
  CopyRegister register_ ABSL_GUARDED_BY(mutex_);
  Route route_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, Held> copies_ ABSL_GUARDED_BY(mutex_);  // by primary
};

}  // namespace sluice
