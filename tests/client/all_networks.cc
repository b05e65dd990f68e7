#include "tests/client/all_networks.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/shm_transport/shm_handshake.h"
#include "common/shm_transport/shm_stream_server.h"
#include "common/shm_transport/shm_transport.h"
#include "common/transport/grpc_stream_server.h"
#include "common/transport/grpc_transport.h"

namespace sluice {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool kThreadSanitizer = false;
#endif

// Without pings, which would hide a wake-up that was lost.
constexpr absl::Duration kNoKeepalive = absl::Hours(1);

// Finds the port of each name. A name that was never bound is nobody's address.
class NamedTransport : public Transport {
 public:
  NamedTransport() : grpc_(Options()) {}
  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) override {
    return grpc_.Connect(AddressOf(to.address), std::move(callbacks));
  }
  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override {
    return grpc_.Call(AddressOf(to.address), method, request, timeout);
  }
  void Name(const std::string& name, int port) {
    MutexLock lock(&mutex_);
    addresses_[name] = absl::StrCat("127.0.0.1:", port);
  }
  std::string AddressOf(const std::string& name) const {
    MutexLock lock(&mutex_);
    const auto at = addresses_.find(name);
    return at == addresses_.end() ? "127.0.0.1:1" : at->second;
  }

 private:
  static GrpcTransport::Options Options() {
    GrpcTransport::Options options;
    options.keepalive_time = kNoKeepalive;
    return options;
  }

  mutable Mutex mutex_;
  std::map<std::string, std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  GrpcTransport grpc_;
};

class GrpcNetwork : public TestNetwork {
 public:
  Transport* transport() override { return &transport_; }
  void Bind(const std::string& name, StreamHandlerFactory factory, Calls calls) override {
    GrpcStreamServer::Options options;
    options.keepalive_time = kNoKeepalive;
    auto server = std::make_unique<GrpcStreamServer>(std::move(options), std::move(factory));
    for (auto& [method, call] : calls) {
      server->RegisterUnary(
          method, [call = std::move(call)](const PeerIdentity&, const std::string& request) {
            return call(request);
          });
    }
    const absl::Status started = server->Start();
    ASSERT_TRUE(started.ok()) << started;
    transport_.Name(name, server->port());
    servers_[name] = std::move(server);
  }
  void Unbind(const std::string& name) override { servers_.erase(name); }
  std::string AddressOf(const std::string& name) const override {
    return transport_.AddressOf(name);
  }

 private:
  NamedTransport transport_;
  std::map<std::string, std::unique_ptr<GrpcStreamServer>> servers_;
};

class ShmNetwork : public TestNetwork {
 public:
  explicit ShmNetwork(std::unique_ptr<TestNetwork> control)
      : control_(std::move(control)), transport_(ClientOptions()) {}
  ~ShmNetwork() override {
    while (!servers_.empty()) Unbind(std::string(servers_.begin()->first));
  }

  Transport* transport() override { return &transport_; }
  void Bind(const std::string& name, StreamHandlerFactory factory, Calls calls) override {
    ShmStreamServer::Options options;
    options.ring_bytes = kMinRingBytes;
    options.keepalive_time = kNoKeepalive;
    auto server =
        std::make_unique<ShmStreamServer>(std::move(options), Counted(factory, &streams_));
    const absl::Status started = server->Start();
    ASSERT_TRUE(started.ok()) << started;
    calls[kOpenSharedMemoryMethod] = [this, name](const std::string& request) {
      return Invite(name, request);
    };
    {
      MutexLock lock(&mutex_);
      servers_[name] = std::move(server);
    }
    control_->Bind(name, Counted(std::move(factory), &fallback_streams_), std::move(calls));
  }
  void Unbind(const std::string& name) override {
    control_->Unbind(name);
    std::unique_ptr<ShmStreamServer> server;  // destroyed without the lock
    MutexLock lock(&mutex_);
    // Calls over a network in memory run on the caller's thread, and may go on.
    const auto at = servers_.find(name);
    if (at == servers_.end()) return;
    server = std::move(at->second);
    servers_.erase(at);
  }
  std::string AddressOf(const std::string& name) const override {
    return control_->AddressOf(name);
  }
  void RefuseSharedMemory(bool refused) override {
    refused_.store(refused, std::memory_order_relaxed);
  }
  int shared_memory_streams() const override { return streams_.load(std::memory_order_relaxed); }
  int fallback_streams() const override {
    return fallback_streams_.load(std::memory_order_relaxed);
  }

 private:
  ShmTransport::Options ClientOptions() {
    ShmTransport::Options options;
    options.control = options.fallback = control_->transport();
    options.keepalive_time = kNoKeepalive;
    return options;
  }
  static StreamHandlerFactory Counted(StreamHandlerFactory factory, std::atomic<int>* count) {
    return [factory = std::move(factory), count](std::shared_ptr<Stream> stream,
                                                 const PeerIdentity& peer) {
      count->fetch_add(1, std::memory_order_relaxed);
      return factory(std::move(stream), peer);
    };
  }
  // Refuses in the two ways of containers: the hosts differ, or the socket's name does not exist.
  absl::StatusOr<std::string> Invite(const std::string& name, const std::string& request) {
    MutexLock lock(&mutex_);
    const auto server = servers_.find(name);
    if (server == servers_.end()) return absl::UnavailableError("the server has ended");
    absl::StatusOr<std::string> reply = server->second->Invite({}, request);
    if (!reply.ok() || !refused_.load(std::memory_order_relaxed)) return reply;
    if (refusals_.fetch_add(1, std::memory_order_relaxed) % 2 == 0)
      return absl::FailedPreconditionError("another host");
    (*reply)[10] ^= 1;  // the name of the socket comes first in the serialized reply
    return reply;
  }

  const std::unique_ptr<TestNetwork> control_;
  ShmTransport transport_;
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<ShmStreamServer>> servers_ ABSL_GUARDED_BY(mutex_);
  // Relaxed: counts and a switch, which order nothing.
  std::atomic<bool> refused_{false};
  std::atomic<int> streams_{0}, fallback_streams_{0}, refusals_{0};
};

}  // namespace

std::unique_ptr<TestNetwork> NewInProcessNetwork() { return std::make_unique<InProcessNetwork>(); }
std::unique_ptr<TestNetwork> NewGrpcNetwork() { return std::make_unique<GrpcNetwork>(); }
std::unique_ptr<TestNetwork> NewShmNetwork() {
  return std::make_unique<ShmNetwork>(kThreadSanitizer ? NewInProcessNetwork() : NewGrpcNetwork());
}

std::vector<NetworkKind> AllNetworks() {
  std::vector<NetworkKind> kinds = {{"InProcess", NewInProcessNetwork},
                                    {"SharedMemory", NewShmNetwork}};
  if (!kThreadSanitizer) kinds.push_back({"Grpc", NewGrpcNetwork});
  return kinds;
}

}  // namespace sluice
