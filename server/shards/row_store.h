// The rows of one shard of a sparse table: an open-addressing index over fixed-size rows in large
// blocks.
//
// Thread safety: guarded by the owner's lock (the shard's).
//
// Invariants:
// - Row ids are below slots() and never change. Each is live (its key is in the index), unlinked
//   (its bytes stay as they were) or free. A new row takes the id that was freed last, else
//   slots().
// - A row never moves, so pointers to it stay valid until it is freed.
// - The high bits of a key's hash give its home slot. Probing goes up and never wraps.
// - An index grows by being copied into one of twice the size, in order, a few slots per insertion.
// - A key whose tag is below moved_below_ is in index_, any other in old_index_. None is in both.
// - Unlinking shifts the keys behind a slot back, so the index has no tombstones, and its load is
//   that of the live rows.
//
// Memory:
// - Row: header 24 | weights 4 x dim | state 4 x state_floats, padded to 8 bytes.
// - Blocks have 2 MiB, or more if rows are large. Blocks, and each 2 MiB of an index, are huge
//   pages from ReadyPages, so that no insertion waits for the kernel to find and zero one.
// - The first block has small pages, so that a small shard stays small. Memory that is begun when
//   no huge page is ready also has small pages; the kernel may make them huge once they are full.
// - RowMemory is asked before memory is touched: for a huge page at once, for small pages a page
//   first and later an eighth of what the rows have, and for what an index grows by.
// - Freed rows keep their memory, which the next new rows use. Free ids form a list through their
//   headers, so they take nothing else.
// - Index: 8 bytes per slot at a load of 0.4 to 0.75, thus 10.7 to 19.7 bytes per row. This also
//   holds while it grows, because the old index is given back as it is copied.
//
// Bytes per row in all are 24 + 4 x (dim + state_floats) + 10.7 to 19.7:
//   dim 16, Adam      227 to 236, of which 200 are payload (key, weights, state)
//   dim 8, AdaGrad     99 to 108; 50 million rows take 4.6 to 5.0 GiB
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/shards/mapped_memory.h"
#include "server/shards/ready_pages.h"
#include "server/shards/row_memory.h"

namespace sluice {

class RowStore {
 public:
  static constexpr uint32_t kNoRow = UINT32_MAX;
  static constexpr size_t kMostRows = UINT32_MAX - 1;  // row + 1 fits into a slot, and is not 0

  struct Header {
    // Not of any row's version: the row is free. Its key is then the next free id, or kNoRow.
    static constexpr uint32_t kFree = UINT32_MAX;

    uint64_t key;
    uint32_t version;    // which cuts of the shard the row belongs to: see RowCuts
    uint32_t count;      // updates of this row; stays at 2^32 - 1
    uint64_t last_seen;  // schedule step of the last update

    // Counts an update. A hot row may get more of them than 32 bits count. What depends on the
    // count (bias correction) has long become constant there, but at 0 it would divide by 0.
    void CountUpdate() { count += count != UINT32_MAX; }
  };
  // Pointers to the parts of a row; all null: no row.
  struct Row {
    Header* header;
    float* weights;
    float* state;
  };

  // `pages` outlives the store. `memory` may be null: there is no bound but that of the kernel.
  RowStore(uint32_t dim, uint32_t state_floats, ReadyPages* pages,
           std::shared_ptr<RowMemory> memory = nullptr);

  // Calls visit(i, row of keys[i]) for i = 0 .. n - 1 in order. To overlap cache misses, the index
  // is prefetched kAhead keys ahead of the rows, and the rows kAhead keys ahead of the visit.
  // `floats`: how many weights and state floats of a row to prefetch. `visit` may insert and
  // unlink rows; later visits see that.
  template <typename Visit>
  void VisitRows(const uint64_t* keys, size_t n, size_t floats, Visit visit) const;

  // rows[i] = id of keys[i], or kNoRow.
  void Find(const uint64_t* keys, size_t n, uint32_t* rows) const;

