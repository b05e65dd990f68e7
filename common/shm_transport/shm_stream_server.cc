#include "common/shm_transport/shm_stream_server.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/boot_id.h"
#include "common/base/bounded_parse.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/security/access_rules.h"
#include "common/security/refusal_reason.h"
#include "common/shm_transport/shm_handshake.h"
#include "common/shm_transport/shm_invitations.h"
#include "common/shm_transport/shm_stream.h"
#include "common/shm_transport/shm_thread.h"
#include "proto/pserver.pb.h"

namespace sluice {
namespace {

// Connections that have not said hello. A further one takes the place of the oldest.
constexpr size_t kMaxStrangers = 64;
// The thread accepts this many connections in a row, then serves its streams. So a caller that
// says hello at once is heard before kMaxStrangers others have come.
constexpr int kAcceptsATurn = 16;
constexpr absl::Duration kHelloTimeout = absl::Seconds(10);
// The address of a caller whose own is not known.
constexpr char kLocalSocket[] = "local socket";

}  // namespace

class ShmStreamServer::Impl {
 public:
  Impl(Options options, StreamHandlerFactory factory)
      : options_(std::move(options)),
        boot_id_(options_.boot_id.empty() ? BootId() : options_.boot_id),
        factory_(std::move(factory)),
        streams_(TableFor(options_)),
        host_(std::make_shared<ShmStream::Host>()) {
    host_->max_message_bytes = options_.max_message_bytes;
    host_->max_first_message_bytes = options_.max_first_message_bytes;
    host_->max_queued_bytes = streams_->max_queued_bytes();
    host_->served = streams_;
    host_->keepalive_time = options_.keepalive_time;
    host_->keepalive_timeout = options_.keepalive_timeout;
    host_->first_message_timeout = options_.first_message_timeout;
    host_->close_timeout = options_.close_timeout;
  }
  ~Impl() { Shutdown(); }

  absl::Status Start() {
    // An abstract name, which needs no folder and ends with the process. It is no secret; the token
    // is.
    name_ = absl::StrCat("sluice-", RandomId());
    SLUICE_ASSIGN_OR_RETURN(listener_, UnixListener::Listen(name_));
    stop_event_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop_event_) return absl::ResourceExhaustedError("no eventfd");
    const absl::Duration check_every =
        std::min({options_.keepalive_time, options_.keepalive_timeout,
                  options_.first_message_timeout, options_.close_timeout}) /
        8;
    for (int i = 0; i < std::max(1, options_.threads); ++i)
      threads_.push_back(std::make_shared<ShmThread>(check_every));
    acceptor_ = std::thread([this] { Accept(); });
    MutexLock lock(&mutex_);
    running_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Invite(const PeerIdentity& peer, const std::string& bytes) {
    OpenSharedMemoryRequest request;
    SLUICE_RETURN_IF_ERROR(ParseWithin(2 * kMaxInvitationRequestBytes, bytes, &request));
    if (request.protocol() != kShmProtocol) {
      return Because(RefusalReason::kInvalid,
                     absl::FailedPreconditionError(
                         absl::StrCat("the pserver shares memory by protocol ", kShmProtocol,
                                      ", the worker by ", request.protocol())));
    }
    // Only a hint that spares a useless try: a worker on another host could not map the memory.
    if (boot_id_.empty() || request.boot_id() != boot_id_)
      return absl::FailedPreconditionError("the worker and the pserver are on different hosts");
    {
      MutexLock lock(&mutex_);
      if (!running_) return absl::UnavailableError("the server is not running");
    }
    OpenSharedMemoryReply reply;
    reply.set_socket(name_);
    // The caller's certificate was checked over gRPC. The token carries that to the local socket,
    // which has no TLS.
    reply.set_token(invitations_.Issue(peer, std::chrono::steady_clock::now()));
    reply.set_ring_bytes(options_.ring_bytes);
    return reply.SerializeAsString();
  }

