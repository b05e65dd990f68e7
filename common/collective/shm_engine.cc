#include "common/collective/shm_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// Below this, two hand-overs cost more than reducing every element in every rank.
constexpr size_t kMaxWholeFloats = 4096;

// An array of few chunks is cut into this many, so that its stages overlap; but a piece is not so
// small that the hand-overs cost more than that saves, where a slot has room for larger ones.
constexpr size_t kWantedChunks = 4;
constexpr size_t kMinShmPieceFloats = 8 << 10;
constexpr size_t kPageFloats = 1024;

// A piece such that n floats make kWantedChunks of them, in whole pages.
size_t WantedPieceFloats(size_t n) {
  const size_t wanted = (n + kWantedChunks - 1) / kWantedChunks;
  const size_t whole_pages = (wanted + kPageFloats - 1) / kPageFloats * kPageFloats;
  return std::max(kMinShmPieceFloats, whole_pages);
}

// memcpy that also allows the null pointers of empty arrays.
void Copy(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

struct ShmEngine::Group {
  Group(ShmRendezvous::Group joined, uint32_t self, std::vector<uint32_t> names,
        const CollectiveOptions& options)
      : shared(std::move(joined)), board(&shared, self, std::move(names), options) {}
  ShmRendezvous::Group shared;
  ShmBoard board;
};

ShmEngine::ShmEngine(const CollectiveOptions& options) : options_(options), rendezvous_(options) {}

ShmEngine::~ShmEngine() { Leave(); }

absl::StatusOr<std::string> ShmEngine::Listen(uint64_t generation, uint32_t self, uint32_t ranks) {
  {
    MutexLock lock(&mutex_);
    cancelled_ = false;
  }
  rank_ = self;
  SLUICE_ASSIGN_OR_RETURN(const CollectiveCard card, rendezvous_.Listen(generation, self, ranks));
  return card.SerializeAsString();
}

absl::Status ShmEngine::Join(uint64_t generation, const std::vector<std::string>& peers,
                             const std::vector<uint32_t>& members) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<CollectiveCard> cards,
                          ParseCards("shm", generation, peers, members));
  SLUICE_ASSIGN_OR_RETURN(ShmRendezvous::Group joined, rendezvous_.Join(cards));
  auto group =
      std::make_shared<Group>(std::move(joined), PlaceIn(members, rank_), members, options_);
  // The board of the earlier group counted its own chunks; a new board begins at 0.
  self_ = PlaceIn(members, rank_);
  ranks_ = static_cast<uint32_t>(members.size());
  done_ = 0;
  MutexLock lock(&mutex_);
  // A Cancel that came while this rank joined found no board to cancel.
  if (cancelled_) return absl::CancelledError("joining the group was cancelled");
  group_ = std::move(group);
  return absl::OkStatus();
}

void ShmEngine::Leave() {
  rendezvous_.Leave();
  // Destroyed after the lock is released: unmapping the memory takes long, and Cancel must not wait
  // for it.
  std::shared_ptr<Group> group;
  MutexLock lock(&mutex_);
  group.swap(group_);
}

void ShmEngine::SetTimeout(absl::Duration timeout) {
  if (group_ != nullptr) group_->board.set_timeout(timeout);
}

void ShmEngine::Abandon(const absl::Status& why) {
  const std::shared_ptr<Group> group = CurrentGroup();
  if (group != nullptr) group->board.Abandon(FaultOf(why, rank_));
}

void ShmEngine::Cancel() {
  rendezvous_.Cancel();
  std::shared_ptr<Group> group;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    group = group_;
  }
  if (group != nullptr) group->board.Cancel();
}

std::shared_ptr<ShmEngine::Group> ShmEngine::CurrentGroup() const {
  MutexLock lock(&mutex_);
  return group_;
}

std::string ShmEngine::WaitingFor() const {
  const std::shared_ptr<Group> group = CurrentGroup();
  return group == nullptr ? "" : group->board.waiting_for();
}

size_t ShmEngine::PieceFloats(size_t n) const {
  // Every rank must compute the same piece: it depends on n, the layout and the number of ranks
  // alone.
  const size_t largest_part = PartOf(n, ranks_, 0).size();
  return std::min(group_->shared.layout.piece_floats(), WantedPieceFloats(largest_part));
}

