// Keeps the rows of a sparse shard as they were at a cut while updates continue: an update of a row
// that the cut still needs saves the row's record first.
//
// Memory: the saved records, 16 bytes more for each, and 2 bytes for each row of the shard once one
// is saved. It is taken from a budget in pieces of 16 KiB to 1 MiB. Without room all records are
// dropped, and the cut fails: updates never wait and never fail because of a cut.
//
// Thread safety: PreImageBudget is safe from any thread. PreImages is guarded by the owner's lock
// (the shard's).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/shards/mapped_memory.h"
#include "server/shards/row_memory.h"

namespace sluice {

// Bytes that cuts may use for what updates change meanwhile: of one checkpoint, or of a process.
class PreImageBudget {
 public:
  // Bytes are also taken from `parent`, which may be null and outlives this, and from the reserve
  // of `row_memory`, which may be null: rows that were added meanwhile may have left less than the
  // limit.
  explicit PreImageBudget(uint64_t limit, PreImageBudget* parent = nullptr,
                          std::shared_ptr<RowMemory> row_memory = nullptr)
      : parent_(parent), row_memory_(std::move(row_memory)), limit_(limit) {}

  void SetLimit(uint64_t limit) { limit_.store(limit, std::memory_order_relaxed); }
  // False, and nothing is taken, when the limit would be exceeded, or when there is less memory.
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes);
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  // The most bytes that were taken at one time.
  uint64_t most() const { return most_.load(std::memory_order_relaxed); }

 private:
  PreImageBudget* const parent_;
  const std::shared_ptr<RowMemory> row_memory_;
  // Relaxed: counters, on which nothing else depends.
  std::atomic<uint64_t> limit_, taken_{0}, most_{0};
};

class PreImages {
 public:
  // For a shard with `rows` rows, whose records have record_bytes. `budget` may be null: no limit.
  PreImages(uint64_t rows, size_t record_bytes, std::shared_ptr<PreImageBudget> budget);
  ~PreImages() { Drop(); }
  PreImages(const PreImages&) = delete;
  PreImages& operator=(const PreImages&) = delete;

  // The place [record_bytes] for the record of `key`, to be written at once; unaligned. Null, and
  // failed(), when there is no room.
  // REQUIRES: !failed(), and it has no record of `key`.
  char* Add(uint64_t key);
  // The record of `key`; null when there is none.
  const char* Find(uint64_t key) const;
  bool failed() const { return failed_; }

 private:
  // A record, in front of its bytes.
  struct Entry {
    Entry* next;  // of the same bucket
    uint64_t key;
    char* record() { return reinterpret_cast<char*>(this + 1); }
  };

  Entry** BucketOf(uint64_t key) const;
  bool AddBuckets();
  bool AddPiece();
  void Drop();

  const size_t entry_bytes_;
  const size_t buckets_;  // a power of two
  const std::shared_ptr<PreImageBudget> budget_;
  MappedMemory bucket_memory_;  // Entry* [buckets_], zero until used; empty before the first Add
  std::vector<std::unique_ptr<char[]>> pieces_;
  size_t piece_bytes_ = 0, used_ = 0;  // of the last piece
  uint64_t taken_ = 0;                 // from the budget
  bool failed_ = false;
};

}  // namespace sluice
