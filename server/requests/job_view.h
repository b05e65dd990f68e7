// One generation of a job on this pserver: the ranks that take part and the shards that are here.
//
// A change of membership or routes makes a new view, which replaces the old one as a whole. A
// request keeps the view that it was admitted with until it is answered, so a shard outlives every
// request that found it.
//
// Thread safety: immutable. Shards lock themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"
#include "server/shards/shard.h"

namespace sluice {

struct JobView {
  uint64_t generation = 0;
  std::vector<bool> active_ranks;  // [worker_num]
  ShardTable shards;
  // By rank: the least position that a shard here held when this generation began. Empty while no
  // rank was replaced, or without shards.
  std::vector<RankPosition> positions;

  // Returns null when the shard is on another pserver.
  Shard* FindShard(uint32_t table, uint32_t shard) const { return shards[table][shard].get(); }

  // Calls visit(Shard*) for every shard on this pserver.
  template <typename Visitor>
  void ForEachShard(Visitor visit) const {
    for (const auto& table : shards) {
      for (const auto& shard : table) {
        if (shard != nullptr) visit(shard.get());
      }
    }
  }
};

// Returns the index by which the route's owners name `address`; -1 when no shard is there.
int64_t OwnerIndex(const Route& route, const std::string& address);

// Makes the first view of a job: all ranks are active, and the shards that the route gives to
// `address` hold their initial values and have these limits.
// REQUIRES: ValidateRoute accepts the route.
std::shared_ptr<const JobView> FirstView(const TableLayouts& layouts, const UpdatePolicy& policy,
                                         const Route& route, const std::string& address,
                                         const ShardLimits& limits = ShardLimits());

// Makes the view of a later route, with the shards and ranks of `view`, but no positions.
// INVALID_ARGUMENT as ValidateRoute. FAILED_PRECONDITION: the route moves a shard to or from this
// pserver.
absl::StatusOr<std::shared_ptr<JobView>> NextView(const JobView& view, const TableLayouts& layouts,
                                                  const Route& route, const std::string& address);

// By rank: the least position that a shard of the view holds. Empty without shards.
std::vector<RankPosition> LeastPositions(const JobView& view);

}  // namespace sluice
