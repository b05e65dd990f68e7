// Small records that all ranks of a group exchange.
//
// Thread safety: free functions; see Collective.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/collective/collective.h"
#include "proto/pserver.pb.h"

namespace sluice {

// 64 bytes: the least part of an array that a rank brings to AllGather (PartOf).
using RankRecord = std::array<uint64_t, 8>;

// Returns the records of all ranks, by rank. Succeeds only after every rank has brought its own, as
// every operation of a Collective; errors as there.
absl::StatusOr<std::vector<RankRecord>> GatherRecords(Collective* collective, uint32_t rank,
                                                      uint32_t ranks, const RankRecord& own);

// The sums of a rank as the numbers of a record, from `at` on: 4 of them. The state of its network
// is left out.
void PutTotals(const TrainTotals& totals, size_t at, RankRecord* record);
TrainTotals TotalsAt(const RankRecord& record, size_t at);

}  // namespace sluice
