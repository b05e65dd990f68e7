#include "tests/common/transport/in_process_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

Message CopyAndCut(const Message& message, size_t slice_bytes) {
  const size_t size = MessageSize(message);
  std::shared_ptr<uint8_t> copy(new uint8_t[size], std::default_delete<uint8_t[]>());
  uint8_t* to = copy.get();
  for (const Slice& s : message) {
    if (s.size() == 0) continue;
    std::memcpy(to, s.data(), s.size());
    to += s.size();
  }
  Message cut;
  for (size_t i = 0; i < size; i += slice_bytes) {
    cut.emplace_back(copy.get() + i, std::min(slice_bytes, size - i), copy);
  }
  return cut;
}

// One direction of a stream. Hands the messages to their receiver in order, on a thread of its own,
// and the end last.
class Delivery {
 public:
  // Starts delivering. All three functions run on the thread: on_start first, on_end last and
  // exactly once.
  void Start(std::function<void()> on_start, std::function<void(Message)> on_message,
             std::function<void(absl::Status)> on_end) {
    thread_ = std::thread([this, on_start = std::move(on_start), on_message = std::move(on_message),
                           on_end = std::move(on_end)] {
      on_start();
      for (Message message; Next(&message);) on_message(std::move(message));
      on_end(status());
      MutexLock lock(&mutex_);
      finished_ = true;
    });
  }

  void Push(Message message) {
    MutexLock lock(&mutex_);
    if (ended_) return;
    queue_.push_back(std::move(message));
    changed_.NotifyOne();
  }

  // Ends the delivery. With `drop` the queued messages are lost. The status of the first end
  // counts, unless a later end drops messages.
  void End(absl::Status status, bool drop) {
    std::deque<Message> dropped;  // released outside the lock: owners may run any code
    MutexLock lock(&mutex_);
    if (!ended_ || (drop && !queue_.empty())) status_ = std::move(status);
    ended_ = true;
    if (drop) dropped.swap(queue_);
    changed_.NotifyOne();
  }