  // Takes the memory of the next row, if it is not here yet. False: RowMemory refuses it, and
  // nothing that matters has changed. Throws bad_alloc as FindOrInsert.
  bool MakeRoom() { return ((slots_ < room_ || free_ != kNoRow) && !IndexIsFull()) || TakeRoom(); }
  // Says how much memory there was when MakeRoom failed.
  std::string MemoryFigures() const { return row_memory_.Figures(); }

  // Returns the row id of `key`, which is inserted if needed. A new row has zero count, version and
  // floats. The index grows a few slots per insertion: see kMovedAtOnce. Throws bad_alloc when
  // memory runs out: existing rows are still found, but no insertion may follow. Throws NoRoom,
  // changing nothing, when the key is new and there are kMostRows rows.
  uint32_t FindOrInsert(uint64_t key, bool* created);

  // Removes `key` from the index and returns the id of its row, or kNoRow. The row's bytes stay as
  // they are until Free.
  uint32_t Unlink(uint64_t key);
  // Lets a new row use the memory of an unlinked one.
  void Free(uint32_t id);
  bool is_free(uint32_t id) const { return header(id)->version == Header::kFree; }

  // Bulk mode, for loading a model: no caller waits for a single insertion, so blocks are huge
  // pages that the kernel zeroes at first touch. ReadyPages could not keep up with a load.
  void set_bulk(bool bulk) { bulk_ = bulk; }

  Row row(uint32_t id) const { return RowOf(RowAt(id)); }
  Header* header(uint32_t id) const { return row(id).header; }
  float* weights(uint32_t id) const { return row(id).weights; }
  float* state(uint32_t id) const { return row(id).state; }

  size_t size() const { return size_; }    // live rows
  size_t slots() const { return slots_; }  // ids in use, those of free rows included
  // Bytes that live rows use: header, weights and state.
  size_t bytes() const { return size_ * row_bytes_; }
  // Bytes that rows and index have taken, including unused room. Memory of a block that no row has
  // needed yet is left out, because the kernel has not given it.
  size_t reserved_bytes() const;

  void set_most_rows_for_test(size_t rows) { most_rows_ = rows; }
  bool growing_for_test() const { return old_index_.slots != nullptr; }
  size_t spilled_for_test() const { return index_.spill.size() + old_index_.spill.size(); }
  // Returns the hash of the index, whose high bits give the slot; for tests that need keys of one
  // slot.
  static uint64_t HashForTest(uint64_t key) { return uint64_t{Tag(key)} << 32; }

 private:
  static constexpr size_t kAhead = 16;

  struct Slot {
    uint32_t row_plus_1;  // 0: empty
    uint32_t tag;
  };
  struct Index {
    MappedMemory memory;
    Slot* slots = nullptr;  // [size + kSlack + 1]; the last one stays empty
    size_t size = 0;        // a power of two: homes of keys
    int shift = 0;          // home = tag >> shift
    // Slots from here on have never been written, and their huge pages are still to be chosen; a
    // multiple of kSlotsAPage. SIZE_MAX: the index is smaller than a huge page.
    size_t begun = 0;
    std::vector<bool> huge;  // [begun / kSlotsAPage]
    // Rows whose keys found no free slot. Empty unless hashes collide by chance or by design.
    absl::flat_hash_map<uint64_t, uint32_t> spill;
  };

  static constexpr size_t kMostSlots = size_t{1} << 32;  // tags have 32 bits
  static constexpr size_t kSlotsAPage = MappedMemory::kHugePage / sizeof(Slot);

  static Index NewIndex(size_t size);
  bool IndexIsFull() const { return size_ >= index_.size / 4 * 3 && index_.size < kMostSlots; }
  bool TakeRoom();
  // Adds a block. Returns true if all of it is in memory already.
  bool AddBlock();
  // Returns the high half of the key's hash.
  static uint32_t Tag(uint64_t key);
  const Index& IndexOf(uint32_t tag) const { return tag < moved_below_ ? index_ : old_index_; }

