#include "server/shards/shard.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/optimizer/learning_rate.h"
#include "server/shards/buffered_bytes.h"

namespace sluice {
namespace {

class CutThatFailed : public ShardCut {
 public:
  explicit CutThatFailed(absl::Status status) : status_(std::move(status)) {}
  absl::StatusOr<bool> Next(std::string*) override { return status_; }

 private:
  const absl::Status status_;
};

}  // namespace

void PushPart::Shrink() {
  // One unusually large push must not occupy memory for as long as its stream lives.
  constexpr size_t kKeptPartBytes = 4 << 20;
  if (keys.capacity() * sizeof(uint64_t) > kKeptPartBytes) std::vector<uint64_t>().swap(keys);
  if (values.capacity() * sizeof(float) > kKeptPartBytes) std::vector<float>().swap(values);
  // A part that was refused may have left them.
  message = PayloadReader();
  wire.clear();
}

Shard::Shard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy,
             std::shared_ptr<BufferBudget> buffers)
    : table_(std::move(table)),
      index_(index),
      policy_(policy),
      buffers_(std::move(buffers)),
      gate_(policy.worker_num, policy.mode == Mode::kSync),
      pending_(policy.mode == Mode::kSync ? policy.worker_num : 0),
      accepted_(policy.worker_num),
      applied_(policy.gradients_to_wait > 1 ? policy.worker_num : 0) {}

uint64_t Shard::RankStateBytes(const UpdatePolicy& policy) {
  const uint64_t of_rank = DeliveryGate::bytes_per_rank() + sizeof(Position) +
                           (policy.mode == Mode::kSync ? sizeof(Pending) : 0) +
                           (policy.gradients_to_wait > 1 ? sizeof(Position) : 0);
  return policy.worker_num * of_rank;
}

uint64_t Shard::BufferedBytes(const PushPart& part) const {
  if (buffers_ == nullptr || !GradientsWait(policy_)) return 0;
  return part.rows * BufferedRowBytes(*table_, policy_.mode == Mode::kAsync);
}

void Shard::LendMemory(uint32_t rank, PushPart* part) {
  if (policy_.mode != Mode::kSync) return;
  MutexLock lock(&mutex_);
  Pending& slot = pending_[rank];
  if (slot.present) return;
  // A part that was refused elsewhere may have left a large memory in `part`.
  TrimToUse(0, &part->keys);
  TrimToUse(0, &part->values);
  part->keys.swap(slot.part.keys);
  part->values.swap(slot.part.values);
}

