#include "common/shm_transport/shm_link.h"

#include <sys/socket.h>

#include "absl/strings/str_cat.h"

namespace sluice {

void SendPacket(int socket, PacketKind kind, const std::string& rest) {
  const std::string packet = static_cast<char>(kind) + rest;
  send(socket, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void SendEnd(int socket, const absl::Status& why) {
  SendPacket(
      socket, PacketKind::kEnd,
      absl::StrCat(std::string(1, static_cast<char>(why.code())), why.message().substr(0, 1024)));
}

absl::Status StatusOfEnd(const std::string& packet) {
  const int code = packet.size() > 1 ? static_cast<uint8_t>(packet[1]) : 0;
  if (code < 1 || code > static_cast<int>(absl::StatusCode::kUnauthenticated))
    return absl::DataLossError("the server ended the stream with a code that does not exist");
  return absl::Status(static_cast<absl::StatusCode>(code), packet.substr(2));
}

}  // namespace sluice
