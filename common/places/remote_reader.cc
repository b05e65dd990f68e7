#include "common/places/remote_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice {

absl::StatusOr<size_t> RemoteReader::ReadFew(uint64_t offset, void* to, size_t n) {
  if (offset < RangeCache::kHeadBytes)
    return Use(cache_->Get(file_, RangeCache::kHead), 0, offset, to, n);
  auto bytes = file_.files->ReadRange(file_.path, file_.identity, offset, n);
  if (!bytes.ok()) return Use(bytes.status(), offset, offset, to, n);
  return Use(std::make_shared<const std::string>(*std::move(bytes)), offset, offset, to, n);
}

absl::StatusOr<size_t> RemoteReader::Use(absl::StatusOr<RangeCache::Part> part, uint64_t begin,
                                         uint64_t offset, void* to, size_t n) {
  report_(part.status());
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
  const uint64_t last = std::min((end - 1) / part_bytes, number + kPartsAhead);
  for (uint64_t ahead = number + 1; ahead <= last; ++ahead) cache_->Prefetch(file_, ahead);
  return Use(cache_->Get(file_, number), number * part_bytes, offset, to, n);
}

}  // namespace sluice
