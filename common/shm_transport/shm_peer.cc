#include "common/shm_transport/shm_peer.h"

#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/shm_transport/shm_link.h"

namespace sluice {
namespace {

constexpr int kPacketsATurn = 16;

// "process 1234", as far as this process's namespace shows its number.
std::string ProcessAt(int socket) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0)
    return "the peer's process";
  return absl::StrCat("process ", peer.pid);
}

}  // namespace

ShmPeer::Heard ShmPeer::Read(Time now) {
  char packet[2048];
  Heard heard;
  heard.any = gone_;
  // A peer that floods the socket must not keep the thread from its other streams.
  for (int i = 0; i < kPacketsATurn && !gone_; ++i) {
    const ssize_t n = recv(socket_, packet, sizeof(packet), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    heard.any = true;
    // A peer that leaves packets unread resets the connection; what it sent before follows.
    if (n < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (n <= 0) {
      gone_ = true;
      break;
    }
    // Any packet proves that the peer runs, so that a busy stream needs no pings.
    heard_ = now;
    waits_for_pong_ = false;
    heard.end.Update(Take(packet, static_cast<size_t>(n)));
  }
  return heard;
}

absl::Status ShmPeer::Take(const char* packet, size_t bytes) {
  const auto kind = static_cast<PacketKind>(packet[0]);
  if (kind == PacketKind::kPing) {
    SendPacket(socket_, PacketKind::kPong);
  } else if (kind == PacketKind::kEnd && role_ == Role::kServer) {
    return StatusOfEnd(std::string(packet, bytes));
  } else if (kind != PacketKind::kWake && kind != PacketKind::kPong) {
    return absl::DataLossError("the peer sent a packet of an unknown kind");
  }
  return absl::OkStatus();
}

absl::Status ShmPeer::CheckAlive(Time now) {
  const absl::Duration silent = absl::FromChrono(now - heard_);
  if (waits_for_pong_) {
    if (absl::FromChrono(now - pinged_) <= keepalive_timeout_) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        ProcessAt(socket_), ", at the other end of the shared memory, has not answered for ",
        absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(1))),
        "; if it is stopped, continue or end it"));
  }
  if (silent > keepalive_time_) {
    waits_for_pong_ = true;
    pinged_ = now;
    SendPacket(socket_, PacketKind::kPing);
  }
  return absl::OkStatus();
}

}  // namespace sluice
