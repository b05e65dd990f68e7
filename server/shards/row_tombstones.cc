#include "server/shards/row_tombstones.h"

#include <algorithm>

namespace sluice {

void RowTombstones::Add(uint64_t key, uint64_t step) {
  if (step < complete_since_) return;
  gone_.push_back({key, step});
  if (gone_.size() > kMost) Bound();
}

void RowTombstones::Add(const RowTombstones& others) {
  DropBefore(others.complete_since_);
  for (const Tombstone& gone : others.gone_) Add(gone.key, gone.step);
}

void RowTombstones::Bound() {
  if (gone_.size() <= kMost) return;
  // Half of them, so that the list is not sorted again for each row that goes.
  const auto middle = gone_.end() - static_cast<int64_t>(kMost / 2);
  std::nth_element(gone_.begin(), middle, gone_.end());
  DropBefore(middle->step + 1);
}

void RowTombstones::DropBefore(uint64_t step) {
  if (step <= complete_since_) return;
  complete_since_ = step;
  gone_.erase(std::remove_if(gone_.begin(), gone_.end(),
                             [&](const Tombstone& gone) { return gone.step < step; }),
              gone_.end());
}

void RowTombstones::AddKeysSince(uint64_t step, std::vector<uint64_t>* keys) const {
  for (const Tombstone& gone : gone_) {
    if (gone.step >= step) keys->push_back(gone.key);
  }
}

void RowTombstones::Write(ShardFacts* facts) const {
  std::vector<Tombstone> sorted = gone_;
  std::sort(sorted.begin(), sorted.end());
  facts->set_tombstones_since(complete_since_);
  facts->mutable_tombstones()->Reserve(static_cast<int>(sorted.size()));
  for (const Tombstone& gone : sorted) {
    RowTombstone* const one = facts->add_tombstones();
    one->set_key(gone.key);
    one->set_schedule_step(gone.step);
  }
}

void RowTombstones::Restore(const ShardFacts& facts) {
  gone_.clear();
  complete_since_ =
      facts.has_tombstones_since() ? facts.tombstones_since() : facts.schedule_steps();
  for (const RowTombstone& one : facts.tombstones()) {
    if (one.schedule_step() >= complete_since_) gone_.push_back({one.key(), one.schedule_step()});
  }
  Bound();
}

}  // namespace sluice
