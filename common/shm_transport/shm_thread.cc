#include "common/shm_transport/shm_thread.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace sluice {
namespace {

// How long the thread looks for events before it sleeps, as in grpc_convert.cc.
constexpr std::chrono::microseconds kLook(50);
constexpr int kEventsATurn = 64;
// The thread looks at the sockets after so many turns, even while its rings are busy.
constexpr int kTurnsBetweenPolls = 16;

ShmStream::Time Now() { return std::chrono::steady_clock::now(); }

}  // namespace

ShmThread::ShmThread(absl::Duration check_every)
    : check_every_(absl::ToChronoNanoseconds(check_every)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      posted_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  // Only a process without free descriptors fails here, at its start: it cannot work at all.
  const bool watched = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, posted_event_.get(), &event) == 0;
  if (!watched) std::abort();
  thread_ = std::thread([this] { Loop(); });
}

ShmThread::~ShmThread() { Stop(); }

void ShmThread::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  eventfd_write(posted_event_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void ShmThread::Add(std::shared_ptr<ShmStream> stream) { Post(std::move(stream), true); }
void ShmThread::Look(std::shared_ptr<ShmStream> stream) { Post(std::move(stream), false); }

void ShmThread::Post(std::shared_ptr<ShmStream> stream, bool add) {
  {
    MutexLock lock(&mutex_);
    // The thread has ended: no stream of it is open any more.
    if (stopped_) return;
    posted_.push_back({std::move(stream), add});
    if (posted_.size() > 1) return;  // the event is set already
  }
  eventfd_write(posted_event_.get(), 1);
}

void ShmThread::Loop() {
  ShmStream::Time next_check = Now() + check_every_;
  for (int turn = 0;; ++turn) {
    const ShmStream::Time now = Now();
    if (!TakePosts(now)) return;
    const bool progress = RunBusy(now);
    if (now >= next_check) {
      CheckPeers(now);
      next_check = now + check_every_;
    }
    // While rings are busy, system calls would only slow them down.
    if (progress && turn % kTurnsBetweenPolls != 0) continue;
    std::chrono::nanoseconds wait(0);
    // After progress the state may be one in which the thread ends.
    if (busy_.empty() && !progress)
      wait = entries_.empty() ? std::chrono::hours(1) : next_check - now;
    // The peer that this thread waits for may need this processor.
    if (Poll(wait, now) == 0 && !progress && !busy_.empty()) sched_yield();
  }
}

bool ShmThread::TakePosts(ShmStream::Time now) {
  std::vector<PostedStream> posted;
  bool stopping;
  {
    MutexLock lock(&mutex_);
    posted.swap(posted_);
    stopping = stopping_;
  }
  for (PostedStream& p : posted) {
    ShmStream* const stream = p.stream.get();
    if (p.add) {
      epoll_event event = {};
      event.events = EPOLLIN;
      event.data.ptr = stream;
      if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream->fd(), &event) != 0)
        stream->Abort(absl::ResourceExhaustedError("the kernel watches no more local sockets"));
      entries_[stream].stream = std::move(p.stream);
    }
    // A stream that is not here is finished, or it is posted before it is added.
    const auto entry = entries_.find(stream);
    if (entry != entries_.end()) MakeBusy(&entry->second, now);
  }
  // Streams end on this thread. It stays until the last one has.
  if (!stopping || !entries_.empty()) return true;
  MutexLock lock(&mutex_);
  stopped_ = posted_.empty();  // a later post has set the event
  return !stopped_;
}

void ShmThread::MakeBusy(Entry* entry, ShmStream::Time now) {
  entry->last_event = now;
  if (entry->busy) return;
  entry->busy = true;
  entry->stream->WakeUp();
  busy_.push_back(entry->stream.get());
}

bool ShmThread::RunBusy(ShmStream::Time now) {
  bool progress = false;
  size_t kept = 0;
  for (size_t i = 0; i < busy_.size(); ++i) {
    ShmStream* const stream = busy_[i];
    Entry& entry = entries_.at(stream);
    const ShmStream::Outcome outcome = stream->Run(now);
    if (outcome == ShmStream::Outcome::kDone) {
      Remove(stream);
      progress = true;
      continue;
    }
    if (outcome == ShmStream::Outcome::kProgress) {
      entry.last_event = now;
      progress = true;
    } else if (now - entry.last_event > kLook && stream->Sleep()) {
      entry.busy = false;
      continue;
    }
    busy_[kept++] = stream;
  }
  busy_.resize(kept);
  return progress;
}

void ShmThread::Remove(ShmStream* stream) {
  const auto entry = entries_.find(stream);
  const std::shared_ptr<ShmStream> last = std::move(entry->second.stream);
  entries_.erase(entry);
  // A child process that has not yet called exec may keep the descriptor open.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream->fd(), nullptr);
  stream->Finish();
}

void ShmThread::CheckPeers(ShmStream::Time now) {
  for (auto& [stream, entry] : entries_) {
    if (stream->CheckPeer(now)) MakeBusy(&entry, now);
  }
}

int ShmThread::Poll(std::chrono::nanoseconds wait, ShmStream::Time now) {
  // Rounded up: a thread that wakes too early would only wait again.
  const int ms = static_cast<int>((wait.count() + 999'999) / 1'000'000);
  epoll_event events[kEventsATurn];
  const int n = epoll_wait(epoll_.get(), events, kEventsATurn, std::max(0, ms));
  for (int i = 0; i < n; ++i) {
    if (events[i].data.ptr == nullptr) {
      eventfd_t count;
      eventfd_read(posted_event_.get(), &count);
      continue;
    }
    const auto entry = entries_.find(static_cast<ShmStream*>(events[i].data.ptr));
    // An event of a stream that an earlier event of this turn has ended.
    if (entry == entries_.end()) continue;
    entry->first->ReadSocket(now);
    MakeBusy(&entry->second, now);
  }
  return n;
}

}  // namespace sluice