ApplyResult Shard::Apply(const FrameId& frame, PushPart* part) {
  MutexLock lock(&mutex_);
  const bool sync = policy_.mode == Mode::kSync;
  // Only the open step has a buffer, because a rank pushes step t + 1 only after it has read the
  // result of step t.
  if (sync && frame.sequence > closed_ + 1 && frame.incarnation >= gate_.incarnation(frame.rank)) {
    return {PART_OUT_OF_ORDER, gate_.last(frame.rank)};
  }
  // Room is taken before the gate admits the frame: a part that is refused must leave no trace, or
  // its repetition would count as a duplicate.
  uint64_t taken = 0;
  if (gate_.Applies(frame.rank, frame.incarnation, frame.sequence)) {
    taken = BufferedBytes(*part);
    if (taken > 0 && !buffers_->Take(frame.rank, taken))
      return {PART_OUT_OF_ORDER, gate_.last(frame.rank), /*no_room=*/true};
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
  rows_pushed_ += part->rows;
  accepted_[frame.rank] = {frame.incarnation, frame.sequence, frame.position};
  // In the critical section of the change, so that the follower applies changes in the same order.
  if (log_ != nullptr) {
    log_->AddPart(table_->id(), index_, frame, part->rows, std::move(part->wire));
  }
  part->wire.clear();  // a place of a step would keep it
  if (sync) {
    Pending& slot = pending_[frame.rank];
    slot.present = true;
    slot.weight = frame.weight;
    slot.taken = taken;
    // Swapped, so that the stream gets the buffers of an earlier step back and allocates nothing.
    std::swap(slot.part, *part);
  } else if (policy_.mode == Mode::kGeo) {
    ++updates_;
    AddDelta(*part);
  } else if (policy_.gradients_to_wait <= 1) {
    ++updates_;
    ApplyGradient(part, frame.weight);
    EndUpdate();
  } else {
    if (taken > 0) held_taken_[frame.rank] += taken;
    AddToSum(*part, frame.weight);
    held_weight_ += frame.weight;
    if (++held_frames_ == policy_.gradients_to_wait) ApplyHeld();
  }
  return {PART_OK, last};
}

void Shard::CloseStep(uint64_t step) {
  MutexLock lock(&mutex_);
  if (step != closed_ + 1) return;
  ++updates_;
  double total = 0;
  std::vector<Pending*> parts;
  // In rank order, whatever the order of arrival was: the sum depends on it in the last bits.
  for (Pending& p : pending_) {
    if (!p.present) continue;
    total += p.weight;
    if (p.part.rows > 0) parts.push_back(&p);
  }
  if (parts.size() == 1 && parts[0]->weight == total) {
    // With one contributor the mean is its gradient to the last bit, so no sum is needed.
    ApplyGradient(&parts[0]->part, total);
  } else if (!parts.empty()) {
    ApplyMean(parts, total);
  }
  EndUpdate();
  for (uint32_t rank = 0; rank < pending_.size(); ++rank) {
    Pending& p = pending_[rank];
    p.present = false;
    if (p.taken > 0) buffers_->Give(rank, std::exchange(p.taken, 0));
    TrimToUse(p.part.keys.size(), &p.part.keys);
    TrimToUse(p.part.values.size(), &p.part.values);
  }
  closed_ = step;
}

uint64_t Shard::LastPushed(uint32_t rank) {
  MutexLock lock(&mutex_);
  return gate_.last(rank);
}

void Shard::Flush() {
  MutexLock lock(&mutex_);
  if (held_frames_ == 0) return;
  // Before the sum is applied, in the same critical section: the follower flushes at the same
  // place.
  if (log_ != nullptr) log_->AddFlush(table_->id(), index_);
  ApplyHeld();
}

void Shard::ApplyHeld() {
  ++updates_;
  ApplySum(held_weight_);
  EndUpdate();
  held_frames_ = 0;
  held_weight_ = 0;
  for (const auto& [rank, taken] : held_taken_) buffers_->Give(rank, taken);
  held_taken_.clear();
  NothingHeld();
}

void Shard::Fence(uint32_t rank, uint64_t incarnation) {
  MutexLock lock(&mutex_);
  gate_.Fence(rank, incarnation);
}

uint64_t Shard::rows_pushed() {
  MutexLock lock(&mutex_);
  return rows_pushed_;
}

std::vector<RankPosition> Shard::Positions() {
  MutexLock lock(&mutex_);
  std::vector<RankPosition> positions(accepted_.size());
  for (uint32_t r = 0; r < accepted_.size(); ++r) {
    positions[r].set_incarnation(accepted_[r].incarnation);
    // A restored shard knows its steps, but no frames.
    positions[r].set_sequence(policy_.mode == Mode::kSync ? gate_.last(r) : accepted_[r].sequence);
    SetPosition(accepted_[r].data, &positions[r]);
  }
  return positions;
}

uint64_t Shard::ScheduleStep() const {
  if (policy_.mode == Mode::kSync) return schedule_base_ + closed_;
  // One frame of each worker makes a step of the schedule.
  return schedule_base_ + (frames_ == 0 ? 0 : (frames_ - 1) / policy_.worker_num);
}

std::unique_ptr<ShardCut> Shard::BeginCut(const CutOptions& options, ShardFacts* facts) {
  MutexLock lock(&mutex_);
  CutState state;
  if (options.state || facts != nullptr) {
    ShardFacts now = Facts();
    if (facts != nullptr) *facts = now;
    if (options.state) {
      state.facts = std::move(now);
      state.state_floats = saved_state_floats();
    }
  }
  return MakeCut(std::move(state), options);
}

std::unique_ptr<ShardCut> Shard::BeginSeed(std::shared_ptr<ChangeLog> log,
                                           std::shared_ptr<PreImageBudget> budget, ShardSeed* seed,
                                           HeldSum* held) {
  std::shared_ptr<ChangeLog> earlier;  // dropped without the lock
  MutexLock lock(&mutex_);
  earlier = std::exchange(log_, std::move(log));
  // Changes after the cut must reach the follower after the image, so they wait in the log.
  if (log_ != nullptr) log_->SetAside(table_->id(), index_);
  seed->Clear();
  seed->set_table(table_->id());
  seed->set_shard(index_);
  const auto add = [](const std::vector<Position>& positions, auto* to) {
    for (const Position& at : positions) {
      RankPosition* const rank = to->Add();
      rank->set_incarnation(at.incarnation);
      rank->set_sequence(at.sequence);
      SetPosition(at.data, rank);
    }
  };
  add(accepted_, seed->mutable_accepted());
  add(applied_, seed->mutable_applied());
  for (uint32_t r = 0; r < accepted_.size(); ++r) {
    seed->add_incarnation(gate_.incarnation(r));
    seed->add_last(gate_.last(r));
  }
  seed->set_schedule_base(schedule_base_);
  seed->set_frames(frames_);
  seed->set_updates(updates_);
  seed->set_updates_lost(updates_lost_);
  seed->set_held_frames(held_frames_);
  seed->set_held_weight(held_weight_);
  *held = HeldSum();
  if (held_frames_ > 0) *held = SumNow();
  seed->set_held_keys(held->keys.size());
  seed->set_held_sums(held->sums.size());
  CutState state;
  state.facts = Facts();
  state.state_floats = saved_state_floats();
  return MakeCut(std::move(state), {true, std::move(budget)});
}

void Shard::EndSeed() {
  std::shared_ptr<ChangeLog> log;  // dropped without the lock
  {
    MutexLock lock(&mutex_);
    log = std::exchange(log_, nullptr);
  }
  if (log != nullptr) log->Drop(table_->id(), index_);
}

absl::Status Shard::RestoreSeed(const ShardSeed& seed, HeldSum held) {
  MutexLock lock(&mutex_);
  // The image comes from another process. Its lists are indexed by rank below.
  const auto ranks = static_cast<int>(accepted_.size());
  if (seed.accepted_size() != ranks || seed.incarnation_size() != ranks ||
      seed.last_size() != ranks || seed.applied_size() != static_cast<int>(applied_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the copy of ", Name(), " has ", seed.accepted_size(), " ranks, but the job ",
                     ranks, "; use the same version of sluice on all hosts"));
  }
  if (seed.held_frames() >= std::max(1u, policy_.gradients_to_wait) ||
      !(seed.held_weight() >= 0 && std::isfinite(seed.held_weight()))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the copy of ", Name(), " has ", seed.held_frames(), " frames of weight ",
        seed.held_weight(), " that wait, but gradients_to_wait is ", policy_.gradients_to_wait));
  }
  const auto take = [](const auto& from, std::vector<Position>* to) {
    for (size_t r = 0; r < to->size(); ++r) {
      const RankPosition& rank = from.Get(static_cast<int>(r));
      (*to)[r] = {rank.incarnation(), rank.sequence(), PositionOf(rank)};
    }
  };
  take(seed.accepted(), &accepted_);
  take(seed.applied(), &applied_);
  for (int r = 0; r < ranks; ++r) {
    gate_.Restore(static_cast<uint32_t>(r), seed.incarnation(r), seed.last(r));
  }
  schedule_base_ = seed.schedule_base();
  frames_ = seed.frames();
  updates_ = seed.updates();
  updates_lost_ = seed.updates_lost();
  held_frames_ = seed.held_frames();
  held_weight_ = seed.held_weight();
  if (held_frames_ == 0 || SetSum(std::move(held))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the copy of ", Name(), " has gradients of another size"));
}

