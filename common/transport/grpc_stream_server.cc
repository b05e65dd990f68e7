#include "common/transport/grpc_stream_server.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/task_threads.h"
#include "common/security/access_rules.h"
#include "common/security/connection_listener.h"
#include "common/security/handshake_watch.h"
#include "common/transport/grpc_convert.h"
#include "common/transport/grpc_server_call.h"

namespace sluice {

UnaryCall::UnaryCall(GrpcServerCall* call, PeerIdentity peer)
    : call_(call), peer_(std::move(peer)) {
  call_->AddRef();
}

UnaryCall::~UnaryCall() {
  Reply(absl::InternalError("the server dropped the call"));
  call_->Release();
}

const std::string& UnaryCall::method() const { return call_->method(); }
std::string UnaryCall::Metadata(const std::string& key) const { return call_->Metadata(key); }
bool UnaryCall::cancelled() const { return call_->cancelled(); }
void UnaryCall::OnCancel(std::function<void()> told) { call_->OnCancel(std::move(told)); }

void UnaryCall::Reply(const absl::StatusOr<std::string>& reply) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(replied_, true)) return;
  }
  call_->Reply(reply);
}

class GrpcStreamServer::Impl {
 public:
  Impl(Options options, StreamHandlerFactory factory)
      : options_(std::move(options)),
        streams_(TableFor(options_)),
        unary_calls_(CallTable(options_)) {
    SetMaxReceivedBytes(options_.max_received_bytes);
    if (factory) streaming_[kExchangeMethod] = std::move(factory);
    host_.streams = streams_;
    host_.first_message_timeout = options_.first_message_timeout;
    host_.close_timeout = options_.close_timeout;
    host_.on_requested = [this](GrpcServerCall* call, bool accepted) {
      if (accepted) Accept(call);
    };
    host_.on_gone = [this](GrpcServerCall* call) { Forget(call); };
  }

  ~Impl() { Shutdown(); }

  void RegisterUnary(const std::string& method, UnaryHandler handler, UnaryThread thread,
                     size_t max_bytes) {
    const auto answer = [this, handler = std::move(handler)](const std::shared_ptr<UnaryCall>& call,
                                                             const std::string& request) {
      const absl::StatusOr<std::string> reply = handler(call->peer(), request);
      if (!reply.ok()) Audit(call->method(), call->peer(), call->peer().address, reply.status());
      call->Reply(reply);
    };
    RegisterCall(method, answer, thread, max_bytes);
  }

  void RegisterCall(const std::string& method, CallHandler handler, UnaryThread thread,
                    size_t max_bytes) {
    unary_[method] = {std::move(handler), thread, max_bytes};
  }

  void RegisterStream(const std::string& method, StreamHandlerFactory factory) {
    streaming_[method] = std::move(factory);
  }

