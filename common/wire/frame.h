// Encodes and decodes the data plane's messages without copying their values.
//
// Format: proto/pserver.proto; proto/replica.proto has the same frames with another header.
//
// Thread safety: free functions, safe from any thread. A PayloadReader belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/lent_message.h"
#include "common/base/slice.h"
#include "proto/pserver.pb.h"
#include "proto/replica.pb.h"

namespace sluice {

inline constexpr uint32_t kFrameMagic = 0x31554C53;  // "SLU1"
inline constexpr uint32_t kDataProtocol = 1;
inline constexpr size_t kChunkBytes = 1 << 20;
inline constexpr size_t kMaxHeaderBytes = 1 << 20;
// Memory that a parsed header may take. A header of many empty parts would take 40 times its bytes.
inline constexpr size_t kMaxParsedHeaderBytes = 32 << 20;

// Puts the magic and the header in front of the payload, whose slices are shared, not copied.
Message EncodeFrame(const FrameHeader& header, Message payload);
Message EncodeReply(const ReplyHeader& header, Message payload);
Message EncodeReplica(const ReplicaHeader& header, Message payload);

// Reads bytes in order across slices of any size and alignment, without copying the message.
//
// A reader of a LentMessage reads no byte twice, and copies what is kept. It and its copies must
// not outlive the call that lent the message.
class PayloadReader {
 public:
  PayloadReader() = default;
  explicit PayloadReader(Message message)
      : message_(std::move(message)),
        message_bytes_(MessageSize(message_)),
        left_(message_bytes_) {}
  explicit PayloadReader(const LentMessage& lent) : PayloadReader(lent.slices()) { lent_ = true; }

  bool lent() const { return lent_; }
  size_t remaining() const { return left_; }
  // All bytes of the message, which it keeps in memory.
  size_t message_bytes() const { return message_bytes_; }
  // Copies the next n bytes to `to`.
  // REQUIRES: n <= remaining().
  void Copy(void* to, size_t n);
  // Skips n bytes, or all that remain when they are fewer.
  void Skip(size_t n);
  // Returns the next n bytes for somebody who keeps them for longer, and does not consume them.
  // They are shared if they are most of the message, and otherwise copied, because any slice may
  // keep the whole message in memory: at most 2 n bytes and kSmallMessage stay. Lent bytes are
  // always copied. Whoever also reads them reads the result, because they may have changed.
  // REQUIRES: n <= remaining().
  Message Keep(size_t n) const;
  static constexpr size_t kSmallMessage = 4096;
  // Takes the next bytes that lie in one piece: at most n, and at least 1 unless n or remaining()
  // is 0.
  // REQUIRES: !lent().
  const uint8_t* Piece(size_t n, size_t* piece_size);
  // Takes the next values of `width` bytes (at most 8) where they lie, at any address. *taken is
  // how many: at most n, at least 1. A value that straddles slices is put together in `straddling`.
  // REQUIRES: 0 < n * width <= remaining(), and !lent().
  const uint8_t* Values(size_t n, size_t width, uint8_t* straddling, size_t* taken);

 private:
  const uint8_t* TakePiece(size_t n, size_t* piece_size);
  void RefuseLent(const char* what) const;
  Message Share(size_t n) const;

  Message message_;
  bool lent_ = false;
  size_t message_bytes_ = 0;
  size_t slice_ = 0, offset_ = 0, left_ = 0;
};

struct DecodedFrame {
  FrameHeader header;
  PayloadReader payload;
};
struct DecodedReply {
  ReplyHeader header;
  PayloadReader payload;
};
struct DecodedReplica {
  ReplicaHeader header;
  PayloadReader payload;
};

// INVALID_ARGUMENT says which bytes are wrong ("first byte 0x16 is not a frame's 0x0d; is the peer
// a TLS client?").
absl::StatusOr<DecodedFrame> DecodeFrame(Message message);
absl::StatusOr<DecodedReply> DecodeReply(Message message);
absl::StatusOr<DecodedReplica> DecodeReplica(Message message);
// The header is copied before it is parsed; the payload is lent.
absl::StatusOr<DecodedFrame> DecodeLentFrame(const LentMessage& message);
absl::StatusOr<DecodedReply> DecodeLentReply(const LentMessage& message);

// Rounds to the nearest bfloat16, ties to even. NaN stays NaN.
uint16_t FloatToBf16(float value);
inline float Bf16ToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, 4);
  return value;
}

// Reads n values of 4 or 2 bytes each into floats. Returns false when one of them is not finite;
// all n are consumed then. Also returns false when fewer than n remain; nothing is consumed then.
// Lent values are copied first and checked then.
bool ReadValues(PayloadReader* payload, uint32_t wire_bytes, size_t n, float* to);
// The same, without keeping the values.
// REQUIRES: !payload->lent().
bool CheckValues(PayloadReader* payload, uint32_t wire_bytes, size_t n);
// Write n values in wire form, 4 or 2 bytes each, to `to` at any alignment.
void WriteBf16(const float* values, size_t n, uint8_t* to);
inline void WriteValues(const float* values, size_t n, uint32_t wire_bytes, uint8_t* to) {
  if (wire_bytes == 2) {
    WriteBf16(values, n, to);
  } else if (n > 0) {  // memcpy takes no null pointer, and no values may have none
    __builtin_memcpy(to, values, n * sizeof(float));
  }
}
bool AllFinite(const float* values, size_t n);
// A slice of n values in wire form. With wire_bytes 4 it shares `values`, which `owner` keeps
// alive; with 2 it holds converted copies.
Slice ValuesSlice(const float* values, size_t n, uint32_t wire_bytes,
                  std::shared_ptr<const void> owner);

}  // namespace sluice