std::unique_ptr<ShardCut> Shard::FailedCut(absl::Status status) {
  return std::make_unique<CutThatFailed>(std::move(status));
}

std::string Shard::Name() const {
  return absl::StrCat("shard ", index_, " of table '", table_->name(), "'");
}

// Frames that wait for gradients_to_wait are not in the values, so the facts describe the last
// update.
ShardFacts Shard::Facts() const {
  ShardFacts facts;
  facts.set_updates(updates_);
  facts.set_updates_lost(updates_lost_);
  if (policy_.mode == Mode::kSync) {
    facts.set_closed(closed_);
    facts.set_schedule_steps(schedule_base_ + closed_);
  } else {
    const uint64_t frames = frames_ - held_frames_;
    facts.set_schedule_steps(schedule_base_ + frames / policy_.worker_num);
    facts.set_schedule_frames(frames % policy_.worker_num);
  }
  const bool sums = policy_.mode == Mode::kAsync && policy_.gradients_to_wait > 1;
  for (const Position& at : sums ? applied_ : accepted_) {
    RankPosition* const rank = facts.add_ranks();
    rank->set_incarnation(at.incarnation);
    rank->set_sequence(at.sequence);
    SetPosition(at.data, rank);
  }
  AddFacts(&facts);
  return facts;
}

