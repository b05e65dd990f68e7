// Sums and descriptions of what pservers report of the rows of a job's tables.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "proto/scheduler.pb.h"

namespace sluice {

void AddTurnover(const RowTurnover& more, RowTurnover* sum);
// Adds the shards of another pserver to those of the same table.
void AddShards(const TableStatus& more, TableStatus* sum);
// "2,000 of at most 10,000 rows, 3,000 admitted, 900 evicted", without figures that are 0. Empty:
// the table has no limit and no row has gone or was refused.
std::string DescribeRows(const TableStatus& table);
// The warning when one of these shards of a table without evict has used 90 % of its share of the
// limit: the job fails when one is full. Empty: there is nothing to say.
std::string RowLimitWarning(const TableStatus& shards, const TableConfig& table);

}  // namespace sluice