  absl::Status Start() {
    ConnectionListener::Options listening;
    listening.users = {options_.bind_address, options_.credentials.tls(),
                       options_.credentials.serves_any_local_user(), options_.audit};
    listening.bounds = options_.connections;
    listening.log = options_.log;
    auto listener = ConnectionListener::Listen(std::move(listening));
    if (!listener.ok()) {
      return absl::UnavailableError(
          absl::StrCat(listener.status().message(),
                       "; choose another address or port (port 0 picks a free one)"));
    }
    listener_ = *std::move(listener);
    // As gRPC does with its own listeners.
    listener_->SetUserTimeout(options_.keepalive_timeout);
    grpc::ServerBuilder builder;
    SetArguments(&builder);
    if (options_.credentials.tls() && options_.audit != nullptr)
      failed_handshakes_ = AuditFailedHandshakes(options_.audit);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        options_.credentials.ForServer());
    builder.RegisterAsyncGenericService(&service_);
    for (int i = 0; i < std::max(1, options_.threads); ++i) {
      queues_.push_back(builder.AddCompletionQueue());
    }
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      StopQueues();
      listener_.reset();
      return absl::InternalError(
          absl::StrCat("gRPC cannot start a server for ", options_.bind_address));
    }
    unary_threads_ = std::make_unique<TaskThreads>(
        options_.unary_threads, options_.max_waiting_unary, options_.max_waiting_unary_per_peer);
    for (auto& queue : queues_) {
      threads_.emplace_back([queue = queue.get()] { RunGrpcEvents(queue); });
    }
    // One call is awaited at each queue. Each that comes asks for the next (Accept).
    for (size_t queue = 0; queue < queues_.size(); ++queue) RequestNext(queue);
    listener_->Start([this](FileDescriptor connection, const TcpEnd& peer) {
      HandOver(std::move(connection), peer);
    });
    return absl::OkStatus();
  }

  int port() const { return listener_ != nullptr ? listener_->port() : 0; }

  // The order matters: first no new calls begin, then every call ends, and only then the queues
  // shut down, because no call may touch a queue after that.
  void Shutdown() {
    if (server_ == nullptr) return;
    // gRPC would keep a descriptor that it gets after its end.
    listener_->Stop();
    failed_handshakes_.reset();  // those that the end of the server cuts are nobody's fault
    {
      MutexLock lock(&mutex_);
      shutting_down_ = true;
    }
    streams_->AbortAll(this, absl::UnavailableError("the server is shutting down"));
    // Returns at the deadline at the latest: a client that does not read cannot hold it up.
    server_->Shutdown(GrpcDeadline(options_.shutdown_timeout));
    {
      MutexLock lock(&mutex_);
      while (calls_ > 0) changed_.Wait(&mutex_);
    }
    unary_threads_.reset();  // calls that had been read before the end were still given to them
    StopQueues();
    server_.reset();
    queues_.clear();
  }

  int open_streams() { return streams_->CountOf(this); }
  void SetMaxReceivedBytes(size_t bytes) {
    received_.Resize(bytes);
    max_received_bytes_.store(bytes, std::memory_order_relaxed);
  }
  size_t max_received_bytes() const { return max_received_bytes_.load(std::memory_order_relaxed); }
  size_t open_connections() const { return listener_ != nullptr ? listener_->open() : 0; }
  size_t queued_bytes() const { return streams_->queued()->bytes(); }

 private:
  struct Unary {
    CallHandler handler;
    UnaryThread thread;
    size_t max_bytes;
  };

  static std::shared_ptr<ServedStreams> TableFor(const Options& options) {
    if (options.streams != nullptr) return options.streams;
    RoomReports::Options reports;
    reports.audit = options.audit;
    return std::make_shared<ServedStreams>(StreamBounds(), std::move(reports));
  }

  static std::shared_ptr<ServedStreams> CallTable(const Options& options) {
    RoomReports::Options reports;
    reports.audit = options.audit;
    reports.log = options.log;
    return std::make_shared<ServedStreams>(options.call_bounds, std::move(reports));
  }

  void SetArguments(grpc::ServerBuilder* builder) {
    const auto ms = [](absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(d)); };
    const int max_bytes = static_cast<int>(std::min<size_t>(options_.max_message_bytes, INT32_MAX));
    builder->SetMaxReceiveMessageSize(max_bytes);
    builder->SetMaxSendMessageSize(max_bytes);
    BoundConnections(received_, builder);
    builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ms(options_.keepalive_time));
    builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ms(options_.keepalive_timeout));
    builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    // Never answer clients' keepalive pings with GOAWAY.
    builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  }

  // gRPC owns the descriptor from here on.
  void HandOver(FileDescriptor connection, const TcpEnd& peer) {
    HandshakeWatch::NoteClient(peer.ToText());
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters handed;
    handed.fd = connection.Release();
    acceptor_->HandleNewConnection(&handed);
  }

  // Asks for the next call on `queue`. gRPC deals connections to the queues in turn and hands their
  // calls to the same queue, so the thread that reads a connection also runs its streams.
  void RequestNext(size_t queue) {
    {
      MutexLock lock(&mutex_);
      if (shutting_down_) return;
      ++calls_;
    }
    auto* call = new GrpcServerCall(&host_, queue);
    call->Request(&service_, queues_[queue].get(), queues_[queue].get());
  }

  void Accept(GrpcServerCall* call) {
    const auto unary = unary_.find(call->method());
    const auto stream = streaming_.find(call->method());
    const bool is_stream = stream != streaming_.end();
    // All of this is decided from the headers. Nothing of the body has been read, so a stranger
    // costs only a call.
    auto peer = options_.credentials.PeerOf(*call->auth_context());
    if (peer.ok()) peer->address = PeerAddress(call->peer());
    absl::Status refusal = Because(RefusalReason::kCertificate, peer.status());
    if (refusal.ok() && !is_stream && unary == unary_.end())
      refusal = absl::UnimplementedError(absl::StrCat("no method ", call->method()));
    if (refusal.ok()) refusal = Because(RefusalReason::kRole, CheckAccess(*peer, call->method()));
    if (!refusal.ok()) {
      Audit(call->method(), peer, PeerAddress(call->peer()), refusal);
    } else {  // the table reports its refusals itself
      listener_->Called(peer->address, peer->verified
                                           ? absl::StrCat(PeerRoleName(peer->role), " ", peer->name)
                                           : "");
      refusal = Admit(is_stream ? streams_ : unary_calls_, call, CallerOf(peer, peer->address));
    }
    // Before the call is answered, so that the next one is taken while its handler runs.
    RequestNext(call->queue_number());
    if (!refusal.ok()) {
      call->Refuse(refusal);
    } else if (is_stream) {
      call->ServeStream(stream->second, *peer);
    } else {
      ServeUnary(call, unary->second, *peer);
    }
  }

  void ServeUnary(GrpcServerCall* raw, const Unary& method, const PeerIdentity& peer) {
    raw->ServeUnary(method.max_bytes, [=, &method](absl::StatusOr<std::string> request) {
      Answer(std::make_shared<UnaryCall>(raw, peer), method, std::move(request));
    });
  }

  void Answer(const std::shared_ptr<UnaryCall>& call, const Unary& method,
              absl::StatusOr<std::string> request) {
    const AuditedCaller caller = CallerOf(call->peer(), call->peer().address);
    if (!request.ok()) {
      Audit(call->method(), call->peer(), caller.address,
            Because(RefusalReason::kInvalid, request.status()));
      return call->Reply(request.status());
    }
    auto answer = [this, call, &method, request = *std::move(request)] {
      if (shutting_down())
        return call->Reply(absl::UnavailableError("the server is shutting down"));
      method.handler(call, request);
    };
    // Such handlers never wait. They must not queue behind those that read files.
    if (method.thread == UnaryThread::kOfStreams) return answer();
    if (unary_threads_->Add(std::move(answer), PeerOn(caller))) return;
    const absl::Status full = absl::ResourceExhaustedError(absl::StrCat(
        "too many calls are waiting already (", options_.max_waiting_unary, " of all callers, or ",
        options_.max_waiting_unary_per_peer, " of this one); try again in a second"));
    unary_calls_->reports()->NoRoom(caller, call->method(), full);
    call->Reply(full);
  }

  void Audit(const std::string& method, const absl::StatusOr<PeerIdentity>& peer,
             const std::string& address, const absl::Status& refusal) const {
    if (options_.audit != nullptr)
      options_.audit->Refused(CallerOf(peer, address), method, refusal);
  }

  // Refuses the stream or unary call, or gives up others for it.
  absl::Status Admit(const std::shared_ptr<ServedStreams>& table, GrpcServerCall* call,
                     const AuditedCaller& caller) {
    call->CountIn(table.get());
    const absl::Status admitted = table->Admit(call, this, caller, call->method());
    // After the admission: Shutdown ends the streams that it finds.
    return admitted.ok() && shutting_down() ? absl::UnavailableError("the server is shutting down")
                                            : admitted;
  }

  void Forget(GrpcServerCall* call) {
    // The call is in one of the two tables.
    streams_->Remove(call);
    unary_calls_->Remove(call);
    // Delete before counting down: Shutdown continues as soon as the count is zero.
    delete call;
    MutexLock lock(&mutex_);
    if (--calls_ == 0) changed_.NotifyAll();
  }

  bool shutting_down() {
    MutexLock lock(&mutex_);
    return shutting_down_;
  }

  void StopQueues() {
    for (auto& queue : queues_) queue->Shutdown();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    void* event;
    bool ok;
    for (auto& queue : queues_) {
      while (queue->Next(&event, &ok)) {
      }
    }
  }

  const Options options_;
  const std::shared_ptr<ServedStreams> streams_;
  const std::shared_ptr<ServedStreams> unary_calls_;  // of this server
  // Constant after Start.
  std::map<std::string, StreamHandlerFactory> streaming_;
  std::map<std::string, Unary> unary_;
  GrpcServerCall::Host host_;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<ConnectionListener> listener_;  // constant after Start
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<HandshakeWatch> failed_handshakes_;  // null: without TLS or an audit log
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::vector<std::thread> threads_;  // one per queue
  std::unique_ptr<TaskThreads> unary_threads_;

  grpc::ResourceQuota received_{"server"};
  std::atomic<size_t> max_received_bytes_{0};  // relaxed: it is read for itself alone
  Mutex mutex_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;  // existing calls, including those that wait for a client
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;
};

