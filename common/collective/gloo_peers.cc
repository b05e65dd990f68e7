#include "common/collective/gloo_peers.h"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/collective/gloo_pair.h"

namespace sluice {
namespace {

using gloo::transport::UnboundBuffer;

constexpr uint64_t kMessageSlot = 1;  // those of values are above
constexpr uint64_t kLastWordsSlot = kMessageSlot + GlooPeers::kResult + 1;
constexpr size_t kHeaderBytes = offsetof(GlooPeers::Message, values);
// Longer than any timeout: Gloo closes every connection when its own passes, before the others can
// be told why. The watchdog ends a wait instead.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
// How long the last words of a rank may take to all others.
constexpr std::chrono::milliseconds kFarewell = std::chrono::seconds(1);

}  // namespace

struct GlooPeers::Peer {
  Message incoming, outgoing;
  OperationHeader last_words;           // why this rank has ended the group
  OperationHeader incoming_last_words;  // why the other rank has
  Message received;                     // the newest message, handed out
  std::unique_ptr<UnboundBuffer> incoming_buffer, outgoing_buffer, last_words_buffer,
      incoming_last_words_buffer;
  bool sending = false;    // `outgoing` may still be on its way
  bool receiving = false;  // a receive is posted
  bool owes_acknowledgement = false;
};

GlooPeers::Region::Region() = default;
GlooPeers::Region::~Region() = default;

GlooPeers::GlooPeers(const CollectiveOptions& options)
    : options_(options),
      rendezvous_(options),
      watchdog_(absl::ToChronoNanoseconds(options.timeout)) {}

GlooPeers::~GlooPeers() { Leave(); }

absl::StatusOr<CollectiveCard> GlooPeers::Listen(uint64_t generation, uint32_t self,
                                                 uint32_t ranks) {
  // The watchdog's thread, which closes connections, inherits the mask.
  const SigpipeBlock block;
  self_ = self;
  ranks_ = ranks;
  ended_by_.reset();
  timeout_ = options_.timeout;
  own_ = NewCard("gloo", generation, self, ranks,
                 options_.host_for_test.empty() ? HostOfThisProcess() : options_.host_for_test);
  {
    MutexLock lock(&mutex_);
    cancelled_ = false;
    interruption_.reset();
    names_.resize(ranks);
    std::iota(names_.begin(), names_.end(), 0);
  }
  SLUICE_ASSIGN_OR_RETURN(*own_.mutable_address(), rendezvous_.Listen());
  watchdog_.Start();
  return own_;
}

absl::Status GlooPeers::Join(const std::vector<CollectiveCard>& cards,
                             const std::vector<uint32_t>& members) {
  self_ = PlaceIn(members, own_.rank());
  ranks_ = static_cast<uint32_t>(members.size());
  {
    MutexLock lock(&mutex_);
    names_ = members;
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<FileDescriptor> connections, rendezvous_.Join(own_, cards));
  std::shared_ptr<gloo::transport::Context> context;
  try {
    context = MakeGlooContext(own_.rank(), own_.ranks(), options_.timeout);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      if (rank != self_) AddGlooPair(context.get(), members[rank], std::move(connections[rank]));
    }
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat(
        "rank ", own_.rank(),
        " cannot use its connections to the other ranks over Gloo: ", e.what(),
        "; choose another strategy.sync_configs.engine, or keep the dense tables on the "
        "pservers (sync_configs.dense: PSERVER)"));
  }
  {
    MutexLock lock(&mutex_);
    context_ = std::move(context);
    // Cancel closes the pairs of context_, which it could not see before.
    if (cancelled_) return absl::CancelledError("joining the group was cancelled");
  }
  AddPeers();
  return absl::OkStatus();
}

