#include "common/wire/frame.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/bf16.h"
#include "common/base/bounded_parse.h"
#include "common/base/instruction_sets.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "values travel as they lie in memory, so Sluice needs a little-endian machine"
#endif

namespace sluice {
namespace {

constexpr uint8_t kMagicTag = 0x0D, kHeaderTag = 0x12, kPayloadTag = 0x1A;
constexpr size_t kMaxVarintBytes = 10;
constexpr uint32_t kExponent = 0x7F800000;  // all ones: Inf or NaN

void AppendVarint(uint64_t value, std::string* to) {
  for (; value >= 0x80; value >>= 7) to->push_back(static_cast<char>(value | 0x80));
  to->push_back(static_cast<char>(value));
}

template <typename Header>
Message Encode(const Header& header, Message payload) {
  std::string head;
  const size_t header_bytes = header.ByteSizeLong();
  head.reserve(header_bytes + 32);
  // By hand, in the wire form of a protobuf message (proto/pserver.proto): the payload stays in its
  // own slices, and is not copied into a message.
  head.push_back(kMagicTag);
  head.append(reinterpret_cast<const char*>(&kFrameMagic), sizeof kFrameMagic);
  head.push_back(kHeaderTag);
  AppendVarint(header_bytes, &head);
  header.AppendToString(&head);
  const size_t payload_bytes = MessageSize(payload);
  if (payload_bytes > 0) {
    head.push_back(kPayloadTag);
    AppendVarint(payload_bytes, &head);
  }
  payload.insert(payload.begin(), Slice::FromString(std::move(head)));
  return payload;
}

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed frame: ", what));
}

uint8_t ReadByte(PayloadReader* in) {
  uint8_t byte;
  in->Copy(&byte, 1);
  return byte;
}

absl::StatusOr<uint64_t> ReadVarint(PayloadReader* in, absl::string_view of) {
  uint64_t value = 0;
  for (size_t i = 0; i < kMaxVarintBytes; ++i) {
    if (in->remaining() == 0) {
      return Bad(absl::StrCat("it ends inside the length of its ", of, ", after ", i, " bytes"));
    }
    const uint8_t byte = ReadByte(in);
    // A tenth byte can overflow. The value is then checked against the limits like any other.
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) return value;
  }
  return Bad(absl::StrCat("the length of its ", of, " has more than ", kMaxVarintBytes, " bytes"));
}

absl::Status ReadTag(PayloadReader* in, uint8_t tag, absl::string_view of) {
  if (in->remaining() == 0) return Bad(absl::StrCat("it ends before its ", of));
  const uint8_t byte = ReadByte(in);
  if (byte == tag) return absl::OkStatus();
  return Bad(absl::StrFormat("its %s must begin with 0x%02x, not 0x%02x", of, tag, byte));
}

absl::Status ReadMagic(PayloadReader* in) {
  if (in->remaining() == 0) return Bad("it is empty");
  const uint8_t first = ReadByte(in);
  if (first != kMagicTag) {
    return Bad(absl::StrFormat("first byte 0x%02x is not a frame's 0x%02x%s", first, kMagicTag,
                               first == 0x16 ? "; is the peer a TLS client?" : ""));
  }
  uint32_t magic = 0;
  // Short ones are read as far as they go, so that the message can show them.
  const size_t n = std::min(in->remaining(), sizeof magic);
  in->Copy(&magic, n);
  if (n == sizeof magic && magic == kFrameMagic) return absl::OkStatus();
  return Bad(absl::StrFormat(
      "magic 0x%08x (%d bytes) is not 0x%08x; does the peer run another protocol version?", magic,
      n, kFrameMagic));
}

// Shorter headers, which nearly all are, need no check: an empty message takes two bytes of the
// header and less than 256 of memory (FrameTest.ShortHeadersNeedNoCheck).
constexpr size_t kSmallHeaderBytes = kMaxParsedHeaderBytes / 128;

