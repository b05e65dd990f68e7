// The packets of a stream's local socket, whose format is in shm_link.h.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/shm_transport/shm_link.h"

namespace sluice {

// Never waits. A packet that finds no room is lost, which does no harm: the peer still has wake-ups
// to read. A peer that is gone is noticed when the socket is read.
void SendPacket(int socket, PacketKind kind, const std::string& rest = "");

// Tells the client why its stream ends. `why` is not OK.
void SendEnd(int socket, const absl::Status& why);
// The status in such a packet. DATA_LOSS: its code does not exist.
absl::Status StatusOfEnd(const std::string& packet);

}  // namespace sluice
