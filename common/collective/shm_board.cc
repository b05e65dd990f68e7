#include "common/collective/shm_board.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// A hand-over between running processes takes well under a microsecond; a sleep and a wake-up about
// 50. Ranks that share a processor do not spin: they get it from each other by yielding. Long
// yielding would be costly on a busy machine, where it gives the processor to everybody else first.
constexpr int kSpins = 1000;
constexpr int kYields = 8;
// How long a sleeping rank does not look whether another has ended, and the longest sleep when a
// wake-up is lost because its sender died before sending it.
constexpr absl::Duration kMaxSleep = absl::Milliseconds(5);

constexpr size_t kBoardLine = 64;

// Not those that this thread may use: each rank may be pinned to one of its own.
uint32_t Cpus() {
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  return cpus > 0 ? static_cast<uint32_t>(cpus) : 1;
}

void Relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

uint64_t Encode(const GroupFault& fault) {
  return uint64_t{fault.kind} | (uint64_t{fault.rank} & 0xFFFFFF) << 8 |
         uint64_t{fault.reporter} << 32;
}

GroupFault Decode(uint64_t word) {
  return {static_cast<GroupFault::Kind>(word & 0xFF), static_cast<uint32_t>(word >> 8 & 0xFFFFFF),
          static_cast<uint32_t>(word >> 32)};
}

}  // namespace

// The words that all ranks write, each in a cache line of its own.
struct ShmBoard::Control {
  alignas(kBoardLine) std::atomic<uint32_t> bell;  // changes when sleepers are to look again
  alignas(kBoardLine) std::atomic<uint32_t> sleepers;
  alignas(kBoardLine) std::atomic<uint64_t> fault;  // a GroupFault; 0: none
  alignas(kBoardLine) char unused[kBoardLine];
};

struct ShmBoard::Line {
  alignas(kBoardLine) std::atomic<uint64_t> positions[3];
};

ShmBoard::ShmBoard(const ShmRendezvous::Group* group, uint32_t self, std::vector<uint32_t> names,
                   const CollectiveOptions& options)
    : group_(group),
      self_(self),
      ranks_(group->layout.ranks),
      names_(std::move(names)),
      spins_(ranks_ <= Cpus() ? kSpins : 0),
      options_(options),
      timeout_(options.timeout),
      control_(reinterpret_cast<Control*>(group->memory.data())),
      lines_(reinterpret_cast<Line*>(group->memory.data() + sizeof(Control))),
      headers_(group->memory.data() + sizeof(Control) + ranks_ * sizeof(Line)) {
  static_assert(sizeof(Control) == 4 * kBoardLine && sizeof(Line) == kBoardLine);
  static_assert(sizeof(OperationHeader) <= kBoardLine);
  static_assert(std::atomic<uint32_t>::is_always_lock_free &&
                std::atomic<uint64_t>::is_always_lock_free);
}

void ShmBoard::Publish(Position position, uint64_t chunks) {
  published_ = std::max(published_, chunks);
  // Sequentially consistent, as the sleeper's accesses are: either this rank sees the sleeper, or
  // the sleeper sees the position. The store also releases what this rank wrote into the slot.
  lines_[self_].positions[position].store(chunks, std::memory_order_seq_cst);
  if (control_->sleepers.load(std::memory_order_seq_cst) != 0) Wake();
}

