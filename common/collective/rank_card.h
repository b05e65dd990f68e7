// The cards by which the ranks of a group find each other (proto/collective.proto).
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/collective.pb.h"

namespace sluice {

// The most bytes of a card that another rank reads.
inline constexpr size_t kMaxCardBytes = 64 << 10;
// The most connections that a rank keeps, while it joins, of processes that have not shown yet that
// they are a rank. The oldest makes room for a new one.
inline constexpr size_t kMaxStrangers = 64;

// Names what processes must have in common to share memory over local sockets: the boot of the
// machine, the network namespace, the user and the user namespace, without which user ids of two
// containers name different users.
std::string HostOfThisProcess();

// Whether processes on two of these hosts have the same loopback interface: the boot and the
// network namespace are the same.
bool ShareLoopback(const std::string& host, const std::string& other);

// A card with a nonce of its own.
CollectiveCard NewCard(const char* engine, uint64_t generation, uint32_t self, uint32_t ranks,
                       const std::string& host);

// Parses the cards of the ranks `members`, in their order. INVALID_ARGUMENT, naming the rank, for
// one that is not a card of this engine, or that belongs to another generation, rank or number of
// ranks.
absl::StatusOr<std::vector<CollectiveCard>> ParseCards(const char* engine, uint64_t generation,
                                                       const std::vector<std::string>& peers,
                                                       const std::vector<uint32_t>& members);
// The place of `rank` in `members`. REQUIRES: it is one.
uint32_t PlaceIn(const std::vector<uint32_t>& members, uint32_t rank);

}  // namespace sluice
