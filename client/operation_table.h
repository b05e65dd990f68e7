// The operations that callers hold tickets for. It also counts the updates of other workers that
// their pulls have reported.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/pull_operation.h"

namespace sluice {

class OperationTable {
 public:
  using Ticket = uint64_t;
  // `pipeline_depth`: number of steps that a worker runs at once; 0 counts as 1.
  explicit OperationTable(uint32_t pipeline_depth);

  size_t size() const { return operations_.size() + failed_.size(); }
  // In the order of their tickets.
  const std::map<Ticket, std::shared_ptr<PullOperation>>& all() const { return operations_; }

  // Starts `op` after the latest push, `pushed`. A pull for a training step gets the sequence of
  // the push that will be computed from it.
  Ticket Add(std::shared_ptr<PullOperation> op, uint64_t pushed);
  // Returns a ticket for an operation that could not be started; Find returns `status`.
  Ticket AddFailed(absl::Status status);
  // INVALID_ARGUMENT when the ticket was never given or has been erased.
  absl::StatusOr<std::shared_ptr<PullOperation>> Find(Ticket ticket) const;
  // Returns the operation that frame `sequence` carries, or null if it carries none.
  std::shared_ptr<PullOperation> OfFrame(uint64_t sequence) const;
  // Forgets the ticket.
  void Erase(Ticket ticket);

  // Call when the caller has taken the values of a pull. others[link] is ReplyHeader.others of that
  // pserver.
  void OnPulled(const std::vector<uint64_t>& others);
  // The largest `others` of each link in the pulls that callers have taken. The next push is
  // computed from their values.
  const std::vector<uint64_t>& pulled_others() const { return pulled_others_; }

 private:
  const uint64_t depth_;
  std::map<Ticket, std::shared_ptr<PullOperation>> operations_;
  std::map<Ticket, absl::Status> failed_;
  Ticket next_ticket_ = 1;
  uint64_t pulled_for_ = 0;  // the push that the latest pull for a step is for
  std::vector<uint64_t> pulled_others_;
};

}  // namespace sluice