uint64_t ShmEngine::ChunksOf(size_t n) const {
  const size_t piece = PieceFloats(n);
  // An empty array has a chunk, too: its header must still be compared.
  return std::max<uint64_t>(1, (PartOf(n, ranks_, 0).size() + piece - 1) / piece);
}

ArrayPart ShmEngine::PieceOf(size_t n, uint32_t rank, uint64_t chunk) const {
  const ArrayPart part = PartOf(n, ranks_, rank);
  const size_t piece = PieceFloats(n);
  // The parts at the end may be shorter than the first, so their last pieces may be empty.
  const size_t begin = std::min(part.end, part.begin + chunk * piece);
  return {begin, std::min(part.end, begin + piece)};
}

void* ShmEngine::Shared(uint64_t chunk, uint32_t from, uint32_t of) const {
  const ShmRendezvous::Group& shared = group_->shared;
  // Slots continue from the operation before, so that its last chunks may still be taken meanwhile.
  return shared.memory.data() + shared.layout.PieceOffset(done_ + chunk, from, of);
}

absl::Status ShmEngine::AwaitAgreement(
    const OperationHeader& header,
    absl::FunctionRef<void(const std::vector<OperationHeader>&)> agreed) {
  ShmBoard& board = group_->board;
  SLUICE_RETURN_IF_ERROR(board.Await(ShmBoard::kFilled, done_ + 1, header));
  std::vector<OperationHeader> headers = board.Headers(done_);
  headers[self_] = header;  // not what others may have made of it
  if (absl::Status status = CheckAgreement(headers); !status.ok()) {
    // All ranks see the same headers, but one may have ended before it compared them.
    board.Abandon(FaultOf(status, rank_));
    return status;
  }
  agreed(headers);
  return absl::OkStatus();
}

absl::Status ShmEngine::Run(const OperationHeader& header, uint64_t chunks, const Stages& stages,
                            absl::FunctionRef<void(const std::vector<OperationHeader>&)> agreed) {
  ShmBoard& board = group_->board;
  const uint32_t slots = group_->shared.layout.slots;
  // The loop only looks when it has to wait, and a single rank never has to.
  SLUICE_RETURN_IF_ERROR(board.CheckCancelled(header));
  // A software pipeline: step k brings chunk k in, reduces chunk k - 1 and takes chunk k - 2 out.
  // By the time a rank waits for the others in a stage, it has given them work for the next one.
  for (uint64_t k = 0; k < chunks + 2; ++k) {
    if (k < chunks) {
      // The slot of chunk k held chunk k - slots. Whoever still reads that must be done first.
      if (done_ + k >= slots) {
        SLUICE_RETURN_IF_ERROR(board.Await(ShmBoard::kTaken, done_ + k + 1 - slots, header));
      }
      // Before kFilled is published, which is what the others wait for.
      if (k == 0) board.PublishHeader(done_, header);
      if (stages.bring) stages.bring(k);
      board.Publish(ShmBoard::kFilled, done_ + k + 1);
    }
    if (k >= 1 && k - 1 < chunks) {
      // Nothing of the others is used before all agree: sizes that differ would mix up the pieces.
      if (k == 1) SLUICE_RETURN_IF_ERROR(AwaitAgreement(header, agreed));
      if (stages.reduce) {
        SLUICE_RETURN_IF_ERROR(board.Await(ShmBoard::kFilled, done_ + k, header));
        stages.reduce(k - 1);
        board.Publish(ShmBoard::kReduced, done_ + k);
      }
    }
    if (k >= 2) {
      if (stages.take) {
        SLUICE_RETURN_IF_ERROR(
            board.Await(stages.take_needs_reduced ? ShmBoard::kReduced : ShmBoard::kFilled,
                        done_ + k - 1, header, stages.take_needs_rank));
        stages.take(k - 2);
      }
      // Also without a take stage: the positions say that the slot is free.
      board.Publish(ShmBoard::kTaken, done_ + k - 1);
    }
  }
  done_ += chunks;
  return absl::OkStatus();
}