  void Join() {
    MutexLock lock(&join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  bool finished() {
    MutexLock lock(&mutex_);
    return finished_;
  }

 private:
  bool Next(Message* message) {
    MutexLock lock(&mutex_);
    while (queue_.empty() && !ended_) changed_.Wait(&mutex_);
    if (queue_.empty()) return false;
    *message = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }

  absl::Status status() {
    MutexLock lock(&mutex_);
    return status_;
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Mutex join_mutex_;
  std::thread thread_;  // joinable() and join() under join_mutex_
};

}  // namespace

// A stream as both ends see it. Both ends and the transport hold it. The handler holds the server's
// end, so there is a cycle; the server's thread breaks it by destroying the handler when it ends.
class InProcessTransport::Connection {
 public:
  explicit Connection(size_t slice_bytes) : slice_bytes_(slice_bytes) {}

  void StartClient(StreamCallbacks callbacks) {
    to_client_.Start([] {}, std::move(callbacks.on_message), std::move(callbacks.on_closed));
  }

  // The handler takes `server_end`, which holds this connection.
  void StartServer(StreamHandlerFactory factory, std::shared_ptr<Stream> server_end) {
    auto make_handler = [this, factory = std::move(factory),
                         server_end = std::move(server_end)]() mutable {
      handler_ = factory(std::move(server_end), PeerIdentity());
      if (handler_ != nullptr) return;
      BreakBoth(absl::ResourceExhaustedError("the server refused the stream"));
    };
    to_server_.Start(
        std::move(make_handler),
        [this](Message message) {
          if (handler_ != nullptr) handler_->OnMessage(std::move(message));
        },
        [this](absl::Status) {
          if (handler_ != nullptr) handler_->OnClosed();
          handler_.reset();
          to_client_.End(absl::OkStatus(), /*drop=*/false);
        });
  }

  void SendToServer(const Message& message) { to_server_.Push(CopyAndCut(message, slice_bytes_)); }
  void SendToClient(const Message& message) { to_client_.Push(CopyAndCut(message, slice_bytes_)); }
  void CloseByClient() { to_server_.End(absl::OkStatus(), /*drop=*/false); }
  void CloseByServer() {
    to_client_.End(absl::OkStatus(), /*drop=*/false);
    to_server_.End(absl::OkStatus(), /*drop=*/true);
  }
  void BreakBoth(const absl::Status& status) {
    to_client_.End(status, /*drop=*/true);
    to_server_.End(status, /*drop=*/true);
  }
  void JoinClient() { to_client_.Join(); }
  void JoinServer() { to_server_.Join(); }
  bool server_finished() { return to_server_.finished(); }

 private:
  const size_t slice_bytes_;
  Delivery to_server_, to_client_;
  std::unique_ptr<StreamHandler> handler_;  // only the server's thread touches it
};

class InProcessTransport::ClientEnd : public Stream {
 public:
  explicit ClientEnd(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~ClientEnd() override {
    connection_->BreakBoth(absl::CancelledError("the stream was destroyed"));
    connection_->JoinClient();
  }
  void Send(Message message) override { connection_->SendToServer(message); }
  void Close() override { connection_->CloseByClient(); }

 private:
  const std::shared_ptr<Connection> connection_;
};

class InProcessTransport::ServerEnd : public Stream {
 public:
  explicit ServerEnd(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  void Send(Message message) override { connection_->SendToClient(message); }
  void Close() override { connection_->CloseByServer(); }

 private:
  const std::shared_ptr<Connection> connection_;
};

InProcessTransport::InProcessTransport(size_t slice_bytes) : slice_bytes_(slice_bytes) {}

InProcessTransport::~InProcessTransport() {
  std::vector<std::string> addresses;
  {
    MutexLock lock(&mutex_);
    for (const auto& server : servers_) addresses.push_back(server.first);
  }
  for (const std::string& address : addresses) Unbind(address);
}

void InProcessTransport::Bind(const std::string& address, StreamHandlerFactory factory) {
  MutexLock lock(&mutex_);
  servers_[address].factory = std::move(factory);
}

void InProcessTransport::RegisterUnary(const std::string& address, const std::string& method,
                                       UnaryHandler handler) {
  MutexLock lock(&mutex_);
  servers_[address].unary[method] = std::move(handler);
}

void InProcessTransport::Unbind(const std::string& address) {
  Server server;
  {
    MutexLock lock(&mutex_);
    auto found = servers_.find(address);
    if (found == servers_.end()) return;
    server = std::move(found->second);
    servers_.erase(found);
  }
  for (const auto& connection : server.connections) {
    connection->BreakBoth(
        absl::UnavailableError(absl::StrCat("the server at ", address, " has stopped")));
  }
  for (const auto& connection : server.connections) connection->JoinServer();
}

std::unique_ptr<Stream> InProcessTransport::Connect(const PserverAddress& to,
                                                    StreamCallbacks callbacks) {
  auto connection = std::make_shared<Connection>(slice_bytes_);
  connection->StartClient(std::move(callbacks));
  std::vector<std::shared_ptr<Connection>> finished;
  {
    MutexLock lock(&mutex_);
    auto found = servers_.find(to.address);
    if (found == servers_.end() || found->second.factory == nullptr) {
      connection->BreakBoth(
          absl::UnavailableError(absl::StrCat("no server is bound to ", to.address)));
    } else {
      // Forget ended connections, so that a long-lived server does not keep every one it ever had.
      auto& connections = found->second.connections;
      auto live = std::partition(connections.begin(), connections.end(),
                                 [](const auto& c) { return !c->server_finished(); });
      finished.assign(live, connections.end());
      connections.erase(live, connections.end());
      connections.push_back(connection);
      connection->StartServer(found->second.factory, std::make_shared<ServerEnd>(connection));
    }
  }
  for (const auto& old : finished) old->JoinServer();
  return std::make_unique<ClientEnd>(std::move(connection));
}

absl::StatusOr<std::string> InProcessTransport::Call(const PserverAddress& to,
                                                     const std::string& method,
                                                     const std::string& request,
                                                     absl::Duration timeout) {
  UnaryHandler handler;
  {
    MutexLock lock(&mutex_);
    auto server = servers_.find(to.address);
    if (server == servers_.end()) {
      return absl::UnavailableError(absl::StrCat("no server is bound to ", to.address));
    }
    auto found = server->second.unary.find(method);
    if (found == server->second.unary.end()) {
      return absl::UnimplementedError(absl::StrCat(to.address, " has no method ", method));
    }
    handler = found->second;
  }
  return handler(request);
}

}  // namespace sluice
