// Brings the ranks of one host together: a connection between every two of them, and memory that
// the first of them creates.
//
// Every rank listens at an abstract local socket with a random name. The higher rank of two
// connects and shows the nonce of the lower one's card, so that only ranks of this group and
// generation are let in. The connections carry nothing afterwards: a closed one shows that its rank
// has ended.
//
// Thread safety: one thread, except Cancel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/collective/collective_engine.h"
#include "common/collective/group_fault.h"
#include "common/collective/rank_card.h"
#include "common/shared_memory/sealed_memory.h"
#include "common/shared_memory/unix_socket.h"

namespace sluice {

// Where things lie in the memory that the ranks of one host share.
//
// Format:
//   board     positions and headers (ShmBoard), whole pages
//   slot 0    for each rank p, for each rank q: a piece of piece_bytes, which p writes. The piece
//             of p and q with p != q is what p brings for q to reduce; that of q and q is what q
//             has reduced.
//   slot 1..  the same
//
// An array goes through the slots in chunks: chunk k of all lies in slot k % slots.
struct ShmLayout {
  static constexpr uint32_t kMaxRanks = 256;
  static constexpr uint32_t kSlots = 4;

  uint32_t ranks = 0;
  uint32_t slots = kSlots;
  size_t piece_bytes = 0;  // a multiple of 4096

  // Pieces such that all ranks' together make about `chunk_bytes`.
  static ShmLayout ForChunks(size_t chunk_bytes, uint32_t ranks);
  // INVALID_ARGUMENT for figures from outside that are not possible.
  absl::Status Check() const;

  size_t piece_floats() const { return piece_bytes / sizeof(float); }
  size_t chunk_bytes() const { return piece_bytes * ranks; }
  size_t board_bytes() const;
  size_t total_bytes() const { return board_bytes() + slots * ranks * chunk_bytes(); }
  size_t PieceOffset(uint64_t chunk, uint32_t from, uint32_t of) const {
    return board_bytes() + ((chunk % slots * ranks + from) * ranks + of) * piece_bytes;
  }
};

class ShmRendezvous {
 public:
  struct Group {
    ShmLayout layout;
    SealedMemory memory;
    std::vector<UnixConnection> connections;  // by rank; none to this one
  };

  explicit ShmRendezvous(const CollectiveOptions& options) : options_(options) {}

  absl::StatusOr<CollectiveCard> Listen(uint64_t generation, uint32_t self, uint32_t ranks);
  // As Collective::Join, with the cards of the ranks on this host. Errors name them by the ranks of
  // their cards; everything else numbers them in the order of the cards.
  absl::StatusOr<Group> Join(const std::vector<CollectiveCard>& cards);
  // Stops listening.
  void Leave();
  // Makes Join return CANCELLED soon, until the next Listen.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  absl::Status ConnectTo(uint32_t rank, Group* group);
  absl::Status AcceptHigherRanks(Group* group);
  // Answers the hello that waits at a new connection. False: it was not from a rank that is
  // missing.
  bool Welcome(UnixConnection connection, Group* group);
  // Waits a little until a descriptor is readable. Errors: CANCELLED, DEADLINE_EXCEEDED.
  absl::Status WaitReadable(const std::vector<int>& descriptors, uint32_t rank);
  absl::Status Failed(GroupFault::Kind kind, uint32_t rank) const;
  absl::Status SetLayout(const CollectiveWelcome& welcome, Group* group);

  const CollectiveOptions options_;
  std::atomic<bool> cancelled_{false};
  CollectiveCard own_;
  std::vector<CollectiveCard> cards_;
  uint32_t self_ = 0;
  UnixListener listener_;
  std::chrono::steady_clock::time_point deadline_;  // of the present wait
};

}  // namespace sluice