void GlooPeers::AddPeers() {
  peers_.clear();
  peers_.resize(ranks_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (rank == self_) continue;
    auto peer = std::make_unique<Peer>();
    peer->incoming_buffer = context_->createUnboundBuffer(&peer->incoming, sizeof(Message));
    peer->outgoing_buffer = context_->createUnboundBuffer(&peer->outgoing, sizeof(Message));
    peer->last_words_buffer =
        context_->createUnboundBuffer(&peer->last_words, sizeof(OperationHeader));
    peer->incoming_last_words_buffer =
        context_->createUnboundBuffer(&peer->incoming_last_words, sizeof(OperationHeader));
    peers_[rank] = std::move(peer);
    PostReceives(rank);
  }
}

void GlooPeers::Leave() {
  const SigpipeBlock block;
  if (!watchdog_.running()) return;
  rendezvous_.Leave();
  bool cancelled;
  {
    MutexLock lock(&mutex_);
    cancelled = cancelled_;
  }
  // A rank that closes while others still wait for values of the last operation would cut them off.
  if (!ended_by_.has_value() && !cancelled) (void)AwaitAcknowledgements();
  Close();
  watchdog_.Stop();
}

void GlooPeers::Close() {
  std::shared_ptr<gloo::transport::Context> context;
  {
    MutexLock lock(&mutex_);
    context.swap(context_);
  }
  // Buffers keep the context. Gloo writes to no buffer that is gone.
  peers_.clear();
}

absl::Status GlooPeers::Begin(const OperationHeader& operation) {
  operation_ = operation;
  return ended_by_.has_value() ? End(*ended_by_) : absl::OkStatus();
}

void GlooPeers::PostReceives(uint32_t rank) {
  // Not in the place of a message, which a message that came before may have taken.
  try {
    peers_[rank]->incoming_last_words_buffer->recv(names_[rank], kLastWordsSlot, 0,
                                                   sizeof(OperationHeader));
  } catch (const std::exception&) {
    // It has left.
  }
  PostMessageReceive(rank);
}

void GlooPeers::PostMessageReceive(uint32_t rank) {
  Peer& peer = *peers_[rank];
  try {
    peer.incoming_buffer->recv(names_[rank], kMessageSlot, 0, sizeof(Message));
    peer.receiving = true;
  } catch (const std::exception&) {
    // The rank has left, perhaps because all was done. It is an error once something is wanted of
    // it.
    peer.receiving = false;
  }
}

absl::Status GlooPeers::SendMessage(uint32_t rank, const OperationHeader& header,
                                    const void* values, size_t bytes) {
  Peer& peer = *peers_[rank];
  // There is one outgoing message for each rank. Gloo reads it until it is sent.
  if (peer.sending) SLUICE_RETURN_IF_ERROR(Await(peer.outgoing_buffer.get(), rank, true));
  peer.sending = false;
  peer.outgoing.header = header;
  peer.outgoing.header.inline_bytes = static_cast<uint32_t>(bytes);
  if (values != nullptr && bytes > 0) std::memcpy(peer.outgoing.values, values, bytes);
  SLUICE_RETURN_IF_ERROR(Try(rank, [&] {
    peer.outgoing_buffer->send(names_[rank], kMessageSlot, 0, kHeaderBytes + bytes);
  }));
  peer.sending = true;
  return absl::OkStatus();
}

absl::StatusOr<const GlooPeers::Message*> GlooPeers::ReceiveMessage(uint32_t rank) {
  Peer& peer = *peers_[rank];
  if (!peer.receiving) return Broken(rank);
  SLUICE_RETURN_IF_ERROR(Await(peer.incoming_buffer.get(), rank, false));
  // The peer says how many bytes follow, and may say anything.
  const size_t bytes =
      std::min<size_t>(peer.incoming.header.inline_bytes, OperationHeader::kMaxInlineBytes);
  std::memcpy(&peer.received, &peer.incoming, kHeaderBytes + bytes);
  // After the copy: the next message may arrive at once.
  PostMessageReceive(rank);
  return &peer.received;
}

