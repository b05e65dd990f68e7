// Bounds the open connections of a gRPC server, in all and of each host.
//
// gRPC takes some 30 KiB for a connection that has sent nothing but its handshake, and has no bound
// of its own. The gate decides when a connection is accepted (connection_places.h). It ends a
// connection that makes room by shutting its socket down; gRPC, which owns the socket, then
// closes it. It learns of each close from close_hook.h.
//
// Refused connections are closed before gRPC knows of them. They and those that were ended are
// recorded with the reason `room`, and so are among the metrics. The record of one that had called
// names its certificate.
//
// Thread safety: one thread; Called and the counts are safe from any thread.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>

#include "common/security/audit_log.h"
#include "common/security/connection_places.h"
#include "common/security/listener_guard.h"

namespace sluice {

class ConnectionGate {
 public:
  // `audit` may be null; outlives the gate.
  ConnectionGate(const ConnectionBounds& bounds, AuditLog* audit);
  // The server has ended, or its listener admits nobody any more.
  ~ConnectionGate();

  // Calls `start` on this thread. The connections of the listeners that it opens are bounded.
  void Guard(const std::function<void()>& start);
  // A call of the peer at this address (host:port) was allowed, so its connection is kept, unless
  // the owner of the certificate has too many (connection_places.h). `certificate`: its role, a
  // space, and its name; "" without TLS.
  void Called(const std::string& address, const std::string& certificate);

  size_t open() const;  // without those that were ended and not closed yet

 private:
  // Connections may outlive the gate.
  struct State;

  bool Admits(int connection, const sockaddr_storage& peer);
  // `certificate`: as Called says; "" for strangers.
  void Record(const TcpEnd& peer, const std::string& certificate, const std::string& what);

  const ConnectionBounds bounds_;
  const std::shared_ptr<State> state_;
  // Before the guard, which ends first: its check uses the records.
  AuditQueue records_;
  ListenerGuard guard_;
};

}  // namespace sluice
