// Notices TLS handshakes with a gRPC server of this process that fail, and says why. gRPC 1.51 does
// not tell its server of them.
//
// OpenSSL tells of each session that is made and freed, and of its alerts. A server's session that
// is freed before its handshake is over has failed. Nothing of what gRPC checks is changed.
//
// - Sessions over a socket of their own are left to their owner (common/admin/socket_channel.h):
//   those of gRPC go through memory.
// - A client that has sent nothing is not reported: it may be a probe of the port.
// - OpenSSL's registration is one for the process and cannot be taken back. All watches share it,
//   and each is told of every failure. A daemon has one gRPC server.
//
// Thread safety: safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace sluice {

class AuditLog;

class HandshakeWatch {
 public:
  // `address`: host:port of the client, or "unknown". Runs on a thread of gRPC.
  using OnFailed = std::function<void(const std::string& address, const std::string& why)>;
  explicit HandshakeWatch(OnFailed on_failed);
  // Waits until `on_failed` has returned.
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

  // Sessions that this thread makes from now on are those of the client at `address`. gRPC makes a
  // connection's session at once, on the thread that hands the connection over.
  static void NoteClient(const std::string& address);

 private:
  friend class HandshakeWatches;
  const OnFailed on_failed_;
};

// Records failures as refusals. `audit` outlives the watch.
std::unique_ptr<HandshakeWatch> AuditFailedHandshakes(AuditLog* audit);

}  // namespace sluice
