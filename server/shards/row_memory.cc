#include "server/shards/row_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;
// A reading pays for this part of what is left, so that a stale one does little harm.
constexpr uint64_t kPartsOfReading = 8;

uint64_t ReserveOf(uint64_t available) {
  return std::min(std::clamp(available / 16, 64 * kMiB, 2048 * kMiB), available / 4);
}

}  // namespace

bool RowMemory::User::Take(uint64_t bytes) {
  return memory_ == nullptr || memory_->Take(bytes, 1, &announced_);
}

void RowMemory::User::Touched() {
  if (announced_ == 0) return;
  MutexLock lock(&memory_->mutex_);
  memory_->announced_ -= announced_;
  announced_ = 0;
}

bool RowMemory::Take(uint64_t bytes, uint64_t divisor, uint64_t* of_user) {
  const absl::Time now = clock_->Now();
  {
    MutexLock lock(&mutex_);
    if (of_user != nullptr) announced_ -= std::exchange(*of_user, 0);
    // Reading the kernel's figures takes about 0.1 ms, under a shard's lock, so most calls rely on
    // the last reading.
    if (now - read_at_ < kFresh && Fits(bytes, divisor, kPartsOfReading)) {
      Account(bytes, of_user);
      return true;
    }
  }
  // Without the lock: other stores may grow meanwhile.
  const uint64_t available = available_();
  MutexLock lock(&mutex_);
  Note(available, now);
  if (!Fits(bytes, divisor, 1)) return false;
  Account(bytes, of_user);
  return true;
}

void RowMemory::Account(uint64_t bytes, uint64_t* of_user) {
  taken_ += bytes;
  if (of_user == nullptr) return;
  announced_ += bytes;
  *of_user = bytes;
}

bool RowMemory::Fits(uint64_t bytes, uint64_t divisor, uint64_t parts) const {
  // Rows leave the whole reserve (divisor 1); messages and checkpoints may take part of it.
  const uint64_t kept = reserve_ / divisor;
  const uint64_t room = left_ > kept ? (left_ - kept) / parts : 0;
  return taken_ <= room && bytes <= room - taken_;
}

void RowMemory::Note(uint64_t available, absl::Time now) {
  if (reserve_ == 0) reserve_ = ReserveOf(available);
  read_at_ = now;
  last_available_ = available;
  // The kernel still counts memory as available that was granted but not touched yet.
  left_ = available - std::min(available, announced_);
  taken_ = 0;
}

std::string RowMemory::Figures() {
  MutexLock lock(&mutex_);
  return absl::StrFormat(
      "%.1f MiB are available (MemAvailable, or what a control group leaves), "
      "of which the pserver keeps %.1f MiB for other uses",
      static_cast<double>(last_available_) / kMiB, static_cast<double>(reserve_) / kMiB);
}

}  // namespace sluice
