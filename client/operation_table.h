// The operations that callers hold tickets for, and what they have learned of other workers'
// updates.
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
  // `pipeline_depth`: steps that a worker has under way at once; 0 counts as 1.
  explicit OperationTable(uint32_t pipeline_depth);

  size_t size() const { return operations_.size() + failed_.size(); }
  // In the order of their tickets.
  const std::map<Ticket, std::shared_ptr<PullOperation>>& all() const { return operations_; }

  // Starts `op` after push `pushed`, the latest. A pull for a training step is named for the push
  // that will be computed from it.
  Ticket Add(std::shared_ptr<PullOperation> op, uint64_t pushed);
  // A ticket for an operation that could not be started: Find returns `status`.
  Ticket AddFailed(absl::Status status);
  // INVALID_ARGUMENT when the ticket was never given, or has ended.
  absl::StatusOr<std::shared_ptr<PullOperation>> Find(Ticket ticket) const;
  // The operation that frame `sequence` carries; null: none.
  std::shared_ptr<PullOperation> OfFrame(uint64_t sequence) const;
  // Forgets the ticket.
  void Erase(Ticket ticket);

  // The caller has the values of a pull; by link: `others`, as the pserver counted them then
  // (ReplyHeader.others).
  void OnPulled(const std::vector<uint64_t>& others);
  // By link, of the pulls that callers have taken: what the next push was computed from.
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
