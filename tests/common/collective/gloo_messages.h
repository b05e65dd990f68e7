// Bytes that a rank sends to another one over Gloo, in the format of Gloo's TCP transport (struct
// Op of gloo/transport/tcp/pair.h), for tests that play a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/collective/gloo_peers.h"

namespace sluice {

// Comes before values, or alone when a rank is ready to send or receive some.
struct GlooPreamble {
  enum Opcode : uint64_t { kValues = 1, kSendReady, kReceiveReady };
  uint64_t bytes = sizeof(GlooPreamble), opcode = 0, slot = 0, offset = 0, length = 0, roffset = 0;
};

// GlooPeers sends messages in the first slot, values in the next ones, and last words after them.
constexpr uint64_t kGlooMessageSlot = 1, kGlooBroughtSlot = 2, kGlooResultSlot = 3,
                   kGlooLastWordsSlot = 4;
// Bytes of a message before its values.
constexpr size_t kGlooHeaderBytes = offsetof(GlooPeers::Message, values);

template <class T>
void AppendBytes(const T& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline std::string GlooNotice(GlooPreamble::Opcode opcode, uint64_t slot, size_t length) {
  GlooPreamble preamble;
  preamble.opcode = opcode;
  preamble.slot = slot;
  preamble.length = length;
  std::string bytes;
  AppendBytes(preamble, &bytes);
  return bytes;
}

// Values with the notice that Gloo sends before them.
inline std::string GlooValues(uint64_t slot, const std::string& values) {
  std::string bytes = GlooNotice(GlooPreamble::kSendReady, slot, values.size());
  GlooPreamble preamble;
  preamble.bytes += values.size();
  preamble.opcode = GlooPreamble::kValues;
  preamble.slot = slot;
  preamble.length = values.size();
  AppendBytes(preamble, &bytes);
  return bytes + values;
}

inline std::string GlooMessage(OperationHeader header, const std::string& values = "") {
  header.inline_bytes = static_cast<uint32_t>(values.size());
  std::string bytes;
  AppendBytes(header, &bytes);
  bytes.resize(kGlooHeaderBytes);
  return GlooValues(kGlooMessageSlot, bytes + values);
}

}  // namespace sluice
