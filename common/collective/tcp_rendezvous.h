// Brings ranks of several hosts together: a TCP connection between every two of them, on which
// nothing but their greetings has travelled.
//
// Every rank listens at a port that the kernel draws, until it has joined. The higher place of two
// connects. Each shows the secret of the other's card, so that only ranks of this group and
// generation meet: a stranger, a rank of an earlier generation and a process that has taken over a
// port are turned away without an answer.
//
// Format: a greeting has 40 bytes, in the order of bytes of x86-64: "sluice-g", the generation
// (8 bytes), the ranks of sender and receiver (4 bytes each) and the nonce of the receiver's card
// (16 bytes). The answer has the same form.
//
// Memory: at most kMaxStrangers connections that have not greeted; then the oldest is closed.
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
#include "common/shared_memory/file_descriptor.h"

namespace sluice {

class TcpRendezvous {
 public:
  explicit TcpRendezvous(const CollectiveOptions& options) : options_(options) {}

  // Listens, and returns host:port for the card. INVALID_ARGUMENT: the address is not of this host.
  absl::StatusOr<std::string> Listen();
  // As Collective::Join, with the cards of the ranks that meet, `own` among them. Returns the
  // connections in the order of the cards, none for this rank itself. Stops listening.
  absl::StatusOr<std::vector<FileDescriptor>> Join(const CollectiveCard& own,
                                                   const std::vector<CollectiveCard>& cards);
  // Stops listening.
  void Leave() { listener_ = FileDescriptor(); }
  // Makes Join return CANCELLED soon, until the next Listen.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  struct Greeting {
    char magic[8];
    uint64_t generation;
    uint32_t from, to;
    char nonce[16];
  };
  struct Stranger {
    FileDescriptor connection;
    Greeting greeting;
    size_t bytes = 0;  // of it that have come
  };
  using Connections = std::vector<FileDescriptor>;

  Greeting GreetingTo(const CollectiveCard& receiver) const;
  absl::Status ConnectTo(uint32_t place, Connections* connections);
  absl::Status AcceptHigherPlaces(Connections* connections);
  // Takes a connection that waits, if there is one and a descriptor for it.
  void Accept(std::vector<Stranger>* strangers);
  // Reads what has come. False: the connection is to be closed, or has become one of a rank.
  bool Hear(Stranger* stranger, Connections* connections);
  // Waits a little until a descriptor has an event. Errors: CANCELLED, DEADLINE_EXCEEDED.
  absl::Status WaitFor(const std::vector<int>& descriptors, int16_t events, uint32_t place);
  void Restart(absl::Duration timeout);
  absl::Status Failed(GroupFault::Kind kind, uint32_t place) const;
  // The error of a connection that could not be made.
  absl::Status Unreachable(int error, uint32_t place) const;
  // The status with the rank that causes it (kRankAtFaultPayload).
  absl::Status AtFault(uint32_t place, absl::Status status) const;

  const CollectiveOptions options_;
  std::atomic<bool> cancelled_{false};
  CollectiveCard own_;
  std::vector<CollectiveCard> cards_;
  uint32_t self_ = 0;  // place
  FileDescriptor listener_;
  std::chrono::steady_clock::time_point deadline_;  // of the present wait
};

}  // namespace sluice
