#include "server/shards/pre_images.h"

#include <algorithm>
#include <new>
#include <utility>

#include "common/base/seeded_hash.h"

namespace sluice {
namespace {

constexpr size_t kFirstPiece = 16 << 10, kLargestPiece = 1 << 20;
// Rows of the shard for each bucket, and so the length of a chain when updates reach all rows.
constexpr uint64_t kRowsABucket = 4;

size_t BucketsFor(uint64_t rows) {
  // A power of two, because BucketOf masks the hash.
  size_t buckets = 64;
  while (buckets < rows / kRowsABucket) buckets *= 2;
  return buckets;
}

}  // namespace

bool PreImageBudget::Take(uint64_t bytes) {
  // Adds first, and subtracts again on failure: otherwise two threads could both see room for the
  // last bytes.
  const uint64_t now = taken_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now > limit_.load(std::memory_order_relaxed) ||
      (row_memory_ != nullptr && !row_memory_->TakeFromReserve(bytes)) ||
      (parent_ != nullptr && !parent_->Take(bytes))) {
    taken_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  uint64_t most = most_.load(std::memory_order_relaxed);
  while (most < now && !most_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return true;
}

void PreImageBudget::Give(uint64_t bytes) {
  taken_.fetch_sub(bytes, std::memory_order_relaxed);
  if (parent_ != nullptr) parent_->Give(bytes);
}

PreImages::PreImages(uint64_t rows, size_t record_bytes, std::shared_ptr<PreImageBudget> budget)
    : entry_bytes_((sizeof(Entry) + record_bytes + alignof(Entry) - 1) / alignof(Entry) *
                   alignof(Entry)),
      buckets_(BucketsFor(rows)),
      budget_(std::move(budget)) {}

PreImages::Entry** PreImages::BucketOf(uint64_t key) const {
  return reinterpret_cast<Entry**>(bucket_memory_.data()) + (SeededHash(key) & (buckets_ - 1));
}

char* PreImages::Add(uint64_t key) {
  const bool room = (bucket_memory_.data() != nullptr || AddBuckets()) &&
                    (used_ + entry_bytes_ <= piece_bytes_ || AddPiece());
  if (!room) {
    // A cut that lacks one row is useless, so its memory is freed at once.
    failed_ = true;
    Drop();
    return nullptr;
  }
  auto* const entry = new (pieces_.back().get() + used_) Entry;
  used_ += entry_bytes_;
  Entry** const bucket = BucketOf(key);
  entry->next = *bucket;
  entry->key = key;
  *bucket = entry;
  return entry->record();
}

const char* PreImages::Find(uint64_t key) const {
  if (bucket_memory_.data() == nullptr) return nullptr;
  for (Entry* entry = *BucketOf(key); entry != nullptr; entry = entry->next) {
    if (entry->key == key) return entry->record();
  }
  return nullptr;
}

bool PreImages::AddBuckets() {
  try {
    bucket_memory_ = MappedMemory(buckets_ * sizeof(Entry*), MappedMemory::Pages::kSmall);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool PreImages::AddPiece() {
  // Pieces double: a cut with few updates stays small, one with many allocates seldom.
  const size_t bytes = std::max(
      entry_bytes_, pieces_.empty() ? kFirstPiece : std::min(2 * piece_bytes_, kLargestPiece));
  if (budget_ != nullptr && !budget_->Take(bytes)) return false;
  taken_ += bytes;
  try {
    pieces_.emplace_back(new char[bytes]);
  } catch (const std::bad_alloc&) {
    return false;
  }
  piece_bytes_ = bytes;
  used_ = 0;
  return true;
}

void PreImages::Drop() {
  pieces_.clear();
  piece_bytes_ = used_ = 0;
  bucket_memory_ = MappedMemory();
  if (budget_ != nullptr) budget_->Give(taken_);
  taken_ = 0;
}

}  // namespace sluice
