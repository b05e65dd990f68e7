// A FileReader of a remote file that reads ahead of its user.
//
// A reader that looks at a few bytes asks for these alone. One that goes on takes whole parts from
// a RangeCache and has the next ones fetched meanwhile, up to where its user expects to end. One
// whose user names ranges fetches these and nothing besides, several at once. What was asked for
// ahead still comes when the reader is destroyed, for others to find.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/ranges_reader.h"
#include "common/places/range_cache.h"

namespace sluice {

class RemoteReader : public RangesReader {
 public:
  static constexpr uint64_t kPartsAhead = 16;
  // Bytes that are read in a row before whole parts are.
  static constexpr uint64_t kFewBytes = 256 << 10;

  // `cache` outlives this. `report` is told how each request went that this reader made or waited
  // for, and nothing of parts that were in memory.
  RemoteReader(RangeCache::File file, RangeCache* cache,
               std::function<void(const absl::Status&)> report)
      : RangesReader({FileInfo::Kind::kFile, file.identity}),
        file_(std::move(file)),
        cache_(cache),
        report_(std::move(report)) {}
  ~RemoteReader() override;

  absl::StatusOr<size_t> ReadAt(uint64_t offset, void* to, size_t n) override;
  void ExpectEnd(uint64_t end) override { expected_end_ = end; }
  void ExpectRanges(std::vector<FileRange> ranges) override;
  void ExpectPieces(std::vector<FileRange> pieces) override;
  void ExpectHead() override;

 private:
  // Has the parts [begin, end) fetched, and gives up those that were asked for outside of them.
  void Expect(uint64_t begin, uint64_t end);
  absl::StatusOr<size_t> ReadFew(uint64_t offset, void* to, size_t n);
  // The index of the part of the plan that has the byte at `offset`; its size: there is none.
  size_t Planned(uint64_t offset) const;
  // Has the parts of the plan from `first` on fetched, as far as there is room for this reader.
  void ExpectPlanned(size_t first);
  void ReadAhead();
  FileRange PartOf(uint64_t number) const {
    return {number * cache_->part_bytes(), cache_->part_bytes()};
  }
  // Takes bytes out of a part that begins at `begin`, and keeps it. `fetched`: not from memory.
  absl::StatusOr<size_t> Use(absl::StatusOr<RangeCache::Part> part, bool fetched, uint64_t begin,
                             uint64_t offset, void* to, size_t n);

  const RangeCache::File file_;
  RangeCache* const cache_;
  const std::function<void(const absl::Status&)> report_;
  uint64_t expected_end_ = UINT64_MAX;
  uint64_t run_begin_ = 0, run_end_ = 0;  // what was read in a row
  // The bytes that were read last.
  RangeCache::Part part_;
  uint64_t part_begin_ = 0;
  bool reads_ahead_ = false;                  // counted by the cache
  uint64_t ahead_begin_ = 0, ahead_end_ = 0;  // numbers of the parts that were asked for ahead
  // The ranges that were named, in parts that are fetched at once. By begin; none overlap.
  std::vector<FileRange> plan_;
  size_t planned_end_ = 0;  // of the plan; those before it were asked for
};

}  // namespace sluice
