// Closes the connections of other users of this host before a server reads a byte of them.
//
// A server on a loopback address without TLS serves only processes of its own user and of root,
// unless it was told to serve any local user. This holds for gRPC ports and admin ports. Whoever
// may not call must not be able to make a server allocate either, or to have a message handled
// under the address of somebody else. So the user is found out once, when the connection is
// accepted (client_owner.h has the argument why that answer holds as long as the connection does),
// and calls need no further check.
//
// A connection whose user cannot be found out, because this process has no file descriptor left, is
// not admitted either; its client is accused of nothing, and tries again. Each refusal is recorded,
// but not by the thread that accepts: it must not wait for a disk. A caller that left before it was
// accepted, and had sent nothing, may have been a probe of the port. It is not recorded. A caller
// that ends its own side before it is accepted counts as one that left.
//
// Thread safety: safe from any thread.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/security/admission.h"
#include "common/security/audit_log.h"
#include "common/security/local_sockets.h"

namespace sluice {

class LocalUserGate {
 public:
  struct Options {
    std::string address;          // host:port that the server will bind
    bool tls = false;             // certificates decide who may call
    bool any_local_user = false;  // every user of this host may connect
    AuditLog* audit = nullptr;    // may be null; outlives the gate
    uid_t user = geteuid();       // this user and root may connect
  };
  explicit LocalUserGate(Options options);

  // Whether the connection may stay; else its caller closes it. Does not wait. `peer`: its other
  // end, which the system may have forgotten when it has gone meanwhile.
  Admission Admit(int connection, const TcpEnd& peer);

  // False: peers of every user are served.
  bool closed_to_others() const { return closed_to_others_; }

 private:
  void Record(const TcpEnd& peer, const absl::Status& refusal);

  const Options options_;
  const bool closed_to_others_;
  std::unique_ptr<AuditQueue> records_;  // null: no audit log, or every user is served
};

}  // namespace sluice
