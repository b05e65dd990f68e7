#include "common/transport/server_channel.h"

#include <fcntl.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <linux/tcp.h>  // tcpi_bytes_received, which the C library's tcp_info lacks
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/transport/grpc_convert.h"

namespace sluice {
namespace {

// A connection on loopback whose handshake takes longer meets a full queue: another attempt, after
// a pause, finds room sooner than the kernel's next packet, which comes after a second.
constexpr absl::Duration kHandshakeWait = absl::Milliseconds(200);
// The least time between two connections that are opened although the one before may be well: with
// TLS while none is needed for a call, without it after a call that has failed.
constexpr absl::Duration kReplaceEvery = absl::Seconds(1);
// How often to look whether the server has answered: a thread of gRPC may read the answer first.
constexpr int kLookMs = 2;
// Timers of gRPC count in milliseconds; one that came too early would miss its reason.
constexpr absl::Duration kTimerSlack = absl::Milliseconds(5);
constexpr uint64_t kFrameHeaderBytes = 9;

absl::Time Now() { return Clock::Real()->Now(); }

// An argument in milliseconds.
absl::Duration ArgumentOf(const grpc::ChannelArguments& arguments, const char* name,
                          absl::Duration otherwise) {
  const grpc_channel_args args = arguments.c_channel_args();
  for (size_t i = 0; i < args.num_args; ++i) {
    if (args.args[i].type == GRPC_ARG_INTEGER && std::strcmp(args.args[i].key, name) == 0)
      return absl::Milliseconds(args.args[i].value.integer);
  }
  return otherwise;
}

uint64_t BytesReceived(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  // Kernels before 4.1 do not tell. Then the connection counts as answered.
  const size_t needed = offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received);
  return size >= needed ? info.tcpi_bytes_received : kFrameHeaderBytes;
}

}  // namespace

bool ServerConnection::HasAnswered() const {
  return BytesReceived(end_.get()) >= kFrameHeaderBytes;
}

bool ServerConnection::IsOver() const {
  pollfd ended = {end_.get(), POLLRDHUP, 0};
  if (poll(&ended, 1, 0) > 0) return true;
  if (HasAnswered() || Now() < answers_by_) return false;
  // gRPC ends the calls on it when it reads the end.
  shutdown(end_.get(), SHUT_RDWR);
  return true;
}

std::optional<absl::Duration> ServerConnection::EndsWhenSilentFor() const {
  if (is_of_grpc() || HasAnswered()) return std::nullopt;
  return answers_by_ - Now() + kTimerSlack;
}

bool ServerConnection::Next(grpc::CompletionQueue* queue, void** tag, bool* ok) const {
  if (const auto left = EndsWhenSilentFor(); left.has_value()) {
    const auto next = queue->AsyncNext(tag, ok, GrpcDeadline(*left));
    if (next != grpc::CompletionQueue::TIMEOUT) return next == grpc::CompletionQueue::GOT_EVENT;
    (void)IsOver();  // ends it if it is silent
  }
  return queue->Next(tag, ok);
}

ServerChannel::ServerChannel(const std::string& address, const GrpcCredentials& credentials,
                             PeerRole role, std::optional<uint32_t> rank,
                             const grpc::ChannelArguments& arguments)
    : address_(address),
      guard_(address, credentials),
      credentials_(credentials),
      role_(role),
      rank_(rank),
      arguments_(arguments) {}

absl::StatusOr<std::shared_ptr<ServerConnection>> ServerChannel::Get() {
  std::shared_ptr<ServerConnection> over;  // released without the lock
  MutexLock lock(&mutex_);
  if (!guard_.guards()) {
    if (connection_ == nullptr) {
      connection_ = std::make_shared<ServerConnection>(
          grpc::CreateCustomChannel(address_, credentials_.ForClientOf(role_, rank_), arguments_),
          FileDescriptor(), absl::InfiniteFuture());
    }
    return connection_;
  }
  if (connection_ != nullptr && connection_->IsOver()) {
    over.swap(connection_);
    if (over->HasAnswered()) {
      pause_ = absl::ZeroDuration();
    } else {
      (void)Pause(absl::UnavailableError(
          Now() < over->answers_by()
              ? absl::StrCat(address_, ": Socket closed before the server has answered")
              : absl::StrCat(address_, ": the server takes connections but does not answer")));
    }
  }
  if (connection_ != nullptr) return connection_;
  if (Now() < next_attempt_) return failed_;
  auto opened = Open();
  if (!opened.ok()) return Pause(opened.status());
  connection_ = *std::move(opened);
  return connection_;
}