absl::Status ParseHeader(absl::string_view bytes, google::protobuf::Message* header) {
  if (bytes.size() > kSmallHeaderBytes) {
    const absl::Status parsed = ParseWithin(kMaxParsedHeaderBytes, bytes, header);
    return parsed.ok() ? parsed : Bad(absl::StrCat("its header: ", parsed.message()));
  }
  if (header->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return Bad(
      absl::StrCat("its ", bytes.size(), " header bytes do not parse as ", header->GetTypeName()));
}

template <typename Header>
absl::Status ReadHeader(PayloadReader* in, Header* header) {
  if (absl::Status s = ReadTag(in, kHeaderTag, "header"); !s.ok()) return s;
  absl::StatusOr<uint64_t> length = ReadVarint(in, "header");
  if (!length.ok()) return length.status();
  // Before the bytes are copied: a length is only a claim.
  if (*length > kMaxHeaderBytes) {
    return Bad(
        absl::StrCat("its header of ", *length, " bytes is over the limit of ", kMaxHeaderBytes));
  }
  if (*length > in->remaining()) {
    return Bad(
        absl::StrCat("its header has ", *length, " bytes, but only ", in->remaining(), " follow"));
  }
  const size_t n = *length;
  if (n == 0) return absl::OkStatus();
  size_t piece_size = 0;
  // Lent bytes are never parsed where they lie: protobuf reads some of them twice.
  const uint8_t* piece = in->lent() ? nullptr : in->Piece(n, &piece_size);
  if (piece_size == n) {
    return ParseHeader(absl::string_view(reinterpret_cast<const char*>(piece), n), header);
  }
  // The header straddles slices, or it may change while it is parsed.
  std::string whole(reinterpret_cast<const char*>(piece), piece_size);
  whole.resize(n);
  in->Copy(&whole[piece_size], n - piece_size);
  return ParseHeader(whole, header);
}

absl::Status ReadPayloadLength(PayloadReader* in) {
  if (in->remaining() == 0) return absl::OkStatus();
  if (absl::Status s = ReadTag(in, kPayloadTag, "payload"); !s.ok()) return s;
  absl::StatusOr<uint64_t> length = ReadVarint(in, "payload");
  if (!length.ok()) return length.status();
  // Exactly the rest: bytes behind the payload would belong to nobody.
  if (*length == in->remaining()) return absl::OkStatus();
  return Bad(absl::StrCat("its payload has ", *length, " bytes, but ", in->remaining(), " follow"));
}

template <typename Decoded>
absl::StatusOr<Decoded> Decode(PayloadReader message) {
  Decoded decoded;
  decoded.payload = std::move(message);
  if (absl::Status s = ReadMagic(&decoded.payload); !s.ok()) return s;
  if (absl::Status s = ReadHeader(&decoded.payload, &decoded.header); !s.ok()) return s;
  if (absl::Status s = ReadPayloadLength(&decoded.payload); !s.ok()) return s;
  return decoded;
}

// Loops over n values in wire form, at any alignment. A loop returns kExponent when a value is not
// finite, else 0. Everything is inlined so that each caller below compiles it for its own
// instruction set. The loops have no branch on a value, so that compilers can vectorize them.
#define SLUICE_LOOP inline __attribute__((always_inline)) uint32_t

SLUICE_LOOP NotFinite(uint32_t bits) { return (bits & kExponent) == kExponent ? kExponent : 0; }

SLUICE_LOOP LoadFloat(const uint8_t* from, size_t i) {
  uint32_t bits;
  std::memcpy(&bits, from + 4 * i, 4);
  return bits;
}

SLUICE_LOOP LoadBf16(const uint8_t* from, size_t i) {
  uint16_t half;
  std::memcpy(&half, from + 2 * i, 2);
  return static_cast<uint32_t>(half) << 16;
}

// With a null `to`, only checks the values.
template <typename Load>
SLUICE_LOOP Take(Load load, const uint8_t* from, size_t n, float* to) {
  uint32_t bad = 0;
  if (to == nullptr) {
    for (size_t i = 0; i < n; ++i) bad |= NotFinite(load(from, i));
    return bad;
  }
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = load(from, i);
    std::memcpy(to + i, &bits, 4);
    bad |= NotFinite(bits);
  }
  return bad;
}

SLUICE_LOOP TakeValues(const uint8_t* from, uint32_t wire_bytes, size_t n, float* to) {
  return wire_bytes == 2 ? Take([](auto... x) { return LoadBf16(x...); }, from, n, to)
                         : Take([](auto... x) { return LoadFloat(x...); }, from, n, to);
}

SLUICE_LOOP PutBf16(const float* values, size_t n, uint8_t* to) {
  for (size_t i = 0; i < n; ++i) {
    const uint16_t half = RoundToBf16(values[i]);
    std::memcpy(to + 2 * i, &half, 2);
  }
  return 0;
}

