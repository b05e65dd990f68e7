// What the newest cut of a sparse shard needs of the shard's rows, and the reading of a cut.
//
// A cut covers the rows that existed when it began. A row's header tells by its version what the
// newest cut, the begun_-th, still needs of it:
//
//   below 2 * begun_   the row belongs to the cut, which has not read it yet: an update saves its
//                      record first
//   2 * begun_         it belongs to the cut, and its record was read or saved
//   2 * begun_ + 1     it is younger than the cut
//   Header::kFree      there is no row
//
// An erased row that belongs to an open cut keeps its slot until the cut ends, because its bytes
// are what the cut has to read. When its key comes back meanwhile, it gets another slot.
//
// Thread safety: RowCuts is guarded by the owner's lock (the shard's). A Reader belongs to one
// thread, and takes that lock a piece at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/saved_model/delta_image.h"
#include "common/saved_model/shard_image.h"
#include "common/table/row_days.h"
#include "common/table/row_expiry.h"
#include "server/shards/pre_images.h"
#include "server/shards/row_store.h"
#include "server/shards/row_tombstones.h"

namespace sluice {

class RowCuts {
 public:
  // The part of a row's record that follows the key.
  struct RecordForm {
    bool history = false;    // last_seen and count
    size_t float_bytes = 0;  // of weights and state
    size_t bytes() const { return (history ? kRowHistoryBytes : 0) + float_bytes; }
  };
  // What a cut reads; the shard's parts outlive it.
  struct Source {
    Mutex* mutex = nullptr;   // the owner's lock
    std::string name;         // of the shard, in messages
    const RowExpiry* expiry;  // rows that had expired do not belong to the cut
    const RowDays* days;
    uint64_t live_from = 0;      // RowExpiry::LiveFrom at the cut
    bool names_gone = false;     // facts and deltas name the rows that are gone
    uint64_t since = 0;          // CutOptions.since
    std::vector<uint64_t> gone;  // with `since`: the keys of rows that had gone
    std::shared_ptr<PreImageBudget> budget;
  };
  class Reader;

  // `store` outlives it.
  explicit RowCuts(RowStore* store) : store_(store) {}

  // A reader of the rows that exist now. Its cut begins with Begin. Destroying it ends the cut.
  std::unique_ptr<Reader> NewReader(RecordForm form, Source source);
  // REQUIRES: !open(), and no row has changed since NewReader.
  void Begin(Reader* reader);
  bool open() const { return images_ != nullptr; }

  // Call before a row changes.
  void BeforeUpdate(const RowStore::Row& row) {
    if (row.header->version >= 2 * begun_) return;
    if (images_ != nullptr) Save(row);
    row.header->version = 2 * begun_;
  }
  uint32_t version_of_new_rows() const { return 2 * begun_ + 1; }
  // Call before a row is erased. Throws bad_alloc.
  void MakeRoomToErase();
  // Frees the slot of an unlinked row, or has the end of the cut free it.
  void Free(uint32_t id);
  // True if the slot's bytes are those of a row that was erased while the present cut is open.
  bool WasErased(uint32_t id) const;
  // The slots of these rows.
  const std::vector<uint32_t>& erased() const { return erased_; }

 private:
  void Save(const RowStore::Row& row);
  static void WriteRecord(const RowStore::Row& row, const RecordForm& form, char* to);

  RowStore* const store_;
  uint32_t begun_ = 0;
  // The pre-images of the open cut, which owns them (null: none is open), and the form of its
  // records.
  PreImages* images_ = nullptr;
  RecordForm form_;
  std::vector<uint32_t> erased_;
};

// The rows below `slots` that existed when this was made. Rows never move, but their contents are
// read under the lock, a piece at a time.
class RowCuts::Reader : public DeltaRows {
 public:
  Reader(RowCuts* cuts, RecordForm form, Source source);
  ~Reader() override;

  uint64_t size() const override { return slots_; }
  absl::StatusOr<size_t> ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                  uint32_t* rows) override;
  absl::Status ListGone(std::vector<uint64_t>* keys) override;
  // Rows that had expired count as gone, whether or not the sweep has reached them.
  void AddFacts(ShardFacts* facts) override;
  absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) override;

 private:
  friend class RowCuts;

  absl::Status ReadSome(const uint32_t* rows, size_t n, size_t stride, char* to);

  RowCuts* const cuts_;
  const RecordForm form_;
  Source source_;
  const uint64_t slots_;
  const uint32_t in_cut_;  // the version of its rows that were read or saved
  uint64_t expired_ = 0;
  RowTombstones gone_;  // the expired ones, for facts
  bool begun_ = false;
  PreImages images_;  // under the lock
};

}  // namespace sluice
