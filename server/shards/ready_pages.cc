#include "server/shards/ready_pages.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kTakenForOneReady = 8;
constexpr size_t kSmallestPage = 4096;

// Returns a huge page that the kernel has zeroed, or small pages of that size if it has no huge
// one. Without memory, the result has no data.
MappedMemory NewPage() {
  try {
    MappedMemory page(MappedMemory::kHugePage, MappedMemory::Pages::kHuge);
    // Writing makes the kernel map and zero the page now, on this thread, and not at its first use
    // under a shard's lock.
    volatile uint8_t* const bytes = page.data();
    for (size_t at = 0; at < page.size(); at += kSmallestPage) bytes[at] = 0;
    return page;
  } catch (const std::bad_alloc&) {
    return MappedMemory();
  }
}

MappedMemory Zeroed(MappedMemory page) {
  std::memset(page.data(), 0, page.size());
  return page;
}

}  // namespace

ReadyPages::User::~User() {
  if (!announced_) return;
  MutexLock lock(&pages_->mutex_);
  --pages_->users_;
  pages_->taken_ -= taken_;
  pages_->Changed();
}

void ReadyPages::User::Announce() {
  if (announced_) return;
  announced_ = true;
  MutexLock lock(&pages_->mutex_);
  ++pages_->users_;
  pages_->Changed();
}

MappedMemory ReadyPages::User::Take() {
  Announce();
  MutexLock lock(&pages_->mutex_);
  MappedMemory page;
  if (!pages_->ready_.empty()) {
    page = std::move(pages_->ready_.back());
    pages_->ready_.pop_back();
    // The more pages are in use, the more are kept ready (Wanted).
    ++taken_;
    ++pages_->taken_;
  }
  pages_->Changed();
  return page;
}

void ReadyPages::User::Return(MappedMemory memory, bool taken) {
  Announce();
  MutexLock lock(&pages_->mutex_);
  if (taken) {
    --taken_;
    --pages_->taken_;
  }
  pages_->Changed();
  if (!pages_->thread_.joinable()) return;  // unmapped here
  try {
    pages_->returned_.push_back(Returned{std::move(memory), taken});
  } catch (const std::bad_alloc&) {  // as above
  }
}

ReadyPages* ReadyPages::OfProcess() {
  // Never destroyed: stores on other threads may return pages until the process ends.
  static ReadyPages* const pages = new ReadyPages;
  return pages;
}

ReadyPages::~ReadyPages() {
  std::thread thread;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    Changed();
    thread = std::move(thread_);
  }
  // Without the lock, which Run takes.
  if (thread.joinable()) thread.join();
}

size_t ReadyPages::Wanted() const {
  return users_ == 0 ? 0 : std::min(kMost, users_ + taken_ / kTakenForOneReady);
}

void ReadyPages::Changed() {
  refused_ = false;
  if (!thread_.joinable() && !stopping_) {
    try {
      ready_.reserve(kMost);
      thread_ = std::thread([this] { Run(); });
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {
      // Without a thread there are no ready pages; stores use small ones.
    }
  }
  changed_.NotifyOne();
}

bool ReadyPages::Idle() const {
  return returned_.empty() && (ready_.size() == Wanted() || (refused_ && ready_.size() < Wanted()));
}

void ReadyPages::Run() {
  mutex_.Lock();
  while (!stopping_) {
    if (Idle()) {
      settled_.NotifyAll();
      changed_.Wait(&mutex_);
      continue;
    }
    const bool wanted = ready_.size() < Wanted();
    Returned old;
    if (!returned_.empty()) {
      old = std::move(returned_.back());
      returned_.pop_back();
    } else if (!wanted) {
      old.memory = std::move(ready_.back());
      ready_.pop_back();
    }
    // Zeroing and unmapping take long, and stores take pages under their shard's lock.
    mutex_.Unlock();
    MappedMemory page;
    if (wanted) page = old.taken ? Zeroed(std::move(old.memory)) : NewPage();
    old.memory = MappedMemory();
    mutex_.Lock();
    if (!wanted) continue;
    // After a refusal the thread sleeps until something changes; asking at once would only repeat
    // it.
    refused_ = page.data() == nullptr;
    if (!refused_) ready_.push_back(std::move(page));
  }
  mutex_.Unlock();
}

size_t ReadyPages::taken_for_test() {
  MutexLock lock(&mutex_);
  return taken_;
}

size_t ReadyPages::WaitUntilReadyForTest() {
  MutexLock lock(&mutex_);
  while (!Idle()) settled_.Wait(&mutex_);
  return ready_.size();
}

}  // namespace sluice