void Shard::RestorePosition(const ShardFacts& facts) {
  MutexLock lock(&mutex_);
  updates_ = facts.updates();
  updates_lost_ = facts.updates_lost();
  if (policy_.mode == Mode::kSync) {
    closed_ = facts.closed();
    // A job that started from another's checkpoint has a schedule that is ahead of its steps.
    schedule_base_ = std::max(facts.schedule_steps(), closed_) - closed_;
    gate_.StartAt(closed_);
    return;
  }
  schedule_base_ = facts.schedule_steps();
  // With fewer workers these frames may already make a whole step, which the next frame then
  // completes.
  frames_ = std::min<uint64_t>(facts.schedule_frames(), policy_.worker_num - 1);
}

void Shard::RestoreRanks(const ShardFacts& facts) {
  MutexLock lock(&mutex_);
  for (size_t r = 0; r < accepted_.size() && r < static_cast<size_t>(facts.ranks_size()); ++r) {
    const RankPosition& rank = facts.ranks(static_cast<int>(r));
    accepted_[r] = {rank.incarnation(), rank.sequence(), PositionOf(rank)};
  }
  NothingHeld();
}

void Shard::AwaitRanks(const std::vector<uint64_t>& lives,
                       const google::protobuf::RepeatedPtrField<EndedLife>& ended) {
  MutexLock lock(&mutex_);
  for (const EndedLife& life : ended) {
    if (life.rank() >= accepted_.size()) continue;
    Position& held = accepted_[life.rank()];
    if (life.incarnation() < held.incarnation) continue;  // the shard has what it had of that life
    const uint64_t here = life.incarnation() == held.incarnation ? held.sequence : 0;
    if (life.sequence() > here) updates_lost_ += life.sequence() - here;
    held = {life.incarnation(), std::max(here, life.sequence()), TrainPosition()};
  }
  for (uint32_t r = 0; r < accepted_.size() && r < lives.size(); ++r) {
    const bool goes_on = accepted_[r].incarnation == lives[r];
    gate_.Await(r, lives[r], goes_on ? accepted_[r].sequence : 0);
  }
  // A copy also has the gradients that wait for gradients_to_wait.
  if (held_frames_ == 0) NothingHeld();
}

void Shard::Hear(uint32_t rank, uint64_t incarnation, const RankPosition& acknowledged) {
  MutexLock lock(&mutex_);
  const uint64_t lost = gate_.Hear(rank, incarnation, acknowledged.sequence());
  if (lost == 0) return;
  updates_lost_ += lost;
  accepted_[rank] = {incarnation, acknowledged.sequence(), PositionOf(acknowledged)};
  // The rank's frames up to this one are gone, so none of them waits for gradients_to_wait.
  if (!applied_.empty()) applied_[rank] = accepted_[rank];
}

void Shard::NothingHeld() {
  if (!applied_.empty()) std::copy(accepted_.begin(), accepted_.end(), applied_.begin());
}

uint64_t Shard::updates_lost() {
  MutexLock lock(&mutex_);
  return updates_lost_;
}

PartStatus Shard::DecodeValues(PayloadReader* payload, uint32_t wire_bytes, size_t n, float* to) {
  const size_t behind = payload->remaining() - n * wire_bytes;
  if (ReadValues(payload, wire_bytes, n, to)) return PART_OK;
  // ReadValues stops at the bad value; the next part begins behind all of them.
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