absl::Status GlooPeers::Acknowledge() {
  OperationHeader header;
  header.kind = OperationHeader::kAcknowledged;
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (rank == self_) continue;
    SLUICE_RETURN_IF_ERROR(SendMessage(rank, header, nullptr, 0));
    // Awaited at the beginning of the next operation, so that it costs no round trip now.
    peers_[rank]->owes_acknowledgement = true;
  }
  return absl::OkStatus();
}

absl::Status GlooPeers::AwaitAcknowledgements() {
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (rank == self_ || peers_[rank] == nullptr || !peers_[rank]->owes_acknowledgement) continue;
    SLUICE_ASSIGN_OR_RETURN(const Message* const message, ReceiveMessage(rank));
    if (message->header.kind != OperationHeader::kAcknowledged) {
      return Abandon(absl::InvalidArgumentError(
          absl::StrCat("rank ", names_[rank], " sent a message out of order")));
    }
    peers_[rank]->owes_acknowledgement = false;
  }
  return absl::OkStatus();
}

std::unique_ptr<GlooPeers::Region> GlooPeers::MakeRegion(void* memory, size_t bytes) {
  auto region = std::make_unique<Region>();
  region->buffers_.resize(ranks_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    // A buffer of its own for each rank: a wait on a shared one would not say whose transfer is
    // over.
    if (rank != self_) region->buffers_[rank] = context_->createUnboundBuffer(memory, bytes);
  }
  return region;
}

absl::Status GlooPeers::Send(Region* from, uint32_t rank, uint64_t slot, size_t begin,
                             size_t bytes) {
  return Try(rank,
             [&] { from->buffers_[rank]->send(names_[rank], kMessageSlot + slot, begin, bytes); });
}

absl::Status GlooPeers::Receive(Region* to, uint32_t rank, uint64_t slot, size_t begin,
                                size_t bytes) {
  return Try(rank,
             [&] { to->buffers_[rank]->recv(names_[rank], kMessageSlot + slot, begin, bytes); });
}

absl::Status GlooPeers::AwaitSent(Region* region, uint32_t rank) {
  return Await(region->buffers_[rank].get(), rank, true);
}

absl::Status GlooPeers::AwaitReceived(Region* region, uint32_t rank) {
  return Await(region->buffers_[rank].get(), rank, false);
}

absl::Status GlooPeers::Try(uint32_t rank, const std::function<void()>& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception&) {
    return Broken(rank);
  }
}

absl::Status GlooPeers::Await(UnboundBuffer* buffer, uint32_t rank, bool send) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout_);
  const auto abort = [buffer, send] { send ? buffer->abortWaitSend() : buffer->abortWaitRecv(); };
  while (true) {
    bool wait = false;
    std::optional<GroupFault> interruption;
    {
      MutexLock lock(&mutex_);
      interruption = interruption_;
      if (!cancelled_ && !interruption.has_value()) {
        wait = true;
        awaited_ = Awaited{rank, operation_};
        watchdog_.Begin(deadline, abort);
      }
    }
    bool complete = false, broken = false;
    if (wait) {
      try {
        complete = send ? buffer->waitSend(kForever) : buffer->waitRecv(kForever);
      } catch (const std::exception&) {
        broken = true;
      }
    }
    // From here on the watchdog aborts nothing, so that the next wait cannot be hit by this
    // deadline.
    const bool expired = watchdog_.End();
    bool cancelled = false;
    {
      MutexLock lock(&mutex_);
      awaited_.reset();
      cancelled = cancelled_;
    }
    // A message that has arrived is used even after Cancel. Other ranks may have committed a step
    // that they reduced with the same message, and then this rank needs its means too.
    if (complete && !interruption.has_value()) return absl::OkStatus();
    if (cancelled) return Fail(GroupFault::kLeft, self_);
    if (interruption.has_value()) return End(*interruption);
    if (broken) return Broken(rank);
    // Otherwise the wait was aborted: by the watchdog now, or just as an earlier wait was complete.
    if (expired) return Fail(GroupFault::kSilent, rank);
  }
}

