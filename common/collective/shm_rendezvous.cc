#include "common/collective/shm_rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// Pieces are whole pages, so that each rank's writes stay in pages of its own.
constexpr size_t kShmPage = 4096;
constexpr size_t kMinChunkBytes = 4 << 10, kMaxChunkBytes = 16 << 20;
// How soon a cancelled wait ends.
constexpr absl::Duration kShmTick = absl::Milliseconds(10);

absl::Status Prefixed(const absl::Status& status, const std::string& prefix) {
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

}  // namespace

ShmLayout ShmLayout::ForChunks(size_t chunk_bytes, uint32_t ranks) {
  const size_t chunk = std::clamp(chunk_bytes, kMinChunkBytes, kMaxChunkBytes);
  ShmLayout layout;
  layout.ranks = ranks;
  layout.piece_bytes = std::max<size_t>(1, chunk / ranks / kShmPage) * kShmPage;
  return layout;
}

absl::Status ShmLayout::Check() const {
  if (ranks == 0 || ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group on one host has 1 to ", kMaxRanks, " ranks, not ", ranks));
  }
  if (slots != kSlots || piece_bytes == 0 || piece_bytes % kShmPage != 0 ||
      piece_bytes > kMaxChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the shared memory of the group has ", slots,
                                                   " slots with pieces of ", piece_bytes,
                                                   " bytes, which is not a possible layout"));
  }
  return absl::OkStatus();
}

size_t ShmLayout::board_bytes() const {
  // Four lines for all ranks, one for each rank's positions, one for each header (shm_board.cc).
  constexpr size_t kLine = 64;
  const size_t bytes = kLine * (4 + ranks + slots * ranks);
  return (bytes + kShmPage - 1) / kShmPage * kShmPage;
}

absl::StatusOr<CollectiveCard> ShmRendezvous::Listen(uint64_t generation, uint32_t self,
                                                     uint32_t ranks) {
  cancelled_.store(false, std::memory_order_relaxed);
  own_ = NewCard("shm", generation, self, ranks,
                 options_.host_for_test.empty() ? HostOfThisProcess() : options_.host_for_test);
  // The name cannot be guessed, so no other process can take it first. The nonce in the card
  // protects the group itself.
  own_.set_socket(absl::StrFormat("sluice-collective-%016x%016x", RandomId(), RandomId()));
  SLUICE_ASSIGN_OR_RETURN(listener_, UnixListener::Listen(own_.socket()));
  return own_;
}

void ShmRendezvous::Leave() { listener_ = UnixListener(); }

absl::StatusOr<ShmRendezvous::Group> ShmRendezvous::Join(const std::vector<CollectiveCard>& cards) {
  cards_ = cards;
  self_ = 0;
  while (cards[self_].rank() != own_.rank()) ++self_;
  for (const CollectiveCard& card : cards) {
    if (card.host() != own_.host()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", card.rank(), " runs on another host or as another user (",
                       card.host(), ", here ", own_.host(), "): use the engine gloo or two_level"));
    }
  }
  Group group;
  group.connections.resize(cards.size());
  // The first rank decides the sizes, and sends them with the memory: options may differ between
  // ranks.
  if (self_ == 0) {
    group.layout = ShmLayout::ForChunks(options_.chunk_bytes, static_cast<uint32_t>(cards.size()));
    SLUICE_RETURN_IF_ERROR(group.layout.Check());
    SLUICE_ASSIGN_OR_RETURN(group.memory,
                            SealedMemory::Create("sluice-collective", group.layout.total_bytes()));
  }
  // Connect to lower ranks first, then accept higher ones. Rank 0 only accepts, so no two ranks
  // wait for each other.
  for (uint32_t rank = 0; rank < self_; ++rank) SLUICE_RETURN_IF_ERROR(ConnectTo(rank, &group));
  SLUICE_RETURN_IF_ERROR(AcceptHigherRanks(&group));
  Leave();
  return group;
}

absl::Status ShmRendezvous::Failed(GroupFault::Kind kind, uint32_t rank) const {
  const uint32_t self = own_.rank();
  return ErrorOf({kind, cards_[rank].rank(), self}, self, "joining the group", options_);
}

absl::Status ShmRendezvous::WaitReadable(const std::vector<int>& descriptors, uint32_t rank) {
  if (cancelled_.load(std::memory_order_relaxed))
    return absl::CancelledError("joining the group was cancelled");
  if (std::chrono::steady_clock::now() >= deadline_) return Failed(GroupFault::kSilent, rank);
  std::vector<pollfd> states;
  for (const int fd : descriptors) states.push_back({fd, POLLIN, 0});
  // The answer of poll does not matter: the callers try each descriptor without waiting.
  poll(states.data(), states.size(), static_cast<int>(absl::ToInt64Milliseconds(kShmTick)));
  return absl::OkStatus();
}