using TakeLoop = uint32_t (*)(const uint8_t* from, uint32_t wire_bytes, size_t n, float* to);

using PutLoop = uint32_t (*)(const float* values, size_t n, uint8_t* to);

uint32_t TakePortable(const uint8_t* from, uint32_t wire_bytes, size_t n, float* to) {
  return TakeValues(from, wire_bytes, n, to);
}

uint32_t PutPortable(const float* values, size_t n, uint8_t* to) { return PutBf16(values, n, to); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint32_t PutAvx2(const float* values, size_t n, uint8_t* to) {
  return PutBf16(values, n, to);
}

__attribute__((target("avx2"))) uint32_t TakeAvx2(const uint8_t* from, uint32_t wire_bytes,
                                                  size_t n, float* to) {
  return TakeValues(from, wire_bytes, n, to);
}

bool UseAvx2() { return BestInstructionSet() >= InstructionSet::kAvx2; }
TakeLoop BestTake() { return UseAvx2() ? TakeAvx2 : TakePortable; }
PutLoop BestPut() { return UseAvx2() ? PutAvx2 : PutPortable; }
#else
TakeLoop BestTake() { return TakePortable; }
PutLoop BestPut() { return PutPortable; }
#endif

#undef SLUICE_LOOP

uint32_t TakeBest(const uint8_t* from, uint32_t wire_bytes, size_t n, float* to) {
  // Once, because arrays may be as short as a row.
  static const TakeLoop best = BestTake();
  return best(from, wire_bytes, n, to);
}

}  // namespace

Message EncodeFrame(const FrameHeader& header, Message payload) {
  return Encode(header, std::move(payload));
}

Message EncodeReply(const ReplyHeader& header, Message payload) {
  return Encode(header, std::move(payload));
}

Message EncodeReplica(const ReplicaHeader& header, Message payload) {
  return Encode(header, std::move(payload));
}

void PayloadReader::RefuseLent(const char* what) const {
  if (!lent_) return;
  std::fprintf(stderr, "PayloadReader: %s of lent bytes; they may change, so copy them\n", what);
  std::abort();
}

const uint8_t* PayloadReader::Piece(size_t n, size_t* piece_size) {
  RefuseLent("Piece");
  return TakePiece(n, piece_size);
}

const uint8_t* PayloadReader::TakePiece(size_t n, size_t* piece_size) {
  n = std::min(n, left_);
  if (n == 0) {
    *piece_size = 0;
    return nullptr;
  }
  while (offset_ == message_[slice_].size()) {
    ++slice_;
    offset_ = 0;
  }
  const Slice& slice = message_[slice_];
  const uint8_t* piece = slice.data() + offset_;
  *piece_size = std::min(n, slice.size() - offset_);
  offset_ += *piece_size;
  left_ -= *piece_size;
  return piece;
}

const uint8_t* PayloadReader::Values(size_t n, size_t width, uint8_t* straddling, size_t* taken) {
  RefuseLent("Values");
  while (offset_ == message_[slice_].size()) {
    ++slice_;
    offset_ = 0;
  }
  *taken = std::min(n, (message_[slice_].size() - offset_) / width);
  size_t size;
  if (*taken > 0) return TakePiece(*taken * width, &size);
  *taken = 1;
  Copy(straddling, width);
  return straddling;
}

void PayloadReader::Copy(void* to, size_t n) {
  // The decoders check remaining() against what a header promises, so this is a mistake of the
  // caller.
  if (n > left_) {
    std::fprintf(stderr,
                 "PayloadReader: %zu bytes wanted, %zu left; the caller must check remaining()\n",
                 n, left_);
    std::abort();
  }
  uint8_t* out = static_cast<uint8_t*>(to);
  while (n > 0) {
    size_t size;
    const uint8_t* piece = TakePiece(n, &size);
    CopyOnce(out, piece, size);
    out += size;
    n -= size;
  }
}

void PayloadReader::Skip(size_t n) {
  size_t size = 1;
  for (; n > 0 && size > 0; n -= size) TakePiece(n, &size);
}

Message PayloadReader::Keep(size_t n) const {
  // Sharing keeps the whole message alive. A copy is cheaper when only a small part is kept for
  // long.
  if (!lent_ && message_bytes_ <= 2 * n + kSmallMessage) return Share(n);
  return LentMessage(Share(n)).Copy();
}

