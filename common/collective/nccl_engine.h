// Reduces arrays between ranks that have a GPU each, over NCCL.
//
// The arrays lie in the memory of the hosts. Each rank's values pass in chunks through pinned
// memory to its GPU, which sends every rank its part (PartOf). A kernel sums what the ranks have
// sent in their order, with the bits of RankReduction, and the results are gathered and brought
// back. Copies, exchanges and sums of different chunks overlap.
//
// Beside NCCL, the ranks form a group of another engine, `control`: each operation begins by
// gathering the headers of all ranks there. NCCL does not say which rank is missing, so after an
// error the ranks meet there as well, and the control engine names the one that does not come.
// Broadcasts, gathers and barriers, which training does not need, are left to it.
//
// A rank that begins no operation is named within the timeout. A rank lost during an exchange is
// noticed after half the timeout, or after the network_timeout if that is less. It is named within
// one more timeout (1.5 more with a control engine of two levels).
//
// Several engines of a rank (comm_num) share its GPU. NCCL's documentation warns that kernels of
// several communicators must be able to run at the same time, or else have the same order on all
// ranks; here they have no common order.
//
// Security: NCCL's connections are not encrypted, and its peers are trusted. A group on several
// hosts needs CollectiveOptions::bind_address, as gloo does; without it no function of NCCL that
// opens a socket is called. NCCL begins to listen only when the cards have shown where the ranks
// are; for one host it listens on loopback (nccl_network.h). The ranks get the id of the NCCL group
// over the control group, whose members have shown each other the secrets of their cards.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/collective/collective_engine.h"

namespace sluice {

// UNIMPLEMENTED in a build without CUDA or NCCL's header. FAILED_PRECONDITION or NOT_FOUND when a
// GPU, its driver or NCCL is missing; the message says which.
absl::StatusOr<std::unique_ptr<CollectiveEngine>> MakeNcclEngine(
    const CollectiveOptions& options, std::unique_ptr<CollectiveEngine> control);

}  // namespace sluice