absl::Status ShmRendezvous::ConnectTo(uint32_t rank, Group* group) {
  const std::string name = absl::StrCat("rank ", cards_[rank].rank());
  absl::StatusOr<UnixConnection> connection = UnixConnection::Connect(cards_[rank].socket());
  // Its name is of this generation only: it has ended or left.
  if (absl::IsNotFound(connection.status())) return Failed(GroupFault::kEnded, rank);
  if (!connection.ok()) return Prefixed(connection.status(), name);
  CollectiveHello hello;
  hello.set_generation(own_.generation());
  hello.set_rank(self_);
  hello.set_nonce(cards_[rank].nonce());
  if (absl::Status sent = connection->Send(hello.SerializeAsString()); !sent.ok())
    return Prefixed(sent, name);

  // The kernel takes the connection at once; the answer comes when the rank itself has got here.
  deadline_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.timeout);
  while (true) {
    SLUICE_RETURN_IF_ERROR(WaitReadable({connection->fd()}, rank));
    absl::StatusOr<UnixConnection::Packet> packet = connection->Receive(absl::ZeroDuration());
    if (absl::IsDeadlineExceeded(packet.status())) continue;
    // The socket was closed: only the end of the process, or its Leave, does that.
    if (absl::IsUnavailable(packet.status())) return Failed(GroupFault::kEnded, rank);
    if (!packet.ok()) return Prefixed(packet.status(), name);
    CollectiveWelcome welcome;
    if (!welcome.ParseFromString(packet->bytes))
      return absl::InvalidArgumentError(absl::StrCat(name, " sent no welcome"));
    if (!welcome.refusal().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " refused this rank: ", welcome.refusal()));
    }
    if (rank == 0) {
      if (packet->descriptors.size() != 1)
        return absl::InvalidArgumentError(absl::StrCat(name, " sent no shared memory"));
      // Checked before it is used: Map then compares the size of the memory with that of the
      // layout, so that no offset can lie outside.
      SLUICE_RETURN_IF_ERROR(SetLayout(welcome, group));
      SLUICE_ASSIGN_OR_RETURN(group->memory, SealedMemory::Map(std::move(packet->descriptors[0]),
                                                               group->layout.total_bytes()));
    }
    group->connections[rank] = *std::move(connection);
    return absl::OkStatus();
  }
}

absl::Status ShmRendezvous::SetLayout(const CollectiveWelcome& welcome, Group* group) {
  group->layout.ranks = static_cast<uint32_t>(cards_.size());
  group->layout.slots = welcome.slots();
  group->layout.piece_bytes = welcome.piece_bytes();
  return group->layout.Check();
}

absl::Status ShmRendezvous::AcceptHigherRanks(Group* group) {
  // Connections that have not said yet who they are. A silent stranger delays nobody, and with too
  // many the oldest goes.
  std::vector<UnixConnection> strangers;
  const auto restart = [this] {
    deadline_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.timeout);
  };
  restart();
  while (true) {
    std::vector<uint32_t> missing;
    for (uint32_t rank = self_ + 1; rank < cards_.size(); ++rank)
      if (!group->connections[rank]) missing.push_back(rank);
    if (missing.empty()) return absl::OkStatus();
    std::vector<int> descriptors = {listener_.fd()};
    for (const UnixConnection& stranger : strangers) descriptors.push_back(stranger.fd());
    SLUICE_RETURN_IF_ERROR(WaitReadable(descriptors, missing[0]));

    absl::StatusOr<UnixConnection> accepted = listener_.Accept();
    if (accepted.ok()) {
      strangers.push_back(*std::move(accepted));
    } else if (absl::IsResourceExhausted(accepted.status()) && !strangers.empty()) {
      // No descriptor is left, and a rank may need the one of the oldest stranger.
      strangers.erase(strangers.begin());
    } else if (!absl::IsUnavailable(accepted.status()) &&
               !absl::IsPermissionDenied(accepted.status())) {
      return accepted.status();
    }
    for (size_t i = 0; i < strangers.size();) {
      pollfd state = {strangers[i].fd(), POLLIN, 0};
      if (poll(&state, 1, 0) != 1) {
        ++i;
        continue;
      }
      // A rank that comes is progress. Without the restart, a large group would need a longer
      // timeout.
      if (Welcome(std::move(strangers[i]), group)) restart();
      strangers.erase(strangers.begin() + i);
    }
    if (strangers.size() > kMaxStrangers) strangers.erase(strangers.begin());
  }
}

bool ShmRendezvous::Welcome(UnixConnection connection, Group* group) {
  const absl::StatusOr<UnixConnection::Packet> packet = connection.Receive(absl::ZeroDuration());
  // Read without waiting: poll has seen something, and a packet comes whole.
  if (!packet.ok()) return false;
  CollectiveHello hello;
  CollectiveWelcome welcome;
  if (!hello.ParseFromString(packet->bytes)) {
    welcome.set_refusal("this was no hello");
  } else if (hello.generation() != own_.generation() || hello.nonce() != own_.nonce()) {
    welcome.set_refusal(
        absl::StrCat("its card of this rank is of another generation than ", own_.generation()));
  } else if (hello.rank() <= self_ || hello.rank() >= cards_.size() ||
             group->connections[hello.rank()]) {
    welcome.set_refusal(absl::StrCat("member ", hello.rank(), " is not missing"));
  }
  std::vector<int> descriptors;
  if (welcome.refusal().empty() && self_ == 0) {
    welcome.set_piece_bytes(group->layout.piece_bytes);
    welcome.set_slots(group->layout.slots);
    descriptors.push_back(group->memory.fd());
  }
  // The empty message has no bytes, and a packet needs one.
  welcome.set_piece_bytes(group->layout.piece_bytes == 0 ? 1 : group->layout.piece_bytes);
  const bool sent = connection.Send(welcome.SerializeAsString(), descriptors).ok();
  if (!sent || !welcome.refusal().empty()) return false;
  group->connections[hello.rank()] = std::move(connection);
  return true;
}

}  // namespace sluice