absl::Status GlooPeers::CheckFailure(const OperationHeader& message, uint32_t rank) {
  if (message.kind != OperationHeader::kFailed) return absl::OkStatus();
  return End({static_cast<GroupFault::Kind>(message.op), message.root, names_[rank]});
}

absl::Status GlooPeers::Broken(uint32_t rank) {
  Peer* const peer = peers_.empty() ? nullptr : peers_[rank].get();
  if (peer != nullptr) {
    // The connection has failed, so that this does not wait: either the last words came before, or
    // the failure is reported again.
    try {
      if (peer->incoming_last_words_buffer->waitRecv(nullptr, std::chrono::milliseconds(100)))
        SLUICE_RETURN_IF_ERROR(CheckFailure(peer->incoming_last_words, rank));
    } catch (const std::exception&) {
    }
  }
  return Fail(GroupFault::kEnded, rank);
}

absl::Status GlooPeers::Fail(GroupFault::Kind kind, uint32_t rank) {
  return End({kind, names_[rank], names_[self_]});
}

absl::Status GlooPeers::End(const GroupFault& fault) {
  bool cancelled;
  {
    MutexLock lock(&mutex_);
    cancelled = cancelled_;
  }
  if (!ended_by_.has_value()) {
    // Set before the last words are sent: sending them may fail, and must not begin this again.
    ended_by_ = fault;
    OperationHeader header;
    header.kind = OperationHeader::kFailed;
    header.op = fault.kind;
    header.root = fault.rank;
    // Before the connections are closed, or the others would only see that this rank has ended.
    SendLastWords(header);
    Close();
  }
  if (cancelled) return absl::CancelledError(absl::StrCat(Describe(operation_), " was cancelled"));
  return ErrorOf(fault, names_[self_], Describe(operation_), options_);
}

void GlooPeers::SendLastWords(const OperationHeader& header) {
  std::vector<UnboundBuffer*> sent;
  for (uint32_t other = 0; other < peers_.size(); ++other) {
    if (peers_[other] == nullptr) continue;
    UnboundBuffer* const buffer = peers_[other]->last_words_buffer.get();
    peers_[other]->last_words = header;
    try {
      buffer->send(names_[other], kLastWordsSlot, 0, sizeof(OperationHeader));
      sent.push_back(buffer);
    } catch (const std::exception&) {
      // It has failed as well, and needs no news.
    }
  }
  // The others always have a receive posted, so they are written at once, or after the values that
  // are on their way to the same rank. Closing the connection would cut both off.
  const auto deadline = std::chrono::steady_clock::now() + kFarewell;
  for (UnboundBuffer* const buffer : sent) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    try {
      (void)buffer->waitSend(std::max(left, std::chrono::milliseconds(1)));
    } catch (const std::exception&) {
    }
  }
}

absl::Status GlooPeers::Abandon(const absl::Status& why) {
  const SigpipeBlock block;
  (void)End(FaultOf(why, names_[self_]));
  return why;
}

void GlooPeers::Interrupt(const absl::Status& why) {
  MutexLock lock(&mutex_);
  interruption_ = FaultOf(why, own_.rank());
  // Under the lock, so that Await has either not begun its wait yet, and sees the interruption, or
  // is aborted.
  watchdog_.Abort();
}

void GlooPeers::Cancel() {
  rendezvous_.Cancel();
  MutexLock lock(&mutex_);
  cancelled_ = true;
  watchdog_.Abort();
  if (context_ == nullptr) return;
  const SigpipeBlock block;
  for (const uint32_t rank : names_) {
    if (rank != own_.rank() && context_->getPair(rank) != nullptr) context_->getPair(rank)->close();
  }
}

std::string GlooPeers::WaitingFor() const {
  MutexLock lock(&mutex_);
  if (!awaited_.has_value()) return "";
  return absl::StrCat("rank ", names_[awaited_->rank], " in ", Describe(awaited_->operation));
}

}  // namespace sluice