GrpcStreamServer::GrpcStreamServer(Options options, StreamHandlerFactory factory)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(factory))) {}
GrpcStreamServer::~GrpcStreamServer() = default;

StreamBounds GrpcStreamServer::DefaultCallBounds() {
  StreamBounds bounds;
  bounds.what = "unary calls";
  bounds.max_streams = 8192;
  bounds.max_streams_per_peer = 2048;
  bounds.max_silent_streams_per_peer = 256;
  bounds.max_queued_bytes = size_t{256} << 20;
  bounds.max_total_queued_bytes = size_t{1} << 30;
  return bounds;
}

void GrpcStreamServer::RegisterUnary(const std::string& method, UnaryHandler handler,
                                     UnaryThread thread, size_t max_bytes) {
  impl_->RegisterUnary(method, std::move(handler), thread, max_bytes);
}
void GrpcStreamServer::RegisterCall(const std::string& method, CallHandler handler,
                                    UnaryThread thread, size_t max_bytes) {
  impl_->RegisterCall(method, std::move(handler), thread, max_bytes);
}
void GrpcStreamServer::RegisterStream(const std::string& method, StreamHandlerFactory factory) {
  impl_->RegisterStream(method, std::move(factory));
}
absl::Status GrpcStreamServer::Start() { return impl_->Start(); }
int GrpcStreamServer::port() const { return impl_->port(); }
void GrpcStreamServer::Shutdown() { impl_->Shutdown(); }
void GrpcStreamServer::SetMaxReceivedBytes(size_t bytes) { impl_->SetMaxReceivedBytes(bytes); }
size_t GrpcStreamServer::max_received_bytes() const { return impl_->max_received_bytes(); }
int GrpcStreamServer::open_streams() const { return impl_->open_streams(); }
size_t GrpcStreamServer::open_connections() const { return impl_->open_connections(); }
size_t GrpcStreamServer::queued_bytes() const { return impl_->queued_bytes(); }

void BoundConnections(const grpc::ResourceQuota& received, grpc::ServerBuilder* builder) {
  builder->SetResourceQuota(received);
  // gRPC's defaults are 120 seconds, for ever, and without a limit.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 100);
  // gRPC checks the length of a compressed message, and then inflates it without a bound. Left as
  // it is, it is no message that anybody understands.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

}  // namespace sluice
