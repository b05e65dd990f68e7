// The connections of a rank to all others over Gloo, with errors that name ranks.
//
// TcpRendezvous makes the connections, so that only ranks of the group have one.
//
// Between two ranks travel messages, each a header and up to kMaxInlineBytes, and values, which go
// from an array of the sender into one of the receiver. Values need no copy, but both ranks must
// have agreed on their size: when more arrives than is expected, the connection is closed.
//
// Invariants: a receive for the next message of each rank is always posted, and another one for the
// reason with which it ends the group, so that this one knows it even while a message waits. No
// exception of Gloo leaves this class. SIGPIPE, which Gloo's writes raise, does not end the
// process.
//
// Thread safety: one call at a time, from any thread, except Interrupt, Cancel and WaitingFor,
// which are safe at any time. Gloo has a thread of its own, and a WaitWatchdog ends waits that take
// too long.
#pragma once

#include <signal.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/collective/collective_engine.h"
#include "common/collective/group_fault.h"
#include "common/collective/operation_header.h"
#include "common/collective/rank_card.h"
#include "common/collective/tcp_rendezvous.h"
#include "common/collective/wait_watchdog.h"

namespace gloo::transport {
class Context;
class UnboundBuffer;
}  // namespace gloo::transport

namespace sluice {

// Keeps SIGPIPE, raised by Gloo's writes to closed connections, from the calling thread. Threads
// that are started meanwhile do not get it either.
//
// Thread safety: one thread.
class SigpipeBlock {
 public:
  SigpipeBlock() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~SigpipeBlock() {
    const timespec now = {};
    // Takes the signal that was raised meanwhile: otherwise it would be delivered now.
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

class GlooPeers {
 public:
  // Kinds of values: those that a rank brings for another one to reduce, and final ones.
  static constexpr uint64_t kBrought = 1, kResult = 2;

  struct Message {
    OperationHeader header;
    alignas(64) uint8_t values[OperationHeader::kMaxInlineBytes];
  };
  // Memory of this rank to or from which values travel; one for each other rank.
  class Region;

  explicit GlooPeers(const CollectiveOptions& options);
  ~GlooPeers();

  absl::StatusOr<CollectiveCard> Listen(uint64_t generation, uint32_t self, uint32_t ranks);
  // As CollectiveEngine::Join. `cards` are those of the members; from then on, ranks are their
  // places among them.
  absl::Status Join(const std::vector<CollectiveCard>& cards, const std::vector<uint32_t>& members);
  // Waits until the others have what this rank has sent, unless the group has failed.
  void Leave();

  // Not below that of the options.
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }
  // The operation that follows, for messages. Returns the group's error when it has ended.
  absl::Status Begin(const OperationHeader& operation);
  absl::Status SendMessage(uint32_t rank, const OperationHeader& header, const void* values,
                           size_t bytes);
  // The next message of a rank, until the next call for it.
  absl::StatusOr<const Message*> ReceiveMessage(uint32_t rank);
  // Tells every rank that this one has got all values of the operation; theirs is awaited before
  // the next operation. Without it, leaving could cut off what they have yet to get.
  absl::Status Acknowledge();
  absl::Status AwaitAcknowledgements();

  // `slot`, a kind of values, tells them from others; `begin` and `bytes` say where in the region
  // they are. Values of one slot arrive in the order in which they were sent. The memory outlives
  // the region. After an error nothing is written to it.
  std::unique_ptr<Region> MakeRegion(void* memory, size_t bytes);
  absl::Status Send(Region* from, uint32_t rank, uint64_t slot, size_t begin, size_t bytes);
  absl::Status Receive(Region* to, uint32_t rank, uint64_t slot, size_t begin, size_t bytes);
  // Waits for one of the sends, or receives, that were started.
  absl::Status AwaitSent(Region* region, uint32_t rank);
  absl::Status AwaitReceived(Region* region, uint32_t rank);

  // Ends the group for all ranks. Returns `why`.
  absl::Status Abandon(const absl::Status& why);
  // Makes the operation that runs end the group as Abandon does, as soon as it waits.
  void Interrupt(const absl::Status& why);
  // Makes waits return CANCELLED, and closes all connections.
  void Cancel();
  std::string WaitingFor() const;

  // Calls call(rank) for every other rank, in order, until one returns an error.
  template <typename Call>
  absl::Status ForOthers(Call call) const {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      if (rank == self_) continue;
      absl::Status status = call(rank);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  uint32_t self() const { return self_; }
  uint32_t ranks() const { return ranks_; }

 private:
  struct Peer;
  struct Awaited {
    uint32_t rank;
    OperationHeader operation;
  };

  void AddPeers();
  // The first receives of a rank: one for its last words, and one for its next message.
  void PostReceives(uint32_t rank);
  void PostMessageReceive(uint32_t rank);
  absl::Status Await(gloo::transport::UnboundBuffer* buffer, uint32_t rank, bool send);
  // Runs a call of Gloo. An exception becomes the error of `rank`.
  absl::Status Try(uint32_t rank, const std::function<void()>& call);
  // The rank's connection broke. It may have said why before.
  absl::Status Broken(uint32_t rank);
  // Tells the others, closes all connections, and returns the error.
  absl::Status Fail(GroupFault::Kind kind, uint32_t rank);
  absl::Status End(const GroupFault& fault);
  // Waits until they are on their way, up to a second.
  void SendLastWords(const OperationHeader& header);
  // Ends the group if the message of `rank` says that it has failed.
  absl::Status CheckFailure(const OperationHeader& message, uint32_t rank);
  void Close();

  const CollectiveOptions options_;
  CollectiveCard own_;
  uint32_t self_ = 0, ranks_ = 0;
  std::vector<uint32_t> names_;  // the members; changed under the lock
  absl::Duration timeout_;       // of each wait
  OperationHeader operation_;
  std::optional<GroupFault> ended_by_;  // set when the group has ended
  TcpRendezvous rendezvous_;
  std::shared_ptr<gloo::transport::Context> context_;  // changed under the lock
  std::vector<std::unique_ptr<Peer>> peers_;           // by rank; none for this one

  WaitWatchdog watchdog_;  // of the present wait; runs from Listen to Leave

  // May be held while the lock of the watchdog is taken: a wait begins under it, so that Interrupt
  // and Cancel either keep it from beginning or abort it.
  mutable Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<GroupFault> interruption_ ABSL_GUARDED_BY(mutex_);
  std::optional<Awaited> awaited_ ABSL_GUARDED_BY(mutex_);  // the present wait
};

class GlooPeers::Region {
 public:
  Region();
  ~Region();

 private:
  friend class GlooPeers;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers_;  // by rank
};

}  // namespace sluice
