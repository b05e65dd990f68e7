// Reduces and exchanges arrays between hosts, over Gloo's TCP transport.
//
// Rank r gets every rank's values of part r (PartOf), reduces them in the order of the ranks, and
// sends the result to all. That moves 2 (r - 1) / r of the array each way, as a ring does, but in
// two steps instead of 2 (r - 1), in the order of the ranks, and every rank hears of the end of any
// other by itself. Small arrays travel with the header, whole, and every rank reduces all of it.
//
// A rank that ends is named by all. When a rank is silent, one that was a step or a turn ahead of
// the others may see its timeout first; it then names a rank that waits for the silent one itself.
//
// Security: the connections are plain TCP. Ranks show each other secrets of their cards when they
// connect, so that strangers and earlier generations are turned away (TcpRendezvous), but nothing
// is encrypted or authenticated afterwards. Malformed bytes of a rank end its connection, and with
// it the group. Use this engine only on a network that may read and change the job's values.
//
// Source: Thakur et al., "Optimization of Collective Communication Operations in MPICH" (2005).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/collective/collective_engine.h"

namespace sluice {

// UNIMPLEMENTED in a build without Gloo. INVALID_ARGUMENT without an address to bind to.
absl::StatusOr<std::unique_ptr<CollectiveEngine>> MakeGlooEngine(const CollectiveOptions& options);

}  // namespace sluice
