// A FileReader of a remote file that reads ahead of its user.
//
// A reader that looks at a few bytes asks for these alone. One that goes on takes whole parts from
// a RangeCache and has the next ones fetched meanwhile, up to where its user expects to end.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/env.h"
#include "common/places/range_cache.h"

namespace sluice {

class RemoteReader : public FileReader {
 public:
  static constexpr uint64_t kPartsAhead = 16;
  // Bytes that are read in a row before whole parts are.
  static constexpr uint64_t kFewBytes = 256 << 10;

  // `cache` outlives this. `report` is told how each request went that this reader made or waited
  // for, and nothing of parts that were in memory.
  RemoteReader(RangeCache::File file, RangeCache* cache,
               std::function<void(const absl::Status&)> report)
      : FileReader({FileInfo::Kind::kFile, file.identity}),
        file_(std::move(file)),
        cache_(cache),
        report_(std::move(report)) {}
  ~RemoteReader() override;

  absl::StatusOr<size_t> ReadAt(uint64_t offset, void* to, size_t n) override;
  void ExpectEnd(uint64_t end) override { expected_end_ = end; }

 private:
  // Has the parts [begin, end) fetched, and gives up those that were asked for outside of them.
  void Expect(uint64_t begin, uint64_t end);
  absl::StatusOr<size_t> ReadFew(uint64_t offset, void* to, size_t n);
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
};

}  // namespace sluice
