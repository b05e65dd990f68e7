// The listening sockets of a server, and the thread that accepts their connections and decides
// about each before anybody reads a byte of it.
//
// A library that listens itself shows its connections too late, or not at all. So this class
// listens, asks its gates in turn, and hands over only descriptors that they admit:
//
// 1. LocalUserGate closes connections of other users of the host.
// 2. ConnectionGate, if there are bounds, closes or ends connections beyond them.
//
// The port outlives a lack of resources. gRPC 1.51 stops a listener for ever when accept4 fails
// (CVE-2023-4785, fixed in gRPC 1.53.2), and cpp-httplib stops its own after most errors. Here:
//
// - Without a descriptor (EMFILE, ENFILE) the thread gives up one that was kept for this, accepts
//   the connection and closes it. The peer sees that its connection ends, and may try again. Eight
//   are kept, because other threads may take one that is given up.
// - Without memory for a socket (ENOBUFS, ENOMEM), or when all eight are lost, the thread waits a
//   moment and tries again.
// - Errors of one connection that has broken meanwhile (ECONNABORTED, EPROTO, ...) are skipped.
//
// A gate may lack a descriptor, too, or the kernel's memory to watch a connection with. All that is
// closed for such a reason is counted, recorded with the reason `room`, and told to the log.
//
// Thread safety: one thread; Called, open and dropped are safe from any thread.
// Source: accept(2), "Error handling".
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/limited_log.h"
#include "common/base/task_threads.h"
#include "common/security/connection_gate.h"
#include "common/security/local_user_gate.h"
#include "common/shared_memory/file_descriptor.h"

namespace sluice {

class ConnectionListener {
 public:
  struct Options {
    LocalUserGate::Options users;  // with the address, host:port; port 0 picks a free one
    // None: whoever takes the connections bounds them.
    std::optional<ConnectionBounds> bounds;
    // Told of connections that were dropped, at most every 10 seconds, on a thread of the listener.
    // May be empty.
    std::function<void(const std::string&)> log;
  };
  // Takes over a connection that was admitted, which neither blocks nor delays small packets. Runs
  // on the thread that accepts, and must not wait.
  using Take = std::function<void(FileDescriptor connection, const TcpEnd& peer)>;

  // Listens at all addresses of the host: 0.0.0.0 and :: stand for both IPv4 and IPv6. Connections
  // wait until Start. UNAVAILABLE says why the address cannot be bound (in use, not on this host,
  // ...), without a fix.
  static absl::StatusOr<std::unique_ptr<ConnectionListener>> Listen(Options options);
  ~ConnectionListener();  // Stop()

  int port() const { return port_; }
  // Data that the kernel cannot deliver to a peer for so long ends the connection. Call it before
  // Start. Otherwise the kernel decides.
  void SetUserTimeout(absl::Duration timeout);
  // Call it once.
  void Start(Take take);
  // Nobody connects any more, and `take` has returned. Connections that were handed over go on, but
  // are bounded no longer. Safe to call twice.
  void Stop();

  // As in ConnectionGate.
  void Called(const std::string& address, const std::string& certificate);
  size_t open() const;
  // Connections that were closed because there was no descriptor for them, or no means to decide
  // about them.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  explicit ConnectionListener(Options options);
  absl::Status Bind();
  void Run();
  // Accepts some of the connections that wait. False: nothing works for now.
  bool AcceptFrom(int listener);
  void Decide(FileDescriptor connection, const sockaddr_storage& from);
  // Closes the oldest connection that waits, and reports it. False: there is no descriptor for that
  // either.
  bool DropOne(int listener);
  void FillReserve();
  void ReportDropped(const sockaddr_storage& from);

  const Options options_;
  int port_ = 0;  // constant after Listen
  LocalUserGate users_;
  std::optional<ConnectionGate> places_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor stop_;  // an eventfd
  std::array<FileDescriptor, 8> reserve_;
  std::atomic<uint64_t> dropped_{0};  // relaxed: a count
  LimitedLog log_;
  TaskThreads reports_{1, /*max_waiting=*/64};  // the thread that accepts must not wait for a disk
  Take take_;
  std::thread thread_;  // uses all of the above
};

}  // namespace sluice