absl::StatusOr<std::shared_ptr<ServerConnection>> ServerChannel::Open() {
  const absl::Time by =
      Now() + ArgumentOf(arguments_, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, absl::Seconds(20));
  absl::StatusOr<FileDescriptor> fd = guard_.Connect(std::min(by - Now(), kHandshakeWait));
  if (!fd.ok()) return fd.status();
  FileDescriptor end(fcntl(fd->get(), F_DUPFD_CLOEXEC, 0));
  if (!end) {
    return absl::UnavailableError(
        absl::StrCat(address_, ": no file descriptor is left: ", std::strerror(errno)));
  }
  // As gRPC does with its own sockets: data that the kernel cannot deliver ends the connection.
  const int timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(
      ArgumentOf(arguments_, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, absl::Seconds(20))));
  setsockopt(fd->get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
  grpc::ChannelArguments arguments = arguments_;
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, address_);
  auto channel = grpc::CreateCustomInsecureChannelFromFd(address_, fd->Release(), arguments);
  return std::make_shared<ServerConnection>(std::move(channel), std::move(end), by);
}

absl::Status ServerChannel::Pause(absl::Status failed) {
  const auto first =
      ArgumentOf(arguments_, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, absl::Seconds(1));
  const auto longest = ArgumentOf(arguments_, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, absl::Minutes(2));
  pause_ = std::clamp(2 * pause_, first, longest);
  next_attempt_ = Now() + pause_;
  failed_ = std::move(failed);
  return failed_;
}

void ServerChannel::Failed(const std::shared_ptr<ServerConnection>& connection) {
  std::shared_ptr<ServerConnection> old;  // released without the lock
  MutexLock lock(&mutex_);
  if (connection_ != connection) return;  // another user of it has seen to that already
  if (!credentials_.tls()) {
    if (connection->is_of_grpc()) return;  // connects again by itself
    // The next Get sees the end of a connection, and how long a server may be silent.
    if (!connection->HasAnswered() || connection->IsOver()) return;
    // A server may fail calls for reasons of its own.
    if (Now() < replace_from_) return;
    replace_from_ = Now() + kReplaceEvery;
  }
  old.swap(connection_);
}

ServerChannel::State ServerChannel::Look() {
  const auto connection = Get();
  if (!connection.ok()) return State::kFailed;
  if (!(*connection)->is_of_grpc())
    return (*connection)->HasAnswered() ? State::kReady : State::kConnecting;
  switch ((*connection)->channel()->GetState(/*try_to_connect=*/true)) {
    case GRPC_CHANNEL_READY:
      return State::kReady;
    case GRPC_CHANNEL_TRANSIENT_FAILURE: {
      bool replaces = false;
      if (credentials_.tls()) {
        // A port where nobody listens must not be asked all the time.
        MutexLock lock(&mutex_);
        replaces = Now() >= replace_from_;
        if (replaces) replace_from_ = Now() + kReplaceEvery;
      }
      if (replaces) Failed(*connection);
      return State::kFailed;
    }
    default:
      return State::kConnecting;
  }
}

void ServerChannel::AwaitChange(const std::vector<ServerChannel*>& channels,
                                absl::Duration at_most) {
  grpc::CompletionQueue queue;
  std::vector<std::shared_ptr<ServerConnection>> connections;  // outlive the wait
  size_t of_grpc = 0;
  std::vector<pollfd> own;
  int wait_ms =
      static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(at_most, absl::Milliseconds(1))));
  for (ServerChannel* channel : channels) {
    const auto connection = channel->Get();
    if (!connection.ok()) continue;  // a pause passes by itself
    connections.push_back(*connection);
    if ((*connection)->is_of_grpc()) {
      grpc::Channel* const to = (*connection)->channel().get();
      to->NotifyOnStateChange(to->GetState(/*try_to_connect=*/true), GrpcDeadline(at_most), &queue,
                              nullptr);
      ++of_grpc;
      continue;
    }
    const uint64_t received = BytesReceived((*connection)->end());
    own.push_back({(*connection)->end(),
                   static_cast<short>(received == 0 ? POLLIN | POLLRDHUP : POLLRDHUP), 0});
    if (received < kFrameHeaderBytes) wait_ms = std::min(wait_ms, kLookMs);
  }
  // Where gRPC waits, the other connections are looked at again when that is over.
  if (of_grpc == 0) poll(own.data(), own.size(), wait_ms);
  void* tag;
  bool ok;
  for (size_t i = 0; i < of_grpc; ++i) queue.Next(&tag, &ok);
}

}  // namespace sluice