  // The order matters: first no new streams begin, then every stream ends.
  void Shutdown() {
    {
      MutexLock lock(&mutex_);
      running_ = false;
    }
    if (!acceptor_.joinable()) return;
    eventfd_write(stop_event_.get(), 1);
    acceptor_.join();
    // After the acceptor has ended: a stream that began later would stay open.
    streams_->AbortAll(this, absl::UnavailableError("the server is shutting down"));
    for (const auto& thread : threads_) thread->Stop();
    threads_.clear();
    listener_ = UnixListener();
  }

  int open_streams() const { return streams_->CountOf(this); }
  size_t queued_bytes() const { return streams_->queued()->bytes(); }

 private:
  static std::shared_ptr<ServedStreams> TableFor(const Options& options) {
    if (options.streams != nullptr) return options.streams;
    RoomReports::Options reports;
    reports.audit = options.audit;
    return std::make_shared<ServedStreams>(StreamBounds(), std::move(reports));
  }

  using Time = ShmStream::Time;
  // Has connected, but not said hello.
  struct Stranger {
    UnixConnection socket;
    Time since;
  };

  void Accept() {
    std::list<Stranger> strangers;
    while (true) {
      std::vector<pollfd> polled = {{stop_event_.get(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      for (const Stranger& s : strangers) polled.push_back({s.socket.fd(), POLLIN, 0});
      // Once a second while somebody is silent, to find those whose time is over.
      poll(polled.data(), polled.size(), strangers.empty() ? -1 : 1000);
      if (polled[0].revents != 0) return;
      size_t i = 2;
      const Time now = std::chrono::steady_clock::now();
      for (auto s = strangers.begin(); s != strangers.end(); ++i) {
        const bool spoke = polled[i].revents != 0;
        // Those that wait before new ones: whoever has sent its hello must not lose its place to a
        // flood.
        if (spoke) Welcome(std::move(s->socket), now);
        const bool silent = !spoke && absl::FromChrono(now - s->since) > kHelloTimeout;
        if (silent) AuditSilent();
        s = spoke || silent ? strangers.erase(s) : std::next(s);
      }
      if (polled[1].revents != 0) AcceptStrangers(&strangers, now);
    }
  }

  void AcceptStrangers(std::list<Stranger>* strangers, Time now) {
    for (int i = 0; i < kAcceptsATurn; ++i) {
      absl::StatusOr<UnixConnection> socket = listener_.Accept();
      if (absl::IsUnavailable(socket.status())) return;
      if (absl::IsPermissionDenied(socket.status())) {
        Audit(socket.status(), Because(RefusalReason::kUser, socket.status()));
      } else if (!socket.ok()) {
        // No descriptors are free: without a pause, this thread would only try again.
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return;
      } else {
        if (strangers->size() == kMaxStrangers) {
          AuditSilent();
          strangers->pop_front();
        }
        strangers->push_back({*std::move(socket), now});
      }
    }
  }

  // Opens a stream for whoever said something, or turns it away.
  void Welcome(UnixConnection socket, Time now) {
    absl::StatusOr<UnixConnection::Packet> packet = socket.Receive(absl::ZeroDuration());
    if (absl::IsUnavailable(packet.status())) return;  // it has gone again
    std::string token;
    absl::StatusOr<ShmLink> link =
        packet.ok() ? ReadHello(*std::move(packet), options_.ring_bytes, &token) : packet.status();
    // The token is used up, whatever else is wrong with the hello.
    const absl::StatusOr<PeerIdentity> peer = invitations_.Redeem(token, now);
    absl::Status refusal = peer.status();
    if (refusal.ok()) refusal = CheckAccess(*peer, kExchangeMethod);
    refusal = refusal.ok() ? link.status() : Because(RefusalReason::kToken, refusal);
    if (!refusal.ok()) {
      Audit(peer, refusal);
      return RefuseHello(&socket, refusal);
    }
    // Nothing of the client has been used up to here but its hello and its token.
    link->socket = std::move(socket);
    Open(*std::move(link), *peer);
  }

  void Open(ShmLink link, const PeerIdentity& peer) {
    const std::shared_ptr<ShmThread>& thread = threads_[next_thread_++ % threads_.size()];
    auto stream =
        std::make_shared<ShmStream>(ShmStream::Side::kServer, std::move(link), host_, thread);
    const AuditedCaller caller = CallerAtSocket(peer);
    // Before the answer, so that a client that is refused can use gRPC instead.
    absl::Status refusal = streams_->Admit(stream.get(), this, caller, kExchangeMethod);
    if (refusal.ok()) {
      refusal = AcceptHello(stream->socket());
      if (!refusal.ok()) streams_->Remove(stream.get());
    }
    if (!refusal.ok()) return RefuseHello(stream->socket(), refusal);
    Serve(std::move(stream), thread, peer);
  }

  void Serve(std::shared_ptr<ShmStream> stream, const std::shared_ptr<ShmThread>& thread,
             const PeerIdentity& peer) {
    const auto handler = std::make_shared<std::unique_ptr<StreamHandler>>();
    ShmStream::Events events;
    events.on_message = [handler](Message message) { (*handler)->OnMessage(std::move(message)); };
    events.on_lent = [handler](const LentMessage& message) { (*handler)->OnLent(message); };
    events.on_closed = [handler](const absl::Status&) {
      if (*handler == nullptr) return;  // the stream was refused
      (*handler)->OnClosed();
      handler->reset();
    };
    events.on_finished = [streams = streams_, key = stream.get()] { streams->Remove(key); };
    stream->SetEvents(std::move(events));
    // After the events are set, because the handler may send at once.
    *handler = factory_(stream, peer);
    if (*handler == nullptr)
      stream->Abort(absl::ResourceExhaustedError("the server refused the stream"));
    // Last: from here on callbacks run on another thread.
    thread->Add(std::move(stream));
  }

  static AuditedCaller CallerAtSocket(const absl::StatusOr<PeerIdentity>& peer) {
    return CallerOf(peer, peer.ok() && !peer->address.empty() ? peer->address : kLocalSocket);
  }
  void Audit(const absl::StatusOr<PeerIdentity>& peer, const absl::Status& refusal) const {
    if (options_.audit != nullptr)
      options_.audit->Refused(CallerAtSocket(peer), kExchangeMethod, refusal);
  }
  void AuditSilent() const {
    const absl::Status silent = absl::ResourceExhaustedError(
        absl::StrCat("a connection has sent no hello within ", absl::FormatDuration(kHelloTimeout),
                     ", or ", kMaxStrangers, " others have come since"));
    Audit(silent, Because(RefusalReason::kRoom, silent));
  }

  const Options options_;
  const std::string boot_id_;
  const StreamHandlerFactory factory_;
  const std::shared_ptr<ServedStreams> streams_;  // late senders hold it too
  const std::shared_ptr<ShmStream::Host> host_;
  ShmInvitations invitations_;
  // Constant while the acceptor runs.
  std::string name_;
  UnixListener listener_;
  FileDescriptor stop_event_;
  std::vector<std::shared_ptr<ShmThread>> threads_;
  std::thread acceptor_;
  size_t next_thread_ = 0;  // of the acceptor
  Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
};

ShmStreamServer::ShmStreamServer(Options options, StreamHandlerFactory factory)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(factory))) {}
ShmStreamServer::~ShmStreamServer() = default;
absl::Status ShmStreamServer::Start() { return impl_->Start(); }
absl::StatusOr<std::string> ShmStreamServer::Invite(const PeerIdentity& peer,
                                                    const std::string& request) {
  return impl_->Invite(peer, request);
}
void ShmStreamServer::Shutdown() { impl_->Shutdown(); }
int ShmStreamServer::open_streams() const { return impl_->open_streams(); }
size_t ShmStreamServer::queued_bytes() const { return impl_->queued_bytes(); }

}  // namespace sluice
