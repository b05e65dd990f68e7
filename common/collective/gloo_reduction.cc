#include "common/collective/gloo_reduction.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/collective/reduce_loops.h"

namespace sluice {
namespace {

// Bounds of the longest piece, which is half of a part if that is within them. Each piece costs a
// few system calls and wake-ups. Over loopback, quarters of at most 256 Ki floats were slower for
// some sizes, and faster for none (bench/results/2026-11-27-collective.md).
constexpr size_t kMinGlooPieceFloats = 32 << 10, kMaxGlooPieceFloats = 1 << 20;
size_t MostPieceFloats(size_t largest_part) {
  return std::clamp((largest_part + 1) / 2, kMinGlooPieceFloats, kMaxGlooPieceFloats);
}
// Pieces are about equal, so they may be half as long as the longest. That was measured to be
// faster than long pieces with a short one at the end (docs/scaling.md).
size_t PieceFloats(size_t largest_part) {
  const size_t most = MostPieceFloats(largest_part);
  const size_t pieces = std::max<size_t>(1, (largest_part + most - 1) / most);
  return std::max<size_t>(1, (largest_part + pieces - 1) / pieces);
}
// Pieces of each rank for which there is room before they are reduced.
constexpr uint64_t kPiecesAhead = 2;

// No part is larger.
size_t LargestPart(size_t n, uint32_t ranks) { return PartOf(n, ranks, 0).size(); }

}  // namespace

GlooReduction::GlooReduction(GlooPeers* peers, absl::Span<const OperationHeader> headers,
                             absl::Span<float> values, Scratch* scratch)
    : peers_(peers),
      header_(headers[peers->self()]),
      values_(values),
      width_(header_.wire_bytes()),
      all_(header_.kind != OperationHeader::kReduceScatter),
      piece_(PieceFloats(LargestPart(values.size(), peers->ranks()))),
      pieces_((LargestPart(values.size(), peers->ranks()) + piece_ - 1) / piece_),
      reduction_(headers, peers->self()),
      sent_(peers->ranks()),
      inputs_(peers->ranks()) {
  const size_t n = values.size(), room = peers->ranks() * kPiecesAhead * piece_ * width_;
  // Kept between operations: pages that are touched for the first time cost more than their copy.
  scratch->brought.resize(std::max(scratch->brought.size(), room));
  brought_ = scratch->brought.data();
  if (header_.in_bf16()) scratch->halves.resize(std::max(scratch->halves.size(), n));
  wire_ = header_.in_bf16() ? reinterpret_cast<uint8_t*>(scratch->halves.data())
                            : reinterpret_cast<uint8_t*>(values.data());
  array_region_ = peers->MakeRegion(wire_, n * width_);
  brought_region_ = peers->MakeRegion(brought_, scratch->brought.size());
}

absl::Status GlooReduction::Run() {
  for (uint64_t k = 0; k < std::min(pieces_, kPiecesAhead); ++k)
    SLUICE_RETURN_IF_ERROR(ExpectBrought(k));
  // A result can arrive only after this rank has sent the values that it overwrites.
  if (all_) SLUICE_RETURN_IF_ERROR(ExpectResults());
  for (uint64_t k = 0; k <= pieces_; ++k) {
    if (k < pieces_) SLUICE_RETURN_IF_ERROR(TakeTurns(GlooPeers::kBrought, k));
    if (k == 0) continue;
    SLUICE_RETURN_IF_ERROR(ReduceThrough(k - 1));  // unless it was during a turn
    if (all_) SLUICE_RETURN_IF_ERROR(TakeTurns(GlooPeers::kResult, k - 1));
  }
  SLUICE_RETURN_IF_ERROR(FinishTurn());
  return End();
}

absl::Status GlooReduction::ExpectBrought(uint64_t k) {
  return peers_->ForOthers([&](uint32_t rank) {
    const size_t size = reduction_.Counts(rank) ? PieceOf(peers_->self(), k).size() : 0;
    const size_t begin = RoomOf(rank, k);
    return Receive(brought_region_.get(), rank, GlooPeers::kBrought, {begin, begin + size});
  });
}

absl::Status GlooReduction::ExpectResults() {
  for (uint64_t k = 0; k < pieces_; ++k) {
    SLUICE_RETURN_IF_ERROR(peers_->ForOthers([&](uint32_t rank) {
      return Receive(array_region_.get(), rank, GlooPeers::kResult, PieceOf(rank, k));
    }));
  }
  return absl::OkStatus();
}

absl::Status GlooReduction::TakeTurns(uint64_t slot, uint64_t k) {
  for (uint32_t distance = 1; distance < peers_->ranks(); ++distance) {
    const Turn turn{slot, k, distance};
    SLUICE_RETURN_IF_ERROR(SendIn(turn));
    SLUICE_RETURN_IF_ERROR(FinishTurn());
    // While this rank's piece travels, it reduces what the turns before have brought.
    if (slot == GlooPeers::kBrought && k > 0) SLUICE_RETURN_IF_ERROR(ReduceThrough(k - 1));
    turn_ = turn;
    // Two ranks share their links with nobody, and begin the next turn meanwhile.
    if (peers_->ranks() > 2) SLUICE_RETURN_IF_ERROR(FinishTurn());
  }
  return absl::OkStatus();
}

absl::Status GlooReduction::SendIn(const Turn& turn) {
  const uint32_t self = peers_->self(), to = (self + turn.distance) % peers_->ranks();
  if (turn.slot == GlooPeers::kResult) return Send(to, turn.slot, PieceOf(self, turn.k));
  if (!reduction_.Counts(self)) return absl::OkStatus();
  const ArrayPart piece = PieceOf(to, turn.k);
  float* const own = values_.data() + piece.begin;
  if (header_.in_bf16()) {
    RankReduction::Bring(header_, own, wire_ + piece.begin * width_, piece.size());
  } else if (header_.kind == OperationHeader::kWeightedMean) {
    // In place: the array's old values are not needed, since results replace them.
    BestReduceLoops().multiply(static_cast<float>(header_.weight), own, piece.size());
  }
  return Send(to, turn.slot, piece);
}

absl::Status GlooReduction::FinishTurn() {
  const auto [slot, k, distance] = std::exchange(turn_, Turn());
  if (distance == 0) return absl::OkStatus();
  const uint32_t self = peers_->self(), ranks = peers_->ranks();
  const uint32_t from = (self + ranks - distance) % ranks;
  if (slot == GlooPeers::kBrought) {
    return reduction_.Counts(from) && PieceOf(self, k).size() > 0
               ? peers_->AwaitReceived(brought_region_.get(), from)
               : absl::OkStatus();
  }
  const ArrayPart piece = PieceOf(from, k);
  if (piece.size() == 0) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(peers_->AwaitReceived(array_region_.get(), from));
  if (header_.in_bf16()) {
    RankReduction::Take(header_, wire_ + piece.begin * width_, values_.data() + piece.begin,
                        piece.size());
  }
  return absl::OkStatus();
}

absl::Status GlooReduction::ReduceThrough(uint64_t k) {
  if (reduced_ > k) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(FinishTurn());
  for (; reduced_ <= k; ++reduced_) SLUICE_RETURN_IF_ERROR(ReduceOwn(reduced_));
  return absl::OkStatus();
}

absl::Status GlooReduction::ReduceOwn(uint64_t k) {
  const uint32_t self = peers_->self();
  const ArrayPart piece = PieceOf(self, k);
  if (piece.size() == 0) return absl::OkStatus();
  // In the order of the ranks, whatever the order in which pieces have arrived: the same bits as in
  // shm.
  for (uint32_t rank = 0; rank < inputs_.size(); ++rank)
    inputs_[rank] = brought_ + RoomOf(rank, k) * width_;
  float* const own = values_.data() + piece.begin;
  inputs_[self] = own;
  uint8_t* const copy = header_.in_bf16() ? wire_ + piece.begin * width_ : nullptr;
  reduction_.Reduce(inputs_, own, copy, piece.size());
  // The room of the piece is free now.
  return k + kPiecesAhead < pieces_ ? ExpectBrought(k + kPiecesAhead) : absl::OkStatus();
}

absl::Status GlooReduction::End() {
  SLUICE_RETURN_IF_ERROR(peers_->ForOthers([&](uint32_t rank) -> absl::Status {
    for (; sent_[rank] > 0; --sent_[rank])
      SLUICE_RETURN_IF_ERROR(peers_->AwaitSent(array_region_.get(), rank));
    return absl::OkStatus();
  }));
  return peers_->Acknowledge();
}

ArrayPart GlooReduction::PieceOf(uint32_t rank, uint64_t k) const {
  const ArrayPart part = PartOf(values_.size(), peers_->ranks(), rank);
  const size_t begin = std::min(part.end, part.begin + k * piece_);
  return {begin, std::min(part.end, begin + piece_)};
}

size_t GlooReduction::RoomOf(uint32_t rank, uint64_t k) const {
  return (rank * kPiecesAhead + k % kPiecesAhead) * piece_;
}

absl::Status GlooReduction::Send(uint32_t rank, uint64_t slot, ArrayPart piece) {
  if (piece.size() == 0) return absl::OkStatus();
  ++sent_[rank];
  return peers_->Send(array_region_.get(), rank, slot, piece.begin * width_, piece.size() * width_);
}

absl::Status GlooReduction::Receive(GlooPeers::Region* to, uint32_t rank, uint64_t slot,
                                    ArrayPart piece) {
  if (piece.size() == 0) return absl::OkStatus();
  return peers_->Receive(to, rank, slot, piece.begin * width_, piece.size() * width_);
}

}  // namespace sluice
