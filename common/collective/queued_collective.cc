#include "common/collective/queued_collective.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::Status NotJoined() {
  return absl::FailedPreconditionError("the collective group is not joined: call Listen and Join");
}

}  // namespace

QueuedCollective::QueuedCollective(std::unique_ptr<CollectiveEngine> engine)
    : engine_(std::move(engine)), queue_(NotJoined()) {}

QueuedCollective::~QueuedCollective() { Leave(); }

absl::StatusOr<std::string> QueuedCollective::Listen(uint64_t generation, uint32_t self,
                                                     uint32_t ranks) {
  Leave();
  if (self >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", self, " is not below the number of ranks, ", ranks));
  }
  if (generation <= generation_) {
    return absl::InvalidArgumentError(
        absl::StrCat("generation ", generation, " is not above the one before, ", generation_));
  }
  generation_ = generation;
  self_ = self;
  ranks_ = ranks;
  absl::StatusOr<std::string> card = engine_->Listen(generation, self, ranks);
  in_group_ = card.ok();
  return card;
}

absl::Status QueuedCollective::Join(uint64_t generation, const std::vector<std::string>& peers,
                                    uint32_t self) {
  if (!in_group_ || generation != generation_ || self != self_) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", self, " has not listened for generation ", generation));
  }
  if (peers.size() != ranks_) {
    return absl::InvalidArgumentError(
        absl::StrCat(peers.size(), " ranks are to join a group of ", ranks_));
  }
  std::vector<uint32_t> everybody(ranks_);
  std::iota(everybody.begin(), everybody.end(), 0);
  const absl::Status joined = engine_->Join(generation, peers, everybody);
  if (!joined.ok()) {
    Leave();
    queue_.Close(joined);
    return joined;
  }
  queue_.Open();
  return absl::OkStatus();
}

void QueuedCollective::Leave() {
  if (!in_group_) return;
  // An operation that waits for others ends now; without one, nothing is cut off.
  queue_.Close(NotJoined(), [this] { engine_->Cancel(); });
  engine_->Leave();
  in_group_ = false;
}

Collective::Ticket QueuedCollective::WeightedMean(uint64_t step, absl::Span<float> values,
                                                  double weight) {
  return queue_.Start(
      [this, step, values, weight] { return engine_->WeightedMean(step, values, weight); });
}

absl::Status QueuedCollective::Wait(Ticket ticket) { return queue_.Wait(ticket); }

absl::Status QueuedCollective::AllReduce(absl::Span<float> values, Op op) {
  return queue_.Run([&] { return engine_->AllReduce(CollectiveEngine::kNoStep, values, op); });
}

absl::Status QueuedCollective::ReduceScatter(absl::Span<float> values, Op op) {
  return queue_.Run([&] { return engine_->ReduceScatter(values, op); });
}

absl::Status QueuedCollective::AllGather(absl::Span<float> values) {
  return queue_.Run([&] { return engine_->AllGather(values); });
}

absl::Status QueuedCollective::Broadcast(absl::Span<uint8_t> bytes, uint32_t root) {
  return queue_.Run([&] { return engine_->Broadcast(bytes, root); });
}

absl::Status QueuedCollective::Barrier() {
  return queue_.Run([&] { return engine_->Barrier(); });
}

}  // namespace sluice
