// Bounds the open connections of a gRPC server, in all and of each host.
//
// gRPC takes some 30 KiB for a connection that has sent nothing but its handshake, and has no bound
// of its own. The gate decides when a connection is accepted (connection_places.h). It ends a
// connection that makes room by shutting its socket down; gRPC, which owns the socket, then
// closes it.
//
// gRPC tells nobody when it closes a socket. So the gate keeps a duplicate of each descriptor,
// whose end the kernel reports. From then on it looks, every few milliseconds, whether gRPC's
// descriptor still stands for the same socket; only when it does not, gRPC's memory is free and the
// place too. Each connection therefore takes two descriptors. gRPC shuts a socket down before it
// closes it.
//
// Refused connections are closed before gRPC knows of them. They and those that were ended are
// recorded with the reason `room`, and so are among the metrics. The record of one that had called
// names its certificate.
//
// Thread safety: one thread; Called and open are safe from any thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/security/admission.h"
#include "common/security/audit_log.h"
#include "common/security/connection_places.h"
#include "common/shared_memory/file_descriptor.h"

namespace sluice {

class ConnectionGate {
 public:
  // `audit` may be null; outlives the gate.
  ConnectionGate(const ConnectionBounds& bounds, AuditLog* audit);

  // False: there was no descriptor to learn of ends with. Then no connection is admitted.
  bool watches() const { return static_cast<bool>(ends_); }

  // Takes a place for the connection, which is about to be handed over.
  Admission Admit(int connection, const TcpEnd& peer);
  // A call of the peer at this address (host:port) was allowed, so its connection is kept, unless
  // the owner of the certificate has too many (connection_places.h). `certificate`: its role, a
  // space, and its name; "" without TLS.
  void Called(const std::string& address, const std::string& certificate);

  // A descriptor that is readable when connections may have ended: call TakeEnds.
  int ends() const { return ends_.get(); }
  // Gives the places of closed connections back. Returns when to call it again at the latest.
  absl::Duration TakeEnds();
  // Forgets all connections, which go on.
  void Forget();

  size_t open() const;  // without those that were ended and not closed yet

 private:
  struct Watched {
    FileDescriptor end;  // the duplicate, whose number is the connection's id
    int connection;      // the number of the owner's descriptor
    dev_t device;        // of the socket, as is inode
    ino_t inode;
  };

  static bool IsClosed(const Watched& watched);
  // `certificate`: as Called says; "" for strangers.
  void Record(const TcpEnd& peer, const std::string& certificate, const std::string& what);

  const ConnectionBounds bounds_;
  AuditQueue records_;
  const FileDescriptor ends_;  // an epoll instance
  std::unordered_map<int, Watched> watched_;
  std::set<int> ended_;  // of watched_: the connection has ended, and may not be closed yet
  mutable Mutex mutex_;
  ConnectionPlaces places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