Message PayloadReader::Share(size_t n) const {
  Message shared;
  size_t offset = offset_;
  for (size_t i = slice_; n > 0; ++i, offset = 0) {
    const Slice& slice = message_[i];
    const size_t size = std::min(n, slice.size() - offset);
    if (size == 0) continue;
    shared.emplace_back(slice.data() + offset, size, slice.owner());
    n -= size;
  }
  return shared;
}

absl::StatusOr<DecodedFrame> DecodeFrame(Message message) {
  return Decode<DecodedFrame>(PayloadReader(std::move(message)));
}

absl::StatusOr<DecodedReply> DecodeReply(Message message) {
  return Decode<DecodedReply>(PayloadReader(std::move(message)));
}

absl::StatusOr<DecodedReplica> DecodeReplica(Message message) {
  return Decode<DecodedReplica>(PayloadReader(std::move(message)));
}

absl::StatusOr<DecodedFrame> DecodeLentFrame(const LentMessage& message) {
  return Decode<DecodedFrame>(PayloadReader(message));
}

absl::StatusOr<DecodedReply> DecodeLentReply(const LentMessage& message) {
  return Decode<DecodedReply>(PayloadReader(message));
}

uint16_t FloatToBf16(float value) { return RoundToBf16(value); }

// Copies pieces that stay in the first-level cache, and checks the copy: whoever lends the values
// can change them after they were read.
static bool TakeLent(PayloadReader* payload, uint32_t wire_bytes, size_t n, float* to) {
  constexpr size_t kPiece = 2048;
  uint32_t bad = 0;
  uint16_t halves[kPiece];
  while (n > 0) {
    const size_t taken = std::min(n, kPiece);
    if (wire_bytes == 2) {
      payload->Copy(halves, taken * sizeof(uint16_t));
      bad |= TakeBest(reinterpret_cast<const uint8_t*>(halves), wire_bytes, taken, to);
    } else {
      // Copied first, then checked: the peer can change the bytes after the check.
      payload->Copy(to, taken * sizeof(float));
      bad |= TakeBest(reinterpret_cast<const uint8_t*>(to), wire_bytes, taken, nullptr);
    }
    to += taken;
    n -= taken;
  }
  return bad == 0;
}

// With a null `to`, only checks the values.
static bool TakeFrom(PayloadReader* payload, uint32_t wire_bytes, size_t n, float* to) {
  const size_t width = wire_bytes == 2 ? 2 : 4;
  // Divided, not multiplied: n comes from a header, and n * width could wrap around.
  if (n > payload->remaining() / width) return false;
  if (payload->lent() && to != nullptr) return TakeLent(payload, wire_bytes, n, to);
  uint32_t bad = 0;
  uint8_t straddling[4];
  while (n > 0) {
    size_t taken;
    const uint8_t* values = payload->Values(n, width, straddling, &taken);
    bad |= TakeBest(values, wire_bytes, taken, to);
    if (to != nullptr) to += taken;
    n -= taken;
  }
  return bad == 0;
}

bool ReadValues(PayloadReader* payload, uint32_t wire_bytes, size_t n, float* to) {
  return TakeFrom(payload, wire_bytes, n, to);
}

bool CheckValues(PayloadReader* payload, uint32_t wire_bytes, size_t n) {
  return TakeFrom(payload, wire_bytes, n, nullptr);
}

bool AllFinite(const float* values, size_t n) {
  return TakeBest(reinterpret_cast<const uint8_t*>(values), sizeof(float), n, nullptr) == 0;
}

void WriteBf16(const float* values, size_t n, uint8_t* to) {
  static const PutLoop best = BestPut();
  best(values, n, to);
}

Slice ValuesSlice(const float* values, size_t n, uint32_t wire_bytes,
                  std::shared_ptr<const void> owner) {
  if (wire_bytes != 2) return Slice(values, n * sizeof(float), std::move(owner));
  std::shared_ptr<uint16_t> halves(new uint16_t[n], std::default_delete<uint16_t[]>());
  WriteBf16(values, n, reinterpret_cast<uint8_t*>(halves.get()));
  const uint16_t* const to = halves.get();
  return Slice(to, n * sizeof(uint16_t), std::move(halves));
}

}  // namespace sluice
