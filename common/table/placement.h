// Decides which pserver owns which shard, from the tables' layouts alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/table/table_layout.h"
#include "common/transport/pserver_address.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// The pserver of this index in the route.
PserverAddress PserverAt(const Route& route, uint32_t index);

// Places every shard of `tables`. The result depends on the arguments alone.
//
// Shards of sparse tables are dealt in turn, because their later sizes are not known yet. The
// pservers' shares of one table differ by at most one shard. Blocks of dense tables are placed
// biggest first, each on the pserver with the fewest dense bytes so far; ties go to the lowest
// index. No pserver ends with more than the mean plus the biggest block.
// REQUIRES: `pservers` is not empty.
Route PlaceShards(const TableLayouts& tables, const std::vector<std::string>& pservers,
                  uint64_t generation);

// Places every shard of `tables` on `pservers` again, and keeps the shards of `before` where they
// are as far as it can: a pserver that has the same address in `before` keeps all its shards.
// Shards of other owners go one by one, shards of dense tables biggest first, to the pserver that
// then has the fewest bytes of dense blocks, or shards of the sparse table; ties go to the pserver
// with fewer shards of all sparse tables, then to the lowest index.
// REQUIRES: `pservers` is not empty. `before` fits `tables`, but may have addresses that are empty.
Route MoveShards(const TableLayouts& tables, const Route& before,
                 const std::vector<std::string>& pservers, uint64_t generation);

// INVALID_ARGUMENT says where `route` does not fit `tables`: an address that is listed twice, a
// table or shard without an owner, or an owner that does not exist. The address of a vacant pserver
// may be listed again, because another process may listen there now.
absl::Status ValidateRoute(const Route& route, const TableLayouts& tables);

}  // namespace sluice
