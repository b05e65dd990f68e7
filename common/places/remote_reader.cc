#include "common/places/remote_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice {

RemoteReader::~RemoteReader() {
  if (!reads_ahead_) return;
  Expect(0, 0);
  cache_->RemoveReader();
}

void RemoteReader::Expect(uint64_t begin, uint64_t end) {
  for (uint64_t number = ahead_begin_; number < ahead_end_; ++number)
    if (number < begin || number >= end) cache_->GiveUp(file_, number);
  for (uint64_t number = begin; number < end; ++number) cache_->Prefetch(file_, number);
  ahead_begin_ = begin;
  ahead_end_ = end;
}

absl::StatusOr<size_t> RemoteReader::ReadFew(uint64_t offset, void* to, size_t n) {
  if (offset < RangeCache::kHeadBytes) {
    bool fetched = false;
    auto head = cache_->Get(file_, RangeCache::kHead, &fetched);
    return Use(std::move(head), fetched, 0, offset, to, n);
  }
  auto bytes = file_.files->ReadRange(file_.path, file_.identity, offset, n);
  if (!bytes.ok()) return Use(bytes.status(), true, offset, offset, to, n);
  return Use(std::make_shared<const std::string>(*std::move(bytes)), true, offset, offset, to, n);
}

absl::StatusOr<size_t> RemoteReader::Use(absl::StatusOr<RangeCache::Part> part, bool fetched,
                                         uint64_t begin, uint64_t offset, void* to, size_t n) {
  if (fetched) report_(part.status());
  if (!part.ok()) return AsFileError(part.status());
  part_ = *std::move(part);
  part_begin_ = begin;
  n = std::min<uint64_t>(n, begin + part_->size() - offset);
  std::memcpy(to, part_->data() + (offset - begin), n);
  run_end_ = offset + n;
  return n;
}

absl::StatusOr<size_t> RemoteReader::ReadAt(uint64_t offset, void* to, size_t n) {
  const uint64_t size = file_.identity.size;
  if (offset >= size) return 0;
  n = std::min<uint64_t>(n, size - offset);
  if (part_ != nullptr && offset >= part_begin_ && offset - part_begin_ < part_->size()) {
    n = std::min<uint64_t>(n, part_begin_ + part_->size() - offset);
    std::memcpy(to, part_->data() + (offset - part_begin_), n);
    run_end_ = std::max(run_end_, offset + n);
    return n;
  }
  if (offset != run_end_) run_begin_ = run_end_ = offset;
  const uint64_t end = std::min(size, std::max(expected_end_, offset + n));
  // Little is read here, or little is known to be wanted. Else small pieces of a file share its
  // parts.
  const bool short_run = offset + n - run_begin_ <= kFewBytes;
  const bool wants_few = expected_end_ == UINT64_MAX || expected_end_ <= offset ||
                         expected_end_ - run_begin_ <= RangeCache::kHeadBytes;
  if (short_run && wants_few) return ReadFew(offset, to, n);

  const uint64_t part_bytes = cache_->part_bytes();
  const uint64_t number = offset / part_bytes;
  const uint64_t last = (end - 1) / part_bytes;  // that is wanted
  if (last > number) {
    if (!reads_ahead_) cache_->AddReader();
    reads_ahead_ = true;
  }
  if (reads_ahead_) {
    // Parts that were asked for stay wanted when others begin to read and the share gets smaller.
    const uint64_t share = std::min(kPartsAhead, cache_->AheadOfReader());
    const uint64_t ahead_end =
        std::max(number + 1 + share, std::min(ahead_end_, number + 1 + kPartsAhead));
    Expect(number + 1, std::min(last + 1, ahead_end));
  }
  bool fetched = false;
  auto part = cache_->Get(file_, number, &fetched);
  return Use(std::move(part), fetched, number * part_bytes, offset, to, n);
}

}  // namespace sluice
