#include "common/shm_transport/shm_handshake.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "proto/pserver.pb.h"

namespace sluice {
namespace {

constexpr char kAccepted = 'k', kRefused = 'e';

bool IsRingSize(uint64_t bytes) {
  return bytes >= kMinRingBytes && bytes <= kMaxRingBytes && (bytes & (bytes - 1)) == 0;
}

absl::Status CheckAnswer(const std::string& answer) {
  if (answer == std::string(1, kAccepted)) return absl::OkStatus();
  const int code = answer.size() > 1 && answer[0] == kRefused ? static_cast<uint8_t>(answer[1]) : 0;
  if (code < 1 || code > static_cast<int>(absl::StatusCode::kUnauthenticated))
    return absl::DataLossError("the pserver answered something else than yes or no");
  return absl::Status(static_cast<absl::StatusCode>(code), answer.substr(2));
}

// The server answered over gRPC, so that it is not one that cannot be reached.
absl::Status AtSocket(const absl::Status& status) {
  const bool gone = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  return absl::Status(gone ? absl::StatusCode::kAborted : status.code(), status.message());
}

absl::StatusOr<ShmLink> TryOnce(Transport* control, const PserverAddress& to,
                                const std::string& request, absl::Duration timeout) {
  SLUICE_ASSIGN_OR_RETURN(const std::string answer,
                          control->Call(to, kOpenSharedMemoryMethod, request, timeout));
  OpenSharedMemoryReply reply;
  // The size decides how much memory this process maps, so it is checked before anything is made of
  // it.
  if (!reply.ParseFromString(answer) || !IsRingSize(reply.ring_bytes())) {
    return absl::DataLossError(absl::StrCat(to.address,
                                            " offers shared memory of an impossible size (",
                                            reply.ring_bytes(), " bytes a ring)"));
  }
  absl::StatusOr<UnixConnection> socket = UnixConnection::Connect(reply.socket());
  if (!socket.ok()) return AtSocket(socket.status());
  ShmLink link;
  link.ring_bytes = reply.ring_bytes();
  SLUICE_ASSIGN_OR_RETURN(
      link.memory, SealedMemory::Create("sluice-stream", ShmLink::MemoryBytes(link.ring_bytes)));
  ShmHello hello;
  hello.ring_bytes = link.ring_bytes;
  std::string packet(sizeof(hello), '\0');
  std::memcpy(&packet[0], &hello, sizeof(hello));
  packet += reply.token();
  if (absl::Status s = socket->Send(packet, {link.memory.fd()}); !s.ok()) return AtSocket(s);
  absl::StatusOr<UnixConnection::Packet> said = socket->Receive(timeout);
  if (!said.ok()) return AtSocket(said.status());
  SLUICE_RETURN_IF_ERROR(CheckAnswer(said->bytes));
  link.socket = *std::move(socket);
  return link;
}

}  // namespace

absl::StatusOr<ShmLink> OpenShmLink(Transport* control, const PserverAddress& to,
                                    const std::string& boot_id, absl::Duration timeout) {
  OpenSharedMemoryRequest request;
  request.set_protocol(kShmProtocol);
  request.set_boot_id(boot_id);
  const std::string bytes = request.SerializeAsString();
  absl::StatusOr<ShmLink> link = TryOnce(control, to, bytes, timeout);
  // A pserver that died after its answer looks as if its socket were in another namespace. The
  // second call tells the two apart, and finds its successor.
  if (absl::IsNotFound(link.status()) || absl::IsAborted(link.status()))
    link = TryOnce(control, to, bytes, timeout);
  return link;
}

absl::StatusOr<ShmLink> ReadHello(UnixConnection::Packet packet, size_t ring_bytes,
                                  std::string* token) {
  ShmHello hello;
  if (packet.bytes.size() < sizeof(hello))
    return absl::InvalidArgumentError("the first packet is too short for a hello");
  std::memcpy(&hello, packet.bytes.data(), sizeof(hello));
  if (hello.magic != ShmHello::kMagic)
    return absl::InvalidArgumentError("the first packet is not a hello");
  // The token is a secret that the server handed out over gRPC: it ties the socket to the
  // certificate of that call.
  *token = packet.bytes.substr(sizeof(hello));
  if (hello.protocol != kShmProtocol || hello.ring_bytes != ring_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the hello is for protocol ", hello.protocol, " and rings of ",
                     hello.ring_bytes, " bytes, not ", kShmProtocol, " and ", ring_bytes));
  }
  if (packet.descriptors.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the hello has ", packet.descriptors.size(), " descriptors, not 1"));
  }
  ShmLink link;
  link.ring_bytes = ring_bytes;
  // Map refuses memory that is not sealed: a client could shrink it later, and this process would
  // die of SIGBUS.
  SLUICE_ASSIGN_OR_RETURN(link.memory, SealedMemory::Map(std::move(packet.descriptors[0]),
                                                         ShmLink::MemoryBytes(ring_bytes)));
  return link;
}

absl::Status AcceptHello(UnixConnection* socket) { return socket->Send(std::string(1, kAccepted)); }

void RefuseHello(UnixConnection* socket, const absl::Status& why) {
  socket
      ->Send(absl::StrCat(std::string(1, kRefused), std::string(1, static_cast<char>(why.code())),
                          why.message().substr(0, 1024)))
      .IgnoreError();
}

}  // namespace sluice