absl::Status ShmEngine::Reduce(const OperationHeader& header, absl::Span<float> values) {
  const size_t n = values.size();
  if (header.kind != OperationHeader::kReduceScatter &&
      n <= std::min(kMaxWholeFloats, group_->shared.layout.piece_floats() * ranks_)) {
    // Not for a reduce-scatter, which would reduce parts that nobody asked for.
    return ReduceWhole(header, values);
  }
  std::optional<RankReduction> reduction;
  std::vector<const void*> inputs(ranks_);
  Stages stages;
  stages.bring = [&](uint64_t chunk) {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      // The rank's own piece is reduced where it lies.
      if (rank == self_) continue;
      const ArrayPart piece = PieceOf(n, rank, chunk);
      RankReduction::Bring(header, values.data() + piece.begin, Shared(chunk, self_, rank),
                           piece.size());
    }
  };
  stages.reduce = [&](uint64_t chunk) {
    const ArrayPart piece = PieceOf(n, self_, chunk);
    float* const own = values.data() + piece.begin;
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      inputs[rank] = rank == self_ ? own : Shared(chunk, rank, self_);
    // A second copy of the result, for the others, only if somebody takes it.
    const bool for_others = header.kind != OperationHeader::kReduceScatter && ranks_ > 1;
    reduction->Reduce(inputs, own, for_others ? Shared(chunk, self_, self_) : nullptr,
                      piece.size());
  };
  if (header.kind != OperationHeader::kReduceScatter) {
    stages.take_needs_reduced = true;
    stages.take = [&](uint64_t chunk) {
      for (uint32_t rank = 0; rank < ranks_; ++rank) {
        if (rank == self_) continue;
        const ArrayPart piece = PieceOf(n, rank, chunk);
        RankReduction::Take(header, Shared(chunk, rank, rank), values.data() + piece.begin,
                            piece.size());
      }
    };
  }
  return Run(header, ChunksOf(n), stages, [&](const std::vector<OperationHeader>& headers) {
    reduction.emplace(headers, self_);
  });
}

absl::Status ShmEngine::ReduceWhole(const OperationHeader& header, absl::Span<float> values) {
  std::optional<RankReduction> reduction;
  Stages stages;
  stages.bring = [&](uint64_t chunk) {
    RankReduction::Bring(header, values.data(), Shared(chunk, self_, 0), values.size());
  };
  stages.take = [&](uint64_t chunk) {
    std::vector<const void*> inputs(ranks_);
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      inputs[rank] = rank == self_ ? values.data() : Shared(chunk, rank, 0);
    reduction->Reduce(inputs, values.data(), nullptr, values.size());
  };
  return Run(header, 1, stages, [&](const std::vector<OperationHeader>& headers) {
    reduction.emplace(headers, self_);
  });
}

absl::Status ShmEngine::AllGather(const OperationHeader& header, absl::Span<float> values) {
  const size_t n = values.size();
  Stages stages;
  stages.bring = [&](uint64_t chunk) {
    const ArrayPart piece = PieceOf(n, self_, chunk);
    // The place of the own result is free: a gather reduces nothing.
    Copy(values.data() + piece.begin, Shared(chunk, self_, self_), piece.size() * sizeof(float));
  };
  stages.take = [&](uint64_t chunk) {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      if (rank == self_) continue;
      const ArrayPart piece = PieceOf(n, rank, chunk);
      Copy(Shared(chunk, rank, rank), values.data() + piece.begin, piece.size() * sizeof(float));
    }
  };
  return Run(header, ChunksOf(n), stages, [](const std::vector<OperationHeader>&) {});
}

absl::Status ShmEngine::Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) {
  const uint32_t root = header.root;
  // All of the root's pieces of a slot lie side by side.
  const size_t wanted = WantedPieceFloats(bytes.size() / sizeof(float)) * sizeof(float);
  const size_t chunk_bytes = std::min(group_->shared.layout.chunk_bytes(), wanted);
  const auto range = [&](uint64_t chunk) {
    return bytes.subspan(std::min(bytes.size(), chunk * chunk_bytes), chunk_bytes);
  };
  Stages stages;
  if (root == self_) {
    stages.bring = [&](uint64_t chunk) {
      Copy(range(chunk).data(), Shared(chunk, self_, 0), range(chunk).size());
    };
  } else {
    stages.take_needs_rank = root;
    stages.take = [&](uint64_t chunk) {
      Copy(Shared(chunk, root, 0), range(chunk).data(), range(chunk).size());
    };
  }
  const uint64_t chunks = std::max<uint64_t>(1, (bytes.size() + chunk_bytes - 1) / chunk_bytes);
  return Run(header, chunks, stages, [](const std::vector<OperationHeader>&) {});
}

absl::Status ShmEngine::Barrier(const OperationHeader& header) {
  return Run(header, 1, Stages(), [](const std::vector<OperationHeader>&) {});
}

}  // namespace sluice
