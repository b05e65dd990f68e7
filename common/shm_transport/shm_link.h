// What the two ends of a stream through shared memory have in common: the memory with its two
// rings, and a local socket.
//
// Format of the memory, of MemoryBytes() bytes:
//   RingControl of the bytes to the server, RingControl of those to the client, zeros up to 4096,
//   the bytes to the server, the bytes to the client
//
// Format of a ring's bytes: frames, each a FrameHead in the machine's byte order and then as many
// bytes as it says.
//
// Format of the socket: one packet for each of these events, which begins with its letter:
//   w          wake-up: look at the rings
//   p, o       ping, and the answer to it
//   e          the end of the stream, from the server: code as a byte, then the message
//
// Wake-ups go through the socket and not through an eventfd. A daemon that writes to an eventfd of
// its peer could be made to wait, since the peer can fill it and clear its O_NONBLOCK; a send with
// MSG_DONTWAIT cannot. A wake-up costs 1 us more, and a stream needs two descriptors and not four.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/shared_memory/sealed_memory.h"
#include "common/shared_memory/unix_socket.h"
#include "common/shm_transport/byte_ring.h"

namespace sluice {

// Bounds of a ring's size, which is a power of two. The server names one, and the client checks it.
inline constexpr size_t kMinRingBytes = 4096;
inline constexpr size_t kMaxRingBytes = size_t{64} << 20;

struct FrameHead {
  enum Kind : uint32_t {
    kMessage = 1,
    kEnd = 2,  // the sender sends nothing more; no bytes follow
  };
  uint32_t kind = 0;
  uint32_t zero = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(FrameHead) == 16, "both processes must agree on the layout");

enum class PacketKind : char { kWake = 'w', kPing = 'p', kPong = 'o', kEnd = 'e' };

// Never waits. A packet that finds no room is lost, which does no harm: the peer still has wake-ups
// to read. A peer that is gone is noticed when the socket is read.
void SendPacket(int socket, PacketKind kind, const std::string& rest = "");

// Tells the client why its stream ends. `why` is not OK.
void SendEnd(int socket, const absl::Status& why);
// The status in such a packet. DATA_LOSS: its code does not exist.
absl::Status StatusOfEnd(const std::string& packet);

struct ShmLink {
  static constexpr size_t kDataOffset = 4096;
  static size_t MemoryBytes(size_t ring_bytes) { return kDataOffset + 2 * ring_bytes; }

  RingControl* control(bool to_server) const {
    return reinterpret_cast<RingControl*>(memory.data()) + (to_server ? 0 : 1);
  }
  uint8_t* data(bool to_server) const {
    return memory.data() + kDataOffset + (to_server ? 0 : ring_bytes);
  }

  SealedMemory memory;
  UnixConnection socket;
  size_t ring_bytes = 0;
};

}  // namespace sluice
