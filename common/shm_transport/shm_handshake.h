// How a worker and a pserver of one host agree to share memory.
//
//   worker                                  pserver
//   OpenSharedMemory over gRPC  ----------> checks role and boot id
//                     <---------- name of a local socket, token, size of a ring
//   connects to the socket; each end checks that the other's process is of its own user, or root
//   ShmHello and a sealed memfd ----------> checks token, seals and size
//                     <---------- k: accepted, or e, code and why
//
// After `k` the socket belongs to the stream (shm_link.h).
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/shm_transport/shm_link.h"
#include "common/transport/transport.h"

namespace sluice {

inline constexpr char kOpenSharedMemoryMethod[] = "/sluice.Pserver/OpenSharedMemory";
inline constexpr uint32_t kShmProtocol = 1;
// The longest OpenSharedMemoryRequest that is accepted. It has a number and a name of 36 bytes.
inline constexpr size_t kMaxInvitationRequestBytes = 1024;

// The first packet of a client, in the machine's byte order. The token follows.
struct ShmHello {
  static constexpr uint32_t kMagic = 0x4d534c53;  // "SLSM"
  uint32_t magic = kMagic;
  uint32_t protocol = kShmProtocol;
  uint64_t ring_bytes = 0;
};
static_assert(sizeof(ShmHello) == 16, "both processes must agree on the layout");

// The client's side. `control` makes the call.
// UNAVAILABLE: the pserver cannot be reached. Every other error says why the two cannot share
// memory now; those of the call have its code.
absl::StatusOr<ShmLink> OpenShmLink(Transport* control, const PserverAddress& to,
                                    const std::string& boot_id, absl::Duration timeout);

// The server's side: maps the memory of the first packet. `token` is set when the packet has one.
// The link has no socket yet.
// INVALID_ARGUMENT: it is not what a client sends, or not for rings of `ring_bytes`.
absl::StatusOr<ShmLink> ReadHello(UnixConnection::Packet packet, size_t ring_bytes,
                                  std::string* token);
// Answers the hello.
absl::Status AcceptHello(UnixConnection* socket);
void RefuseHello(UnixConnection* socket, const absl::Status& why);

}  // namespace sluice
