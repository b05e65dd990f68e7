#include "common/collective/gloo_engine.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/collective/gloo_peers.h"
#include "common/collective/rank_reduction.h"
#include "common/collective/reduce_loops.h"
#include "common/collective/sigpipe_block.h"

namespace sluice {
namespace {

// Bounds of a piece, which is reduced while others travel: a quarter of a part, if within them.
// Each piece costs a few system calls and wake-ups.
constexpr size_t kMinPieceFloats = 32 << 10, kMaxPieceFloats = 256 << 10;
size_t PieceFloats(size_t largest_part) {
  return std::clamp((largest_part + 3) / 4, kMinPieceFloats, kMaxPieceFloats);
}
// Pieces of each rank for which there is room before they are reduced.
constexpr uint64_t kPiecesAhead = 4;

// Kinds of values.
constexpr uint64_t kBrought = 1, kResult = 2;

class GlooEngine : public CollectiveEngine {
 public:
  explicit GlooEngine(const CollectiveOptions& options) : peers_(options) {}

  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override {
    SLUICE_ASSIGN_OR_RETURN(const CollectiveCard card, peers_.Listen(generation, self, ranks));
    return card.SerializeAsString();
  }

  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    const std::vector<uint32_t>& members) override {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<CollectiveCard> cards,
                            ParseCards("gloo", generation, peers, members));
    const SigpipeBlock block;
    SLUICE_RETURN_IF_ERROR(peers_.Join(cards, members));
    self_ = peers_.self();
    ranks_ = peers_.ranks();
    return absl::OkStatus();
  }

  void Leave() override { peers_.Leave(); }
  void SetTimeout(absl::Duration timeout) override {
    MutexLock turn(&turn_);
    peers_.set_timeout(timeout);
  }

  absl::Status Reduce(const OperationHeader& header, absl::Span<float> values) override;
  absl::Status AllGather(const OperationHeader& header, absl::Span<float> values) override;
  absl::Status Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) override;

  absl::Status Barrier(const OperationHeader& header) override {
    const SigpipeBlock block;
    MutexLock turn(&turn_);
    return Exchange(header, nullptr, 0);
  }

  void Abandon(const absl::Status& why) override {
    peers_.Interrupt(why);
    MutexLock turn(&turn_);
    (void)peers_.Abandon(why);
  }
  void Cancel() override { peers_.Cancel(); }
  std::string WaitingFor() const override { return peers_.WaitingFor(); }
  const char* name() const override { return "gloo"; }

 private:
  // Exchanges headers, and up to kMaxInlineBytes of values, with all ranks; fills headers_ and
  // messages_. The ranks agree when it returns OK.
  absl::Status Exchange(const OperationHeader& header, const void* values, size_t bytes);
  absl::Status ReduceInline(const OperationHeader& header, absl::Span<float> values);
  absl::Status ReducePieces(const OperationHeader& header, absl::Span<float> values);
  // The piece of rank `rank`'s part with number k.
  ArrayPart PieceOf(size_t n, uint32_t rank, uint64_t k) const {
    const ArrayPart part = PartOf(n, ranks_, rank);
    const size_t piece = PieceFloats(PartOf(n, ranks_, 0).size());
    const size_t begin = std::min(part.end, part.begin + k * piece);
    return {begin, std::min(part.end, begin + piece)};
  }
  // Elements of `width` bytes; none need no call.
  absl::Status Send(GlooPeers::Region* from, uint32_t rank, uint64_t slot, ArrayPart piece,
                    size_t width, std::vector<int>* sent);
  absl::Status Receive(GlooPeers::Region* to, uint32_t rank, uint64_t slot, ArrayPart piece,
                       size_t width);
  template <typename Call>
  absl::Status ForOthers(Call call) {
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      if (rank != self_) SLUICE_RETURN_IF_ERROR(call(rank));
    return absl::OkStatus();
  }

  // Held by the operation that runs, however long it waits: Abandon interrupts it, and takes its
  // turn when it has ended.
  Mutex turn_;
  GlooPeers peers_;
  uint32_t self_ = 0, ranks_ = 0;
  // By rank; belongs to the operation under way.
  std::vector<OperationHeader> headers_;
  std::vector<const GlooPeers::Message*> messages_;
  // Kept between operations: fresh pages are slow.
  std::vector<uint8_t> scratch_;  // what was brought
  std::vector<uint16_t> halves_;  // the array in bfloat16
};

absl::Status GlooEngine::Exchange(const OperationHeader& header, const void* values, size_t bytes) {
  SLUICE_RETURN_IF_ERROR(peers_.Begin(header));
  headers_.assign(ranks_, header);
  messages_.assign(ranks_, nullptr);
  SLUICE_RETURN_IF_ERROR(peers_.AwaitAcknowledgements());
  SLUICE_RETURN_IF_ERROR(
      ForOthers([&](uint32_t rank) { return peers_.SendMessage(rank, header, values, bytes); }));
  SLUICE_RETURN_IF_ERROR(ForOthers([&](uint32_t rank) -> absl::Status {
    SLUICE_ASSIGN_OR_RETURN(messages_[rank], peers_.ReceiveMessage(rank));
    headers_[rank] = messages_[rank]->header;
    return absl::OkStatus();
  }));
  const absl::Status agreed = CheckAgreement(headers_);
  return agreed.ok() ? agreed : peers_.Abandon(agreed);
}

