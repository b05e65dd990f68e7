#include "server/shard.h"

#include <utility>

#include "common/optimizer/learning_rate.h"

namespace sluice {

Shard::Shard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy)
    : table_(std::move(table)),
      index_(index),
      policy_(policy),
      gate_(policy.worker_num, policy.mode == Mode::kSync),
      pending_(policy.mode == Mode::kSync ? policy.worker_num : 0) {}

ApplyResult Shard::Apply(const FrameId& frame, PushPart* part) {
  MutexLock lock(&mutex_);
  const bool sync = policy_.mode == Mode::kSync;
  // Only the open step has a buffer: a rank pushes t + 1 after it has read what t made.
  if (sync && frame.sequence > closed_ + 1 && frame.incarnation >= gate_.incarnation(frame.rank)) {
    return {PART_OUT_OF_ORDER, gate_.last(frame.rank)};
  }
  const DeliveryGate::Verdict verdict = gate_.Admit(frame.rank, frame.incarnation, frame.sequence);
  const uint64_t last = gate_.last(frame.rank);
  switch (verdict) {
    case DeliveryGate::Verdict::kStaleIncarnation:
      return {PART_STALE_INCARNATION, last};
    case DeliveryGate::Verdict::kOutOfOrder:
      return {PART_OUT_OF_ORDER, last};
    case DeliveryGate::Verdict::kDuplicate:
      return {PART_OK, last};
    case DeliveryGate::Verdict::kApply:
      break;
  }
  ++frames_;
  if (sync) {
    Pending& slot = pending_[frame.rank];
    slot.present = true;
    slot.weight = frame.weight;
    std::swap(slot.part, *part);
  } else if (policy_.mode == Mode::kGeo) {
    ++updates_;
    AddDelta(*part);
  } else if (policy_.gradients_to_wait <= 1) {
    ++updates_;
    ApplyGradient(part, frame.weight);
  } else {
    AddToSum(*part, frame.weight);
    held_weight_ += frame.weight;
    if (++held_frames_ == policy_.gradients_to_wait) {
      ++updates_;
      ApplySum(held_weight_);
      held_frames_ = 0;
      held_weight_ = 0;
    }
  }
  return {PART_OK, last};
}

void Shard::CloseStep(uint64_t step) {
  MutexLock lock(&mutex_);
  if (step != closed_ + 1) return;
  ++updates_;
  double total = 0;
  std::vector<Pending*> parts;
  for (Pending& p : pending_) {
    if (!p.present) continue;
    total += p.weight;
    if (p.part.rows > 0) parts.push_back(&p);
  }
  if (parts.size() == 1 && parts[0]->weight == total) {
    // n g / n is g to the last bit: the sum can be left out.
    ApplyGradient(&parts[0]->part, total);
  } else if (!parts.empty()) {
    ApplyMean(parts, total);
  }
  for (Pending& p : pending_) p.present = false;
  closed_ = step;
}

uint64_t Shard::LastPushed(uint32_t rank) {
  MutexLock lock(&mutex_);
  return gate_.last(rank);
}

void Shard::Flush() {
  MutexLock lock(&mutex_);
  if (held_frames_ == 0) return;
  ++updates_;
  ApplySum(held_weight_);
  held_frames_ = 0;
  held_weight_ = 0;
}

void Shard::Fence(uint32_t rank, uint64_t incarnation) {
  MutexLock lock(&mutex_);
  gate_.Fence(rank, incarnation);
}

uint64_t Shard::ScheduleStep() const {
  if (policy_.mode == Mode::kSync) return closed_;
  return frames_ == 0 ? 0 : (frames_ - 1) / policy_.worker_num;
}

PartStatus Shard::DecodeValues(PayloadReader* payload, uint32_t wire_bytes, size_t n, float* to) {
  const size_t behind = payload->remaining() - n * wire_bytes;
  if (ReadValues(payload, wire_bytes, n, to)) return PART_OK;
  payload->Skip(payload->remaining() - behind);
  return PART_NOT_FINITE;
}

const std::vector<float>& Shard::Rates() {
  const uint64_t step = ScheduleStep();
  rates_.clear();
  for (const TableLayout::Column& column : table_->columns()) {
    rates_.push_back(
        LearningRateAt(column.optimizer.schedule(), column.optimizer.learning_rate(), step));
  }
  return rates_;
}

}  // namespace sluice
