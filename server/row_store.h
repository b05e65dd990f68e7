// The rows of one shard of a sparse table: an open-addressing index over fixed-size rows in large
// blocks.
//
// Thread safety: none; the owner (a shard) locks.
// Invariants: row ids are 0 .. size() - 1 in order of insertion and never change; a row never
// moves, so its pointers stay valid. While the index grows, a key inserted before the growth may be
// in the old index, in the new one, or in both; keys inserted later are in the new one only.
// Memory: row = header | weights f32 [dim] | state f32 [state_floats], padded to 8 bytes, in blocks
// of about 2 MiB; index 8 bytes a slot (row id + 1, 32 bits of the hash), load at most 0.7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice {

class RowStore {
 public:
  static constexpr uint32_t kNoRow = UINT32_MAX;

  struct Header {
    uint64_t key;
    uint32_t version;    // low bits of the shard's update number that changed it last
    uint32_t count;      // updates of this row
    uint64_t last_seen;  // schedule step of the last update
  };

  RowStore(uint32_t dim, uint32_t state_floats);

  // rows[i] = id of keys[i], or kNoRow. Misses of the cache overlap within groups of 16 keys.
  void Find(const uint64_t* keys, size_t n, uint32_t* rows) const;

  // The row of `key`; a new one has zero count, version and floats. A growth of the index is paid
  // for in pieces: no call moves more than a few slots. REQUIRES: size() < kNoRow - 1 when it is
  // new.
  uint32_t FindOrInsert(uint64_t key, bool* created);

  Header* header(uint32_t row) { return reinterpret_cast<Header*>(RowAt(row)); }
  const Header* header(uint32_t row) const { return reinterpret_cast<const Header*>(RowAt(row)); }
  float* weights(uint32_t row) { return reinterpret_cast<float*>(RowAt(row) + sizeof(Header)); }
  const float* weights(uint32_t row) const {
    return reinterpret_cast<const float*>(RowAt(row) + sizeof(Header));
  }
  float* state(uint32_t row) { return weights(row) + dim_; }

  size_t size() const { return size_; }
  // Of blocks and index.
  size_t bytes() const;
  bool growing_for_test() const { return old_index_.size != 0; }

  // The hash of the index, for tests that need keys of one slot: the slot is its low bits.
  static uint64_t HashForTest(uint64_t key) { return Hash(key); }

 private:
  struct Slot {
    uint32_t row_plus_1;  // 0: empty
    uint32_t tag;         // high half of the hash
  };
  struct FreeMemory {
    void operator()(void* p) const;
  };
  struct Index {
    // A power of two, or none. From calloc: the kernel zeroes a large one page by page, as it is
    // touched.
    std::unique_ptr<Slot[], FreeMemory> slots;
    size_t size = 0;
    size_t used = 0;
    size_t mask() const { return size - 1; }
  };

  static Index NewIndex(size_t size);

  static uint64_t Hash(uint64_t key);
  uint8_t* RowAt(uint32_t row) const {
    return blocks_[row >> block_bits_].get() + (row & block_mask_) * row_bytes_;
  }
  uint32_t Probe(const Index& index, uint64_t key, uint64_t hash) const;
  // The first row on the way of `hash` with its tag: most likely the one, worth a prefetch.
  uint32_t Guess(const Index& index, uint64_t hash) const;
  void Place(uint64_t hash, uint32_t row);
  void StartGrowth();
  void MoveSome();
  void AddBlock();

  const uint32_t dim_;
  const size_t row_bytes_;
  uint32_t block_bits_ = 0;
  uint32_t block_mask_ = 0;
  std::vector<std::unique_ptr<uint8_t[], FreeMemory>> blocks_;
  size_t size_ = 0;
  Index index_, old_index_;
  size_t moved_ = 0;  // slots of old_index_ that have been copied
};

}  // namespace sluice
