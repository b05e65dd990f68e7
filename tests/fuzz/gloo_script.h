// The bytes of a rank over Gloo that does what the other rank of its group expects, for the fuzzer
// gloo_peers, which changes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/collective/operation_header.h"
#include "tests/common/collective/gloo_messages.h"

namespace sluice {

constexpr uint32_t kRanks = 2;  // of the group
// The longest piece of a reduction whose parts are up to twice as long (gloo_reduction.cc).
constexpr size_t kPieceFloats = 32 << 10;

// Bytes that the peer sends at once.
struct Piece {
  std::string bytes;
  // The peer first waits for one more receive that this rank posts in this slot (0: none), and for
  // so many arrays, counted from the beginning, that this rank brings.
  uint64_t receive = 0;
  size_t brought = 0;
  bool in_halves = false;
};

struct Operation {
  OperationHeader header;
  double weight_of_peer = 1;

  bool is_broadcast() const { return header.kind == OperationHeader::kBroadcast; }
  size_t bytes() const { return header.n * (is_broadcast() ? 1 : sizeof(float)); }
};

// Whole numbers that are exact in bfloat16, as are the means of two.
inline float ValueOf(bool of_peer, size_t i) {
  return static_cast<float>(of_peer ? i % 59 + 1 : i % 61);
}

inline float ReducedValue(const Operation& operation, size_t i) {
  const float own = ValueOf(false, i), other = ValueOf(true, i);
  if (operation.header.kind == OperationHeader::kWeightedMean) {
    const auto weight = static_cast<float>(operation.header.weight);
    const auto weight_of_peer = static_cast<float>(operation.weight_of_peer);
    const float total = weight + weight_of_peer;
    return total == 0 ? 0 : (weight * own + weight_of_peer * other) / total;
  }
  switch (static_cast<Collective::Op>(operation.header.op)) {
    case Collective::Op::kSum:
      return own + other;
    case Collective::Op::kAverage:
      return (own + other) / 2;
    case Collective::Op::kMin:
      return std::min(own, other);
    case Collective::Op::kMax:
      return std::max(own, other);
  }
  return 0;
}

// In wire form. `value_of(i)` gives a float.
template <class ValueOfIndex>
std::string Values(ArrayPart part, bool in_bf16, ValueOfIndex value_of) {
  std::string bytes;
  bytes.reserve(part.size() * sizeof(float));
  for (size_t i = part.begin; i < part.end; ++i) {
    const float value = value_of(i);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if (in_bf16) {
      AppendBytes(static_cast<uint16_t>(bits >> 16), &bytes);
    } else {
      AppendBytes(bits, &bytes);
    }
  }
  return bytes;
}

// All that a right peer sends for the operations of this rank.
class Script {
 public:
  explicit Script(uint32_t peer) : peer_(peer) {
    Add(GlooNotice(GlooPreamble::kReceiveReady, kGlooLastWordsSlot, sizeof(OperationHeader)));
  }
  void AddOperation(const Operation& operation);
  std::vector<Piece>* pieces() { return &pieces_; }

 private:
  void Add(std::string bytes, uint64_t receive = 0, size_t brought = 0) {
    pieces_.push_back({std::move(bytes), receive, brought, false});
  }
  void AddMessage(const OperationHeader& header, const std::string& values = "") {
    Add(GlooNotice(GlooPreamble::kReceiveReady, kGlooMessageSlot, sizeof(GlooPeers::Message)));
    Add(GlooMessage(header, values), kGlooMessageSlot);
  }
  // Receives nothing, or sends nothing, where a part is empty.
  void AddReceive(uint64_t slot, size_t bytes) {
    if (bytes > 0) Add(GlooNotice(GlooPreamble::kReceiveReady, slot, bytes));
  }
  void AddValues(uint64_t slot, const std::string& values, size_t brought = 0) {
    if (!values.empty()) Add(GlooValues(slot, values), slot, brought);
  }
  void AddReduction(const Operation& operation);

  const uint32_t peer_;
  std::vector<Piece> pieces_;
  size_t brought_ = 0;  // arrays that this rank has to bring so far
};

inline void Script::AddOperation(const Operation& operation) {
  OperationHeader header = operation.header;
  header.weight = operation.weight_of_peer;
  const size_t n = header.n;
  const auto value_of_peer = [](size_t i) { return ValueOf(true, i); };
  const ArrayPart part = PartOf(n, kRanks, peer_);
  size_t inline_bytes = n * header.wire_bytes();
  std::string values;
  switch (header.kind) {
    case OperationHeader::kBarrier:
      return AddMessage(header);
    case OperationHeader::kBroadcast:
      inline_bytes = n;
      if (header.root == peer_)
        values = Values({0, n / sizeof(float)}, /*in_bf16=*/false, value_of_peer);
      break;
    case OperationHeader::kAllGather:
      inline_bytes = PartOf(n, kRanks, 0).size() * sizeof(float);
      values = Values(part, /*in_bf16=*/false, value_of_peer);
      break;
    default:
      if (header.weight != 0) values = Values({0, n}, header.in_bf16(), value_of_peer);
  }
  if (inline_bytes <= OperationHeader::kMaxInlineBytes) return AddMessage(header, values);
  AddMessage(header);
  if (header.kind == OperationHeader::kBroadcast) {
    if (header.root != peer_) AddReceive(kGlooResultSlot, n);
    AddValues(kGlooResultSlot, values);
  } else if (header.kind == OperationHeader::kAllGather) {
    AddReceive(kGlooResultSlot, PartOf(n, kRanks, 1 - peer_).size() * sizeof(float));
    AddValues(kGlooResultSlot, values);
  } else {
    AddReduction(operation);
  }
  OperationHeader acknowledged;
  acknowledged.kind = OperationHeader::kAcknowledged;
  AddMessage(acknowledged);
}

inline void Script::AddReduction(const Operation& operation) {
  const OperationHeader& header = operation.header;
  const bool mean = header.kind == OperationHeader::kWeightedMean;
  const bool counts = !mean || header.weight != 0;
  const bool peer_counts = !mean || operation.weight_of_peer != 0;
  const size_t largest = PartOf(header.n, kRanks, 0).size();
  const size_t pieces = (largest + kPieceFloats - 1) / kPieceFloats;
  const size_t size = (largest + pieces - 1) / pieces;
  const auto piece_of = [&](uint32_t rank, size_t k) -> ArrayPart {
    const ArrayPart part = PartOf(header.n, kRanks, rank);
    const size_t begin = std::min(part.end, part.begin + k * size);
    return {begin, std::min(part.end, begin + size)};
  };
  for (size_t k = 0; k < pieces; ++k) {
    const ArrayPart piece = piece_of(1 - peer_, k), piece_of_peer = piece_of(peer_, k);
    if (counts && piece_of_peer.size() > 0) {
      AddReceive(kGlooBroughtSlot, piece_of_peer.size() * header.wire_bytes());
      ++brought_;
    }
    if (peer_counts)
      AddValues(kGlooBroughtSlot,
                Values(piece, header.in_bf16(), [](size_t i) { return ValueOf(true, i); }));
    if (header.kind == OperationHeader::kReduceScatter) continue;
    AddReceive(kGlooResultSlot, piece.size() * header.wire_bytes());
    // The result takes the place of what this rank brings for it.
    AddValues(kGlooResultSlot,
              Values(piece_of_peer, header.in_bf16(),
                     [&](size_t i) { return ReducedValue(operation, i); }),
              brought_);
  }
}

}  // namespace sluice