  uint8_t* RowAt(uint32_t id) const {
    // id / rows_per_block_, exact for 32 bits.
    const auto block =
        static_cast<uint64_t>((static_cast<unsigned __int128>(block_factor_) * id) >> 64);
    return blocks_[block].data() + (id - block * rows_per_block_) * row_bytes_;
  }
  Row RowOf(uint8_t* at) const {
    auto* weights = reinterpret_cast<float*>(at + sizeof(Header));
    return {reinterpret_cast<Header*>(at), weights, weights + dim_};
  }
  uint32_t Probe(uint32_t tag, uint64_t key) const;
  // Empties the slot, and closes the gap in the run behind it.
  static void Remove(Index* index, Slot* slot);
  // Returns the first row on the probe path of `tag` that has this tag, which is almost always the
  // right one. Null when there is none.
  uint8_t* Guess(uint32_t tag) const;
  void Place(Index* index, uint32_t tag, uint32_t id);
  // Chooses the pages of `index` up to the page of `slot`.
  void Begin(Index* index, size_t slot);
  // False: RowMemory refuses the new index.
  bool StartGrowth();
  void MoveSome();
  // Gives back the pages of old_index_ whose slots have been copied.
  void ReturnOldPages();

  const uint32_t dim_;
  const size_t row_bytes_;
  size_t block_bytes_ = 0;
  uint32_t rows_per_block_ = 0;
  uint64_t block_factor_ = 0;
  ReadyPages::User pages_;
  bool bulk_ = false;
  RowMemory::User row_memory_, index_memory_;
  std::vector<MappedMemory> blocks_;
  size_t size_ = 0, slots_ = 0, most_rows_ = kMostRows;
  size_t room_ = 0;         // rows whose memory was taken
  uint32_t free_ = kNoRow;  // the first of the list
  uint64_t unlinked_ = 0;   // how often Unlink has found a key
  Index index_, old_index_;
  size_t front_ = 0;                          // slots of old_index_ that have been copied
  size_t returned_ = 0;                       // slots of old_index_ whose memory is gone
  uint64_t moved_below_ = uint64_t{1} << 32;  // tags
};

template <typename Visit>
void RowStore::VisitRows(const uint64_t* keys, size_t n, size_t floats, Visit visit) const {
  constexpr size_t kRing = 4 * kAhead;
  struct Coming {
    uint32_t tag;
    uint8_t* at;
  } ring[kRing];
  const size_t bytes = sizeof(Header) + floats * sizeof(float);
  // A row that was unlinked after it was guessed still has its key.
  const uint64_t unlinked = unlinked_;
  for (size_t i = 0; i < n + 2 * kAhead; ++i) {
    if (i < n) {
      const uint32_t tag = Tag(keys[i]);
      ring[i % kRing].tag = tag;
      const Index& index = IndexOf(tag);
      __builtin_prefetch(&index.slots[tag >> index.shift]);
    }
    if (i >= kAhead && i - kAhead < n) {
      Coming& coming = ring[(i - kAhead) % kRing];
      coming.at = Guess(coming.tag);
      if (coming.at != nullptr) {
        const uint8_t* line = coming.at - reinterpret_cast<uintptr_t>(coming.at) % 64;
        for (; line < coming.at + bytes; line += 64) __builtin_prefetch(line);
      }
    }
    if (i < 2 * kAhead) continue;
    const size_t now = i - 2 * kAhead;
    const Coming& coming = ring[now % kRing];
    uint8_t* at = coming.at;
    if (at == nullptr || reinterpret_cast<const Header*>(at)->key != keys[now] ||
        unlinked_ != unlinked) {
      const uint32_t id = Probe(coming.tag, keys[now]);
      at = id == kNoRow ? nullptr : RowAt(id);
    }
    visit(now, at == nullptr ? Row{nullptr, nullptr, nullptr} : RowOf(at));
  }
}

}  // namespace sluice
