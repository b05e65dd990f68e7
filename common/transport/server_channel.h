// A client's way to one server of the cluster: a gRPC channel that is made anew after its
// connection has failed.
//
// - With TLS, off loopback, or where any local user may serve, gRPC connects by itself, and again
//   after the connection has ended. In runs that broke connections while certificates were
//   replaced, channels of gRPC 1.51 stopped to connect after a TLS handshake had been cut, while
//   new channels to the same address connected. So a channel with TLS that has failed is replaced.
// - On loopback without TLS, this process connects, checks the server's user (ServerGuard), and
//   makes a channel from the descriptor. gRPC calls such a channel direct: it neither connects
//   again nor tells its state, and knows no wait_for_ready. So a duplicate of the descriptor is
//   kept, which shows whether the server has answered and whether the connection has ended, and the
//   next Get connects again, through the same check. Everything else, such as keepalive, messages'
//   bounds and deadlines of calls, is the transport's and the same in both.
//
// Attempts of both kinds follow the same arguments of the channel:
// GRPC_ARG_MIN_RECONNECT_BACKOFF_MS bounds one attempt, up to the server's HTTP/2 settings, and
// GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS and GRPC_ARG_MAX_RECONNECT_BACKOFF_MS are the least and the
// longest pause after one that has failed. During a pause calls fail at once, for the reason of
// that attempt.
//
// Thread safety: safe from any thread. Users of a connection that is replaced keep theirs.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/security/grpc_credentials.h"
#include "common/security/server_guard.h"
#include "common/shared_memory/file_descriptor.h"

namespace sluice {

// One channel, and its connection as far as this process has made it.
//
// Thread safety: safe from any thread.
class ServerConnection {
 public:
  // `end`: a duplicate of the channel's descriptor; none: gRPC connects by itself. `by`: when the
  // server must have answered.
  ServerConnection(std::shared_ptr<grpc::Channel> channel, FileDescriptor end, absl::Time by)
      : channel_(std::move(channel)), end_(std::move(end)), answers_by_(by) {}

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // The others are for connections that this process has made.
  //
  // The server has sent at least the header of an HTTP/2 frame, and so its settings, with which it
  // begins. (An alert of TLS is shorter.)
  bool HasAnswered() const;
  // It has ended, or its server was silent too long, in which case this call ends it.
  bool IsOver() const;
  bool is_of_grpc() const { return !end_; }
  absl::Time answers_by() const { return answers_by_; }
  int end() const { return end_.get(); }

  // For connections of both kinds.
  //
  // While the server may still be silent: the time until IsOver ends the connection, and so its
  // calls. Nothing: it has answered, or gRPC itself bounds the attempt.
  std::optional<absl::Duration> EndsWhenSilentFor() const;
  // As queue->Next, for a call over this connection, which ends if the server stays silent too
  // long.
  bool Next(grpc::CompletionQueue* queue, void** tag, bool* ok) const;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const FileDescriptor end_;
  const absl::Time answers_by_;
};

class ServerChannel {
 public:
  enum class State { kConnecting, kReady, kFailed };

  // `address`: host:port. `role`, `rank`: as in GrpcCredentials::ForClientOf.
  ServerChannel(const std::string& address, const GrpcCredentials& credentials, PeerRole role,
                std::optional<uint32_t> rank, const grpc::ChannelArguments& arguments);

  // The connection for the next call. UNAVAILABLE: there is none now; says why. Waits only where
  // this process connects: for a handshake (ServerGuard::Connect), 200 ms for each address at most.
  // Users of the same server wait together, for the same connection.
  absl::StatusOr<std::shared_ptr<ServerConnection>> Get();
  // A call over `connection` got no answer. The next Get makes a new one if this one may be broken:
  // a server that is about to end (GOAWAY) takes no new calls, and keeps the connection for its old
  // ones.
  void Failed(const std::shared_ptr<ServerConnection>& connection);
  // Tries to connect if there is no connection.
  State Look();
  // Waits until the state of each channel may have changed, at most `at_most`. gRPC connects again
  // only while a thread waits in it, or every 5 s. Without this wait, calls that are tried again
  // would fail at once, with no new attempt to connect.
  static void AwaitChange(const std::vector<ServerChannel*>& channels, absl::Duration at_most);
  // As ServerGuard::Explain.
  absl::Status Explain(const absl::Status& failed) const { return guard_.Explain(failed); }

 private:
  absl::StatusOr<std::shared_ptr<ServerConnection>> Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Pause(absl::Status failed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string address_;
  const ServerGuard guard_;
  const GrpcCredentials credentials_;
  const PeerRole role_;
  const std::optional<uint32_t> rank_;
  const grpc::ChannelArguments arguments_;

  Mutex mutex_;
  std::shared_ptr<ServerConnection> connection_ ABSL_GUARDED_BY(mutex_);
  // When a channel that is not known to have ended may be replaced again: with TLS, by Look.
  absl::Time replace_from_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // The error, the pause and the time of the connections that this process makes itself.
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  absl::Time next_attempt_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace sluice
