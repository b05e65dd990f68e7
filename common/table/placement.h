// Which pserver owns which shard: decided from the tables' layouts alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Shards of sparse tables, which grow to sizes that nobody knows yet, are dealt in turn: every
// pserver has as many of a table's, to one. Blocks of dense tables: biggest first, each to the
// pserver with the least dense bytes so far, ties to the lowest; none ends with more than the mean
// plus the biggest block. A function of the arguments. REQUIRES: pservers not empty.
Route PlaceShards(const TableLayouts& tables, const std::vector<std::string>& pservers,
                  uint64_t generation);

// INVALID_ARGUMENT says where `route` does not fit `tables`: an address twice, a table or shard
// without owner, an owner that does not exist.
absl::Status ValidateRoute(const Route& route, const TableLayouts& tables);

}  // namespace sluice
