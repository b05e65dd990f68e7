#include "client/operation_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

OperationTable::OperationTable(uint32_t pipeline_depth)
    : depth_(std::max<uint64_t>(pipeline_depth, 1)) {}

OperationTable::Ticket OperationTable::Add(std::shared_ptr<PullOperation> op, uint64_t pushed) {
  if (op->for_training_step()) {
    // Bounded by the depth, because a worker may also pull outside its steps.
    pulled_for_ = std::min(std::max(pulled_for_, pushed) + 1, pushed + depth_);
    op->set_for_push(pulled_for_);
  }
  // The pipeline is empty at the end of an epoch.
  if (op->purpose().end_epoch) pulled_for_ = pushed;
  operations_.emplace(next_ticket_, std::move(op));
  return next_ticket_++;
}

OperationTable::Ticket OperationTable::AddFailed(absl::Status status) {
  failed_.emplace(next_ticket_, std::move(status));
  return next_ticket_++;
}

absl::StatusOr<std::shared_ptr<PullOperation>> OperationTable::Find(Ticket ticket) const {
  const auto found = operations_.find(ticket);
  if (found != operations_.end()) return found->second;
  const auto failed = failed_.find(ticket);
  if (failed != failed_.end()) return failed->second;
  return absl::InvalidArgumentError(
      absl::StrCat("ticket ", ticket, " was never given, or was waited for already"));
}

std::shared_ptr<PullOperation> OperationTable::OfFrame(uint64_t sequence) const {
  for (const auto& [ticket, op] : operations_) {
    if (op->after() == sequence && !op->abandoned()) return op;
  }
  return nullptr;
}

void OperationTable::Erase(Ticket ticket) {
  operations_.erase(ticket);
  failed_.erase(ticket);
}

void OperationTable::OnPulled(const std::vector<uint64_t>& others) {
  if (pulled_others_.size() < others.size()) pulled_others_.resize(others.size());
  for (size_t link = 0; link < others.size(); ++link) {
    pulled_others_[link] = std::max(pulled_others_[link], others[link]);
  }
}

}  // namespace sluice