absl::Status GlooEngine::Reduce(const OperationHeader& header, absl::Span<float> values) {
  const SigpipeBlock block;
  MutexLock turn(&turn_);
  return values.size() * header.wire_bytes() <= GlooPeers::kMaxInlineBytes
             ? ReduceInline(header, values)
             : ReducePieces(header, values);
}

absl::Status GlooEngine::ReduceInline(const OperationHeader& header, absl::Span<float> values) {
  const bool brings = header.kind != OperationHeader::kWeightedMean || header.weight != 0;
  const size_t bytes = values.size() * header.wire_bytes();
  scratch_.resize(std::max(scratch_.size(), bytes));
  RankReduction::Bring(header, values.data(), scratch_.data(), values.size());
  SLUICE_RETURN_IF_ERROR(Exchange(header, scratch_.data(), brings ? bytes : 0));
  std::vector<const void*> inputs(ranks_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    inputs[rank] = values.data();
    if (rank != self_) inputs[rank] = messages_[rank]->values;
  }
  RankReduction(headers_, self_).Reduce(inputs, values.data(), nullptr, values.size());
  return absl::OkStatus();
}

absl::Status GlooEngine::Send(GlooPeers::Region* from, uint32_t rank, uint64_t slot,
                              ArrayPart piece, size_t width, std::vector<int>* sent) {
  if (piece.size() == 0) return absl::OkStatus();
  ++(*sent)[rank];
  return peers_.Send(from, rank, slot, piece.begin * width, piece.size() * width);
}

absl::Status GlooEngine::Receive(GlooPeers::Region* to, uint32_t rank, uint64_t slot,
                                 ArrayPart piece, size_t width) {
  if (piece.size() == 0) return absl::OkStatus();
  return peers_.Receive(to, rank, slot, piece.begin * width, piece.size() * width);
}

absl::Status GlooEngine::ReducePieces(const OperationHeader& header, absl::Span<float> values) {
  SLUICE_RETURN_IF_ERROR(Exchange(header, nullptr, 0));
  const size_t n = values.size(), width = header.wire_bytes();
  const size_t part = PartOf(n, ranks_, 0).size();  // no part is larger
  const size_t room = PieceFloats(part);
  const uint64_t pieces = (part + room - 1) / room;
  const bool all = header.kind != OperationHeader::kReduceScatter;
  RankReduction reduction(headers_, self_);
  scratch_.resize(std::max(scratch_.size(), ranks_ * kPiecesAhead * room * width));
  if (header.in_bf16()) halves_.resize(std::max(halves_.size(), n));
  // The array as it travels: itself, or in bfloat16.
  uint8_t* const wire = header.in_bf16() ? reinterpret_cast<uint8_t*>(halves_.data())
                                         : reinterpret_cast<uint8_t*>(values.data());
  const auto array = peers_.MakeRegion(wire, n * width);
  const auto brought = peers_.MakeRegion(scratch_.data(), scratch_.size());
  std::vector<int> sent(ranks_);
  const auto place = [room](uint32_t rank, uint64_t k) {
    return (rank * kPiecesAhead + k % kPiecesAhead) * room;
  };
  const auto receive_brought = [&](uint64_t k) {
    return ForOthers([&](uint32_t rank) {
      const size_t size = reduction.Counts(rank) ? PieceOf(n, self_, k).size() : 0;
      const size_t begin = place(rank, k);
      return Receive(brought.get(), rank, kBrought, {begin, begin + size}, width);
    });
  };
  for (uint64_t k = 0; k < std::min(pieces, kPiecesAhead); ++k)
    SLUICE_RETURN_IF_ERROR(receive_brought(k));
  // A result can arrive only after this rank has sent the values that it overwrites.
  for (uint64_t k = 0; all && k < pieces; ++k) {
    SLUICE_RETURN_IF_ERROR(ForOthers([&](uint32_t rank) {
      return Receive(array.get(), rank, kResult, PieceOf(n, rank, k), width);
    }));
  }
  std::vector<const void*> inputs(ranks_);
  for (uint64_t k = 0; k <= pieces; ++k) {
    if (k < pieces && reduction.Counts(self_)) {
      SLUICE_RETURN_IF_ERROR(ForOthers([&](uint32_t rank) {
        const ArrayPart piece = PieceOf(n, rank, k);
        float* const own = values.data() + piece.begin;
        if (header.in_bf16()) {
          RankReduction::Bring(header, own, wire + piece.begin * width, piece.size());
        } else if (header.kind == OperationHeader::kWeightedMean) {
          BestReduceLoops().multiply(static_cast<float>(header.weight), own, piece.size());
        }
        return Send(array.get(), rank, kBrought, piece, width, &sent);
      }));
    }
    if (k == 0) continue;
    const ArrayPart piece = PieceOf(n, self_, k - 1);
    if (piece.size() == 0) continue;
    SLUICE_RETURN_IF_ERROR(ForOthers([&](uint32_t rank) {
      inputs[rank] = scratch_.data() + place(rank, k - 1) * width;
      return reduction.Counts(rank) ? peers_.AwaitReceived(brought.get(), rank) : absl::OkStatus();
    }));
    float* const own = values.data() + piece.begin;
    inputs[self_] = own;
    reduction.Reduce(inputs, own, header.in_bf16() ? wire + piece.begin * width : nullptr,
                     piece.size());
    if (k - 1 + kPiecesAhead < pieces)
      SLUICE_RETURN_IF_ERROR(receive_brought(k - 1 + kPiecesAhead));
    if (all) {
      SLUICE_RETURN_IF_ERROR(ForOthers(
          [&](uint32_t rank) { return Send(array.get(), rank, kResult, piece, width, &sent); }));
    }
  }
  SLUICE_RETURN_IF_ERROR(ForOthers([&](uint32_t rank) {
    for (uint64_t k = 0; all && k < pieces; ++k) {
      if (PieceOf(n, rank, k).size() > 0)
        SLUICE_RETURN_IF_ERROR(peers_.AwaitReceived(array.get(), rank));
    }
    const ArrayPart part = PartOf(n, ranks_, rank);
    if (header.in_bf16()) {
      RankReduction::Take(header, wire + part.begin * width, values.data() + part.begin,
                          part.size());
    }
    for (; sent[rank] > 0; --sent[rank])
      SLUICE_RETURN_IF_ERROR(peers_.AwaitSent(array.get(), rank));
    return absl::OkStatus();
  }));
  return peers_.Acknowledge();
}

