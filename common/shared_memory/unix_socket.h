// A local socket over which processes of one host and one user hand each other descriptors.
//
// Names are abstract: they belong to the network namespace and end with their socket, so that
// nothing is left in a file system. Processes in another network namespace, such as another
// container, cannot reach them.
//
// A connection also shows that its peer lives: it is readable, and Receive returns UNAVAILABLE,
// once the peer's process has ended, however it ended.
//
// Thread safety: one thread; close of one end and use of the other are independent.
//
// Source: unix(7) (SCM_RIGHTS, SO_PEERCRED), SOCK_SEQPACKET: packets keep their borders.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/shared_memory/file_descriptor.h"

namespace sluice {

class UnixConnection {
 public:
  struct Packet {
    std::string bytes;
    std::vector<FileDescriptor> descriptors;
  };
  static constexpr size_t kMaxPacketBytes = 4096;
  static constexpr size_t kMaxDescriptors = 8;

  // NOT_FOUND: nobody listens under this name in this network namespace. PERMISSION_DENIED: a
  // process of another user does (root is trusted).
  static absl::StatusOr<UnixConnection> Connect(const std::string& name);

  UnixConnection() = default;

  // Never waits. RESOURCE_EXHAUSTED: the peer does not read. UNAVAILABLE: it is gone.
  // REQUIRES: at most kMaxPacketBytes, at least one, and at most kMaxDescriptors.
  absl::Status Send(const std::string& bytes, const std::vector<int>& descriptors = {});
  // Waits for a packet. DEADLINE_EXCEEDED: none came. UNAVAILABLE: the peer is gone.
  // INVALID_ARGUMENT: it was longer, or had more descriptors, than allowed.
  absl::StatusOr<Packet> Receive(absl::Duration timeout);

  int fd() const { return fd_.get(); }  // for poll
  explicit operator bool() const { return static_cast<bool>(fd_); }

 private:
  friend class UnixListener;
  explicit UnixConnection(FileDescriptor fd) : fd_(std::move(fd)) {}

  FileDescriptor fd_;
};

class UnixListener {
 public:
  // Listens under a name of at most 100 bytes. ALREADY_EXISTS: it is taken.
  static absl::StatusOr<UnixListener> Listen(const std::string& name);

  UnixListener() = default;

  // Takes a waiting connection. UNAVAILABLE: there is none. PERMISSION_DENIED: a process of another
  // user connected, and has been turned away.
  absl::StatusOr<UnixConnection> Accept();

  int fd() const { return fd_.get(); }  // for poll: readable when a connection waits

 private:
  FileDescriptor fd_;
};

}  // namespace sluice
