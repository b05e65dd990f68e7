#include "server/tables/job_copies.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {

void JobCopies::TakeSpec(const JobSpec& spec, int64_t self) {
  std::vector<Held> dropped;  // freed without the lock
  {
    MutexLock lock(&mutex_);
    route_ = spec.route();
    for (uint32_t i = 0; i < static_cast<uint32_t>(spec.follower_size()); ++i) {
      // A pserver that is named as its own follower has none.
      const bool mine = i != self && spec.follower(static_cast<int>(i)) == self;
      if (!register_.Assign(i, mine, spec.route().generation())) continue;
      dropped.push_back(std::move(copies_[i]));
      copies_.erase(i);
    }
  }
  // A message that is being applied to them must not be confirmed.
  for (const Held& held : dropped) held.copy->Seal();
}

absl::StatusOr<JobCopies::Held> JobCopies::Begin(const ReplicaHello& hello) {
  Held earlier, held;
  {
    MutexLock lock(&mutex_);
    if (hello.pserver() >= static_cast<uint32_t>(route_.pservers_size())) {
      return absl::InvalidArgumentError(absl::StrCat("the job has no pserver ", hello.pserver()));
    }
    SLUICE_ASSIGN_OR_RETURN(const uint64_t number,
                            register_.Begin(hello.pserver(), hello.generation()));
    held = {hello.pserver(), number,
            std::make_shared<ShardCopy>(layouts_, policy_, route_, hello.pserver(), row_memory_)};
    earlier = std::exchange(copies_[hello.pserver()], held);
  }
  // The primary has begun anew, but a message of its earlier stream may still be under way.
  if (earlier.copy != nullptr) earlier.copy->Seal();
  return held;
}

absl::Status JobCopies::Complete(const Held& held) {
  {
    MutexLock lock(&mutex_);
    if (!register_.TakesChanges(held.primary, held.number)) {
      return absl::FailedPreconditionError("these copies were given up");
    }
    register_.Complete(held.primary, held.number);
  }
  // Soon: until the scheduler knows, losing the primary costs everything since the last checkpoint.
  Changed();
  return absl::OkStatus();
}

void JobCopies::EndOfStream(const Held& held) {
  // Complete copies outlive the stream: it ends when the primary dies, and then they are needed.
  {
    MutexLock lock(&mutex_);
    if (register_.complete(held.primary, held.number)) return;
  }
  Drop(held);
}

absl::StatusOr<JobCopies::Held> JobCopies::Seal(const ReplicaHello& hello) {
  Held held;
  {
    MutexLock lock(&mutex_);
    SLUICE_RETURN_IF_ERROR(register_.Seal(hello.pserver(), hello.generation()).status());
    held = copies_.at(hello.pserver());
  }
  // Without the lock: sealing waits for a message that is being applied.
  held.copy->Seal();
  return held;
}

absl::Status JobCopies::CheckReader(const Held& held, uint64_t generation) {
  MutexLock lock(&mutex_);
  return register_.CheckReader(held.primary, held.number, generation);
}

absl::Status JobCopies::DropRead(const Held& held, uint64_t generation) {
  Held dropped;  // freed without the lock
  MutexLock lock(&mutex_);
  SLUICE_RETURN_IF_ERROR(register_.CheckReader(held.primary, held.number, generation));
  register_.Drop(held.primary, held.number);
  dropped = std::move(copies_[held.primary]);
  copies_.erase(held.primary);
  return absl::OkStatus();
}

void JobCopies::Drop(const Held& held) {
  Held dropped;
  {
    MutexLock lock(&mutex_);
    if (!register_.Drop(held.primary, held.number)) return;
    dropped = std::move(copies_[held.primary]);
    copies_.erase(held.primary);
  }
  // The handler of a stream may still hold them, and must apply nothing more.
  dropped.copy->Seal();
  dropped.copy.reset();
  Changed();
}

void JobCopies::FillReport(HostedJob* report) {
  std::vector<std::pair<Held, ShardCopies>> all;
  {
    MutexLock lock(&mutex_);
    for (const auto& [primary, held] : copies_) {
      ShardCopies copies;
      copies.set_pserver(primary);
      copies.set_generation(register_.generation(primary));
      copies.set_complete(register_.complete(primary, held.number));
      all.emplace_back(held, std::move(copies));
    }
  }
  // Without the lock: counting bytes takes the lock of each shard.
  for (auto& [held, copies] : all) {
    copies.set_bytes(held.copy->bytes());
    *report->add_copies() = std::move(copies);
  }
}

}  // namespace sluice
