#include "server/shards/change_log.h"

#include <iterator>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/wire/frame.h"

namespace sluice {
namespace {

// A header may have at most kMaxHeaderBytes, and a change takes far less than 256 bytes of it.
constexpr size_t kChangesAMessage = 2048;
// The bytes of a change in addition to its values.
constexpr uint64_t kChangeOverhead = 256;

RankPosition PositionOf(const FrameId& frame) {
  RankPosition at;
  at.set_incarnation(frame.incarnation);
  at.set_sequence(frame.sequence);
  SetPosition(frame.position, &at);
  return at;
}

// Parts of one frame may differ in the position: the loss of a frame is not known when its first
// part leaves.
bool SameFrame(const FrameId& a, const FrameChanges& b) {
  if (b.flush() || b.erase() || a.rank != b.rank() || a.weight != b.weight()) return false;
  const RankPosition& at = b.at();
  const TrainPosition was = PositionOf(at);
  return a.incarnation == at.incarnation() && a.sequence == at.sequence() &&
         a.position.task_id == was.task_id && a.position.task_end == was.task_end &&
         a.position.epoch == was.epoch && a.position.examples == was.examples &&
         a.position.steps == was.steps && a.position.loss_sum == was.loss_sum &&
         a.position.weight_sum == was.weight_sum;
}

}  // namespace

void ChangeLog::AddPart(uint32_t table, uint32_t shard, const FrameId& frame, uint32_t rows,
                        Message wire) {
  const uint64_t bytes = MessageSize(wire) + kChangeOverhead;
  Add({Change::kPart, {table, shard}, frame, rows, std::move(wire), bytes});
}

void ChangeLog::AddFlush(uint32_t table, uint32_t shard) {
  Add({Change::kFlush, {table, shard}, FrameId(), 0, Message(), kChangeOverhead});
}

void ChangeLog::AddErasure(uint32_t table, uint32_t shard, const uint64_t* keys, size_t n) {
  Message wire;
  wire.push_back(
      Slice::FromString(std::string(reinterpret_cast<const char*>(keys), n * sizeof(*keys))));
  const uint64_t bytes = MessageSize(wire) + kChangeOverhead;
  Add({Change::kErasure,
       {table, shard},
       FrameId(),
       static_cast<uint32_t>(n),
       std::move(wire),
       bytes});
}

void ChangeLog::AddComplete() {
  Add({Change::kComplete, {}, FrameId(), 0, Message(), kChangeOverhead});
}

void ChangeLog::Add(Change change) {
  Change dropped;  // released without the lock
  MutexLock lock(&mutex_);
  const auto aside = aside_.empty() ? aside_.end() : aside_.find(change.shard);
  // A change that is set aside gets its position only when Release adds it to the log.
  if (change.kind == Change::kComplete || aside == aside_.end()) ++end_;
  if (closed_) {
    dropped = std::move(change);
    return;
  }
  bytes_ += change.bytes;
  try {
    if (change.kind != Change::kComplete && aside != aside_.end()) {
      aside->second.push_back(std::move(change));
    } else {
      waiting_.push_back(std::move(change));
    }
  } catch (const std::bad_alloc&) {
    // The change is applied and must not fail; without it the log is worth nothing.
    status_ = no_memory_;
    CloseLocked();
    return;
  }
  if (bytes_ <= max_bytes_) return;
  status_ = absl::ResourceExhaustedError(
      absl::StrCat("the follower is more than ", max_bytes_ >> 20, " MiB of changes behind"));
  CloseLocked();
}

void ChangeLog::SetAside(uint32_t table, uint32_t shard) {
  std::vector<Change> dropped;
  MutexLock lock(&mutex_);
  std::vector<Change>& aside = aside_[{table, shard}];
  // Changes left from an image that was given up: the cut that begins now has them in its values.
  for (const Change& change : aside) bytes_ -= change.bytes;
  dropped.swap(aside);
}

void ChangeLog::Release(uint32_t table, uint32_t shard) {
  MutexLock lock(&mutex_);
  const auto aside = aside_.find({table, shard});
  if (aside == aside_.end()) return;
  end_ += aside->second.size();
  if (!closed_) {
    std::move(aside->second.begin(), aside->second.end(), std::back_inserter(waiting_));
  }
  aside_.erase(aside);
}

void ChangeLog::Drop(uint32_t table, uint32_t shard) {
  std::vector<Change> dropped;  // released without the lock
  MutexLock lock(&mutex_);
  const auto aside = aside_.find({table, shard});
  if (aside == aside_.end()) return;
  for (const Change& change : aside->second) bytes_ -= change.bytes;
  dropped.swap(aside->second);
  aside_.erase(aside);
}

uint64_t ChangeLog::end() {
  MutexLock lock(&mutex_);
  return end_;
}

void ChangeLog::Encode(const Change& change, ReplicaHeader* header) {
  if (change.kind == Change::kComplete) return header->set_complete(true);
  FrameChanges* frame = nullptr;
  if (header->changes_size() > 0) frame = header->mutable_changes(header->changes_size() - 1);
  if (change.kind == Change::kFlush) {
    if (frame == nullptr || !frame->flush()) {
      frame = header->add_changes();
      frame->set_flush(true);
    }
  } else if (change.kind == Change::kErasure) {
    frame = header->add_changes();
    frame->set_erase(true);
  } else if (frame == nullptr || !SameFrame(change.frame, *frame)) {
    frame = header->add_changes();
    frame->set_rank(change.frame.rank);
    frame->set_weight(change.frame.weight);
    *frame->mutable_at() = PositionOf(change.frame);
  }
  frame->mutable_parts()->add_table(change.shard.first);
  frame->mutable_parts()->add_shard(change.shard.second);
  frame->mutable_parts()->add_rows(change.rows);
}

bool ChangeLog::Next(Message* message) {
  std::vector<Change> taken;
  ReplicaHeader header;
  {
    MutexLock lock(&mutex_);
    if (waiting_.empty()) return false;
    uint64_t bytes = 0;
    // A change that is larger than a chunk travels alone.
    while (!waiting_.empty() && taken.size() < kChangesAMessage &&
           (taken.empty() || bytes + waiting_.front().bytes <= kChunkBytes)) {
      bytes += waiting_.front().bytes;
      taken.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    sent_ += taken.size();
    header.set_position(sent_);
    unconfirmed_.emplace_back(sent_, bytes);
  }
  // Encoded without the lock, which shards take while they apply. The order is safe: one thread at
  // a time sends from a log (Replicator::PumpSession).
  Message payload;
  for (Change& change : taken) {
    Encode(change, &header);
    for (Slice& slice : change.wire) payload.push_back(std::move(slice));
  }
  *message = EncodeReplica(header, std::move(payload));
  return true;
}

void ChangeLog::Confirm(uint64_t position) {
  MutexLock lock(&mutex_);
  while (!unconfirmed_.empty() && unconfirmed_.front().first <= position) {
    bytes_ -= unconfirmed_.front().second;
    unconfirmed_.pop_front();
  }
}

void ChangeLog::Close() {
  // Freed without the lock, which shards take while they apply.
  std::deque<Change> waiting;
  std::map<ShardId, std::vector<Change>> aside;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    waiting.swap(waiting_);
    for (auto& [shard, changes] : aside_) aside[shard].swap(changes);
  }
}

void ChangeLog::FailWithoutMemory() {
  MutexLock lock(&mutex_);
  if (status_.ok()) status_ = no_memory_;
  CloseLocked();
}

// Slices are released under the lock here: this is the way out of an overflow.
void ChangeLog::CloseLocked() {
  closed_ = true;
  waiting_.clear();
  for (auto& [shard, changes] : aside_) changes.clear();
}

absl::Status ChangeLog::status() {
  MutexLock lock(&mutex_);
  return status_;
}

}  // namespace sluice
