#include "common/places/remote_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice {

RemoteReader::~RemoteReader() {
  if (!reads_ahead_) return;
  ExpectRanges({});
  Expect(0, 0);
  cache_->RemoveReader();
}

void RemoteReader::Expect(uint64_t begin, uint64_t end) {
  for (uint64_t number = ahead_begin_; number < ahead_end_; ++number)
    if (number < begin || number >= end) cache_->GiveUp(file_, PartOf(number));
  for (uint64_t number = begin; number < end; ++number) cache_->Prefetch(file_, PartOf(number));
  ahead_begin_ = begin;
  ahead_end_ = end;
}

void RemoteReader::ReadAhead() {
  if (!reads_ahead_) cache_->AddReader();
  reads_ahead_ = true;
}

void RemoteReader::ExpectRanges(std::vector<FileRange> ranges) {
  for (size_t i = 0; i < planned_end_; ++i) cache_->GiveUp(file_, plan_[i]);
  plan_.clear();
  planned_end_ = 0;
  std::sort(ranges.begin(), ranges.end(),
            [](const FileRange& a, const FileRange& b) { return a.begin < b.begin; });
  const uint64_t size = file_.identity.size, most = cache_->part_bytes();
  uint64_t end = 0;  // of the plan
  for (const FileRange& range : ranges) {
    uint64_t begin = std::max(range.begin, end);
    if (range.begin >= size || range.bytes > size - range.begin) continue;
    end = std::max(end, range.begin + range.bytes);
    // A range that touches the one before it needs no request of its own.
    if (!plan_.empty() && plan_.back().begin + plan_.back().bytes == begin) {
      const uint64_t more = std::min(end - begin, most - plan_.back().bytes);
      plan_.back().bytes += more;
      begin += more;
    }
    for (; begin < end; begin += plan_.back().bytes)
      plan_.push_back({begin, std::min(end - begin, most)});
  }
  if (plan_.empty()) return;
  ReadAhead();
  ExpectPlanned(0);
}

void RemoteReader::ExpectPieces(std::vector<FileRange> pieces) {
  const uint64_t size = file_.identity.size, most = cache_->part_bytes();
  std::vector<FileRange> parts, ranges;
  for (FileRange& piece : pieces) {
    piece.bytes = std::min(piece.bytes, size - std::min(size, piece.begin));
    const uint64_t end = piece.begin + piece.bytes;
    std::vector<FileRange> around;
    bool here = true;
    for (uint64_t begin = piece.begin / most * most; begin < end; begin += most) {
      around.push_back({begin, std::min(most, size - begin)});
      here = here && cache_->Has(file_, around.back());
      if (parts.empty() || parts.back().begin < begin) parts.push_back(around.back());
    }
    // Parts that are here need no request.
    if (!here) around = {piece};
    ranges.insert(ranges.end(), around.begin(), around.end());
  }
  if (parts.empty()) return;
  // With a piece in each part, whole parts are fewer requests, and stay in memory for the others
  // that read between the pieces.
  const uint64_t span = (parts.back().begin - parts.front().begin) / most + 1;
  ExpectRanges(span <= pieces.size() ? std::move(parts) : std::move(ranges));
}

void RemoteReader::ExpectHead() { cache_->Prefetch(file_, {0, RangeCache::kHeadBytes}); }

size_t RemoteReader::Planned(uint64_t offset) const {
  const auto after =
      std::upper_bound(plan_.begin(), plan_.end(), offset,
                       [](uint64_t value, const FileRange& range) { return value < range.begin; });
  if (after == plan_.begin()) return plan_.size();
  const auto range = std::prev(after);
  return offset - range->begin < range->bytes ? static_cast<size_t>(range - plan_.begin())
                                              : plan_.size();
}

void RemoteReader::ExpectPlanned(size_t first) {
  uint64_t room = std::min(kPartsAhead, cache_->AheadOfReader()) * cache_->part_bytes();
  for (size_t i = first; i < plan_.size() && plan_[i].bytes <= room; ++i) {
    room -= plan_[i].bytes;
    // Those before planned_end_ may wait for their use, or were used.
    if (i < planned_end_) continue;
    cache_->Prefetch(file_, plan_[i]);
    planned_end_ = i + 1;
  }
}

absl::StatusOr<size_t> RemoteReader::ReadFew(uint64_t offset, void* to, size_t n) {
  if (offset < RangeCache::kHeadBytes) {
    bool fetched = false;
    auto head = cache_->Get(file_, {0, RangeCache::kHeadBytes}, &fetched);
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
  if (const size_t planned = Planned(offset); planned < plan_.size()) {
    ExpectPlanned(planned + 1);
    bool fetched = false;
    auto part = cache_->Get(file_, plan_[planned], &fetched);
    return Use(std::move(part), fetched, plan_[planned].begin, offset, to, n);
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
  if (last > number) ReadAhead();
  if (reads_ahead_) {
    // Parts that were asked for stay wanted when others begin to read and the share gets smaller.
    const uint64_t share = std::min(kPartsAhead, cache_->AheadOfReader());
    const uint64_t ahead_end =
        std::max(number + 1 + share, std::min(ahead_end_, number + 1 + kPartsAhead));
    Expect(number + 1, std::min(last + 1, ahead_end));
  }
  bool fetched = false;
  auto part = cache_->Get(file_, PartOf(number), &fetched);
  return Use(std::move(part), fetched, number * part_bytes, offset, to, n);
}

}  // namespace sluice