void ShmBoard::Wake() {
  control_->bell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &control_->bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool ShmBoard::Reached(Position position, uint64_t chunks, uint32_t rank, bool* possible) const {
  // Acquires what the rank wrote into the slot.
  const uint64_t value = lines_[rank].positions[position].load(std::memory_order_seq_cst);
  // A rank can fill a slot only when all have taken what was in it.
  if (value > published_ + group_->layout.slots) *possible = false;
  return value >= chunks;
}

uint32_t ShmBoard::FirstMissing(Position position, uint64_t chunks, std::optional<uint32_t> rank,
                                bool* possible) const {
  const uint32_t begin = rank.value_or(0), end = rank.has_value() ? *rank + 1 : ranks_;
  for (uint32_t r = begin; r < end; ++r) {
    if (r != self_ && !Reached(position, chunks, r, possible)) return r;
    if (!*possible) return r;
  }
  return ranks_;
}

absl::Status ShmBoard::Await(Position position, uint64_t chunks, const OperationHeader& what,
                             std::optional<uint32_t> rank) {
  bool possible = true;
  for (int i = 0; i < spins_ + kYields; ++i) {
    if (FirstMissing(position, chunks, rank, &possible) == ranks_) return absl::OkStatus();
    if (!possible) break;
    if (i < spins_) {
      Relax();
    } else {
      sched_yield();
    }
  }
  absl::Status status = AwaitSlowly(position, chunks, what, rank);
  MutexLock lock(&mutex_);
  waiting_for_.clear();
  return status;
}

absl::Status ShmBoard::AwaitSlowly(Position position, uint64_t chunks, const OperationHeader& what,
                                   std::optional<uint32_t> rank) {
  const std::string operation = Describe(what);
  const auto start = std::chrono::steady_clock::now();
  uint32_t named = ranks_;
  while (true) {
    const uint32_t bell = control_->bell.load(std::memory_order_seq_cst);
    control_->sleepers.fetch_add(1, std::memory_order_seq_cst);
    bool possible = true;
    const uint32_t missing = FirstMissing(position, chunks, rank, &possible);
    const uint64_t fault = control_->fault.load(std::memory_order_seq_cst);
    const bool sleep = missing != ranks_ && possible && fault == 0 && !cancelled_.load();
    if (sleep) {
      if (named != missing) {
        named = missing;
        MutexLock lock(&mutex_);
        waiting_for_ = absl::StrCat("rank ", names_[missing], " in ", operation);
      }
      const absl::Duration left =
          timeout_ - absl::FromChrono(std::chrono::steady_clock::now() - start);
      const timespec longest = absl::ToTimespec(std::clamp(left, absl::ZeroDuration(), kMaxSleep));
      syscall(SYS_futex, &control_->bell, FUTEX_WAIT, bell, &longest, nullptr, 0);
    }
    control_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (!possible) return Fail(GroupFault::kBroken, missing, operation);
    if (missing == ranks_) return absl::OkStatus();
    if (fault != 0 || cancelled_.load()) return Fail(GroupFault::kLeft, self_, operation);
    // A rank that has ended may have done its part first.
    const uint32_t begin = rank.value_or(0), end = rank.has_value() ? *rank + 1 : ranks_;
    for (uint32_t r = begin; r < end; ++r) {
      if (r == self_ || Reached(position, chunks, r, &possible) || !HasEnded(r)) continue;
      if (!Reached(position, chunks, r, &possible)) return Fail(GroupFault::kEnded, r, operation);
    }
    if (absl::FromChrono(std::chrono::steady_clock::now() - start) >= timeout_) {
      const uint32_t last = FirstMissing(position, chunks, rank, &possible);
      if (last != ranks_) return Fail(GroupFault::kSilent, last, operation);
    }
  }
}

bool ShmBoard::HasEnded(uint32_t rank) const {
  pollfd state = {group_->connections[rank].fd(), POLLRDHUP, 0};
  return poll(&state, 1, 0) == 1 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

GroupFault ShmBoard::Tell(const GroupFault& fault) {
  uint64_t told = 0;
  // The first report holds for all ranks, so that all name the same one.
  if (control_->fault.compare_exchange_strong(told, Encode(fault), std::memory_order_seq_cst)) {
    Wake();
    return fault;
  }
  return Decode(told);
}

absl::Status ShmBoard::Fail(GroupFault::Kind kind, uint32_t rank, const std::string& what) {
  const GroupFault told = Tell({kind, names_[rank], names_[self_]});
  if (cancelled_.load()) return absl::CancelledError(absl::StrCat(what, " was cancelled"));
  return ErrorOf(told, names_[self_], what, options_);
}

void ShmBoard::Abandon(const GroupFault& fault) { Tell(fault); }

void ShmBoard::Cancel() {
  cancelled_.store(true);
  Tell({GroupFault::kLeft, names_[self_], names_[self_]});
  Wake();
}

absl::Status ShmBoard::CheckCancelled(const OperationHeader& what) const {
  if (!cancelled_.load()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat(Describe(what), " was cancelled"));
}

void ShmBoard::PublishHeader(uint64_t chunk, const OperationHeader& header) {
  uint8_t* const at = headers_ + (chunk % group_->layout.slots * ranks_ + self_) * kBoardLine;
  std::memcpy(at, &header, sizeof header);
}

std::vector<OperationHeader> ShmBoard::Headers(uint64_t chunk) const {
  std::vector<OperationHeader> headers(ranks_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    const uint8_t* const at =
        headers_ + (chunk % group_->layout.slots * ranks_ + rank) * kBoardLine;
    std::memcpy(&headers[rank], at, sizeof headers[rank]);
  }
  return headers;
}

std::string ShmBoard::waiting_for() const {
  MutexLock lock(&mutex_);
  return waiting_for_;
}

}  // namespace sluice
