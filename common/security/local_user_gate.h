// Closes the connections of other users of this host before a gRPC server reads a byte of them.
//
// A server on a loopback address without TLS serves only processes of its own user and of root,
// unless it was told to serve any local user. Whoever may not call must not be able to make gRPC
// allocate either, or to have a message handled under the address of somebody else. So the user is
// found out once, when the connection is accepted (client_owner.h has the argument why that answer
// holds as long as the connection does), and calls need no further check.
//
// A connection whose user cannot be found out, because this process has no file descriptor left, is
// closed too; clients try again. Each refusal is recorded, but not by the thread that accepts: it
// must not wait for a disk. A caller that left before it was accepted, and had sent nothing, may
// have been a probe of the port. It is not recorded.
//
// Thread safety: one thread. The check runs on the threads that accept.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/task_threads.h"
#include "common/security/audit_log.h"
#include "common/security/grpc_credentials.h"
#include "common/security/listener_guard.h"

namespace grpc {
class Server;
class ServerBuilder;
}  // namespace grpc

namespace sluice {

class LocalUserGate {
 public:
  // For a server that will bind `address` (host:port), whose connections `user` and root may open.
  // `audit` may be null; outlives the gate.
  LocalUserGate(const GrpcCredentials& credentials, const std::string& address, AuditLog* audit,
                uid_t user = geteuid());
  // The server has ended, or its listener admits nobody any more.
  ~LocalUserGate();

  // Builds and starts the server. Null: gRPC cannot bind the address. INTERNAL: this gRPC opens its
  // listener in a way that the gate does not notice; no server runs then.
  absl::StatusOr<std::unique_ptr<grpc::Server>> Start(grpc::ServerBuilder* builder);

  // False: peers of every user are served.
  bool closed_to_others() const { return closed_to_others_; }

 private:
  bool Admits(int connection, const sockaddr_storage& peer);
  void Record(const sockaddr_storage& peer, const absl::Status& refusal);

  const bool closed_to_others_;
  AuditLog* const audit_;
  const uid_t user_;
  std::atomic<uint64_t> unrecorded_{0};  // relaxed: a count
  // Before the guard, which ends first: its check uses the threads.
  std::unique_ptr<TaskThreads> records_;  // null: without an audit log
  std::unique_ptr<ListenerGuard> guard_;
};

}  // namespace sluice