absl::Status GlooEngine::AllGather(const OperationHeader& header, absl::Span<float> values) {
  const SigpipeBlock block;
  MutexLock turn(&turn_);
  const size_t n = values.size();
  const ArrayPart own = PartOf(n, ranks_, self_);
  if (PartOf(n, ranks_, 0).size() * sizeof(float) <= GlooPeers::kMaxInlineBytes) {
    SLUICE_RETURN_IF_ERROR(Exchange(header, values.data() + own.begin, own.size() * sizeof(float)));
    return ForOthers([&](uint32_t rank) {
      const ArrayPart part = PartOf(n, ranks_, rank);
      if (part.size() > 0) {
        std::memcpy(values.data() + part.begin, messages_[rank]->values,
                    part.size() * sizeof(float));
      }
      return absl::OkStatus();
    });
  }
  SLUICE_RETURN_IF_ERROR(Exchange(header, nullptr, 0));
  const auto array = peers_.MakeRegion(values.data(), n * sizeof(float));
  std::vector<int> sent(ranks_);
  SLUICE_RETURN_IF_ERROR(ForOthers([&](uint32_t rank) {
    return Receive(array.get(), rank, kResult, PartOf(n, ranks_, rank), sizeof(float));
  }));
  SLUICE_RETURN_IF_ERROR(ForOthers(
      [&](uint32_t rank) { return Send(array.get(), rank, kResult, own, sizeof(float), &sent); }));
  SLUICE_RETURN_IF_ERROR(ForOthers([&](uint32_t rank) {
    if (PartOf(n, ranks_, rank).size() > 0)
      SLUICE_RETURN_IF_ERROR(peers_.AwaitReceived(array.get(), rank));
    return sent[rank] > 0 ? peers_.AwaitSent(array.get(), rank) : absl::OkStatus();
  }));
  return peers_.Acknowledge();
}

absl::Status GlooEngine::Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) {
  const SigpipeBlock block;
  MutexLock turn(&turn_);
  const uint32_t root = header.root;
  const bool travels_inline = bytes.size() <= GlooPeers::kMaxInlineBytes;
  SLUICE_RETURN_IF_ERROR(
      Exchange(header, bytes.data(), travels_inline && root == self_ ? bytes.size() : 0));
  if (travels_inline) {
    if (root != self_ && !bytes.empty())
      std::memcpy(bytes.data(), messages_[root]->values, bytes.size());
    return absl::OkStatus();
  }
  const auto region = peers_.MakeRegion(bytes.data(), bytes.size());
  if (root == self_) {
    SLUICE_RETURN_IF_ERROR(ForOthers(
        [&](uint32_t rank) { return peers_.Send(region.get(), rank, kResult, 0, bytes.size()); }));
    SLUICE_RETURN_IF_ERROR(
        ForOthers([&](uint32_t rank) { return peers_.AwaitSent(region.get(), rank); }));
  } else {
    SLUICE_RETURN_IF_ERROR(peers_.Receive(region.get(), root, kResult, 0, bytes.size()));
    SLUICE_RETURN_IF_ERROR(peers_.AwaitReceived(region.get(), root));
  }
  return peers_.Acknowledge();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveEngine>> MakeGlooEngine(const CollectiveOptions& options) {
  if (options.bind_address.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the engine gloo needs an address of this host at which the others reach it",
                     options.why_no_address.empty() ? "" : ": ", options.why_no_address));
  }
  return std::make_unique<GlooEngine>(options);
}

}  // namespace sluice
