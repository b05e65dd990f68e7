#include "common/places/range_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kWaitingFetches = 256;  // more are not fetched ahead

// Shares nothing with `status`, so that threads need not agree on who deletes it. The thread
// sanitizer does not see the count of users in Abseil's library.
absl::Status OwnCopy(const absl::Status& status) {
  return absl::Status(status.code(), status.message());
}

}  // namespace

RangeCache::RangeCache(const Options& options) : options_(options) {}

RangeCache::~RangeCache() {
  std::unique_ptr<TaskThreads> threads;
  {
    MutexLock lock(&mutex_);
    threads = std::move(threads_);
  }
  threads.reset();  // without the lock, which the last fetches take
}

std::string RangeCache::NameOf(const File& file, const FileRange& range) {
  return absl::StrCat(range.begin, " ", range.bytes, " ", file.identity.size, " ",
                      file.identity.tag, " ", file.path);
}

size_t RangeCache::BytesOf(const File& file, const FileRange& range) {
  return std::min<uint64_t>(range.bytes, file.identity.size - range.begin);
}

absl::StatusOr<RangeCache::Part> RangeCache::Fetch(const File& file, const FileRange& range) {
  SLUICE_ASSIGN_OR_RETURN(
      std::string bytes,
      file.files->ReadRange(file.path, file.identity, range.begin, BytesOf(file, range)));
  return std::make_shared<const std::string>(std::move(bytes));
}

void RangeCache::EndAhead(const std::string& name, Entry* entry) {
  entry->ahead = false;
  ahead_ -= entry->bytes;
  if (entry->done) entry->used = order_.insert(order_.end(), name);
}

void RangeCache::Finish(const std::string& name, const EntryPtr& entry, absl::StatusOr<Part> part) {
  MutexLock lock(&mutex_);
  entry->done = true;
  fetched_.NotifyAll();
  if (!part.ok()) {
    // Those that wait get the error; the next one asks again.
    entry->error = OwnCopy(part.status());
    if (entry->ahead) ahead_ -= entry->bytes;
    entry->ahead = false;
    entries_.erase(name);
    return;
  }
  entry->part = *std::move(part);
  bytes_ += entry->part->size();
  // A part that waits for its use is not dropped: it would be fetched twice.
  if (!entry->ahead) entry->used = order_.insert(order_.end(), name);
  while (bytes_ > options_.most_bytes && order_.size() > 1) {
    const auto oldest = entries_.find(order_.front());
    bytes_ -= oldest->second->part->size();
    entries_.erase(oldest);
    order_.pop_front();
  }
}

absl::StatusOr<RangeCache::Part> RangeCache::Get(const File& file, const FileRange& range,
                                                 bool* fetched) {
  const std::string name = NameOf(file, range);
  EntryPtr entry;
  {
    MutexLock lock(&mutex_);
    EntryPtr& known = entries_[name];
    if (known != nullptr) {
      entry = known;
      *fetched = !entry->done;
      if (entry->ahead) EndAhead(name, entry.get());
      while (!entry->done) fetched_.Wait(&mutex_);
      if (!entry->error.ok()) return OwnCopy(entry->error);
      // It may have been dropped since.
      if (entries_.find(name) != entries_.end() && entries_[name] == entry)
        order_.splice(order_.end(), order_, entry->used);
      return entry->part;
    }
    known = entry = std::make_shared<Entry>();
    *fetched = true;
  }
  absl::StatusOr<Part> part = Fetch(file, range);
  Finish(name, entry, part);
  return part;
}

void RangeCache::Prefetch(const File& file, const FileRange& range) {
  if (range.begin >= file.identity.size) return;
  std::string name = NameOf(file, range);
  auto entry = std::make_shared<Entry>();
  entry->ahead = true;
  entry->bytes = BytesOf(file, range);
  MutexLock lock(&mutex_);
  // What is fetched ahead must not push out what is used now.
  if (ahead_ + entry->bytes > MostAhead()) return;
  if (!entries_.emplace(name, entry).second) return;
  if (threads_ == nullptr)
    threads_ = std::make_unique<TaskThreads>(options_.threads, kWaitingFetches);
  ahead_ += entry->bytes;
  const bool taken =
      threads_->Add([this, file, range, name, entry] { Finish(name, entry, Fetch(file, range)); });
  if (taken) return;
  ahead_ -= entry->bytes;
  entries_.erase(name);
}

bool RangeCache::Has(const File& file, const FileRange& range) {
  const std::string name = NameOf(file, range);
  MutexLock lock(&mutex_);
  return entries_.find(name) != entries_.end();
}

void RangeCache::GiveUp(const File& file, const FileRange& range) {
  const std::string name = NameOf(file, range);
  MutexLock lock(&mutex_);
  const auto found = entries_.find(name);
  if (found != entries_.end() && found->second->ahead) EndAhead(name, found->second.get());
}

void RangeCache::AddReader() {
  MutexLock lock(&mutex_);
  ++readers_;
}

void RangeCache::RemoveReader() {
  MutexLock lock(&mutex_);
  --readers_;
}

uint64_t RangeCache::AheadOfReader() {
  MutexLock lock(&mutex_);
  return std::max<uint64_t>(1, MostAhead() / options_.part_bytes / std::max<size_t>(1, readers_));
}

}  // namespace sluice
