#include "server/row_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "common/base/hash.h"

namespace sluice {
namespace {
constexpr size_t kBlockBytes = 2 << 20;
constexpr size_t kFirstSlots = 64;
constexpr size_t kGroup = 16;
// Slots copied for each insertion while the index grows. An index of C slots starts to grow at 0.7
// C rows and its successor of 2 C slots at 1.4 C: 2 would do.
constexpr size_t kMovedAtOnce = 4;

size_t RowBytes(uint32_t dim, uint32_t state_floats) {
  const size_t bytes = sizeof(RowStore::Header) + 4 * (static_cast<size_t>(dim) + state_floats);
  return (bytes + 7) / 8 * 8;
}
}  // namespace

void RowStore::FreeMemory::operator()(void* p) const { std::free(p); }

RowStore::RowStore(uint32_t dim, uint32_t state_floats)
    : dim_(dim), row_bytes_(RowBytes(dim, state_floats)) {
  while ((row_bytes_ << (block_bits_ + 1)) <= kBlockBytes) ++block_bits_;
  block_mask_ = (1u << block_bits_) - 1;
  index_ = NewIndex(kFirstSlots);
}

RowStore::Index RowStore::NewIndex(size_t size) {
  Index index;
  index.slots.reset(static_cast<Slot*>(std::calloc(size, sizeof(Slot))));
  if (index.slots == nullptr) throw std::bad_alloc();
  index.size = size;
  return index;
}

// Not the hash that chose the shard: keys of one shard share its high bits.
uint64_t RowStore::Hash(uint64_t key) { return MixHash(key + 0x8CB92BA72F3D8DD7u); }

size_t RowStore::bytes() const {
  return blocks_.size() * (row_bytes_ << block_bits_) +
         (index_.size + old_index_.size) * sizeof(Slot);
}

uint32_t RowStore::Probe(const Index& index, uint64_t key, uint64_t hash) const {
  if (index.size == 0) return kNoRow;
  const size_t mask = index.mask();
  const uint32_t tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot slot = index.slots[i];
    if (slot.row_plus_1 == 0) return kNoRow;
    if (slot.tag == tag && header(slot.row_plus_1 - 1)->key == key) return slot.row_plus_1 - 1;
  }
}

uint32_t RowStore::Guess(const Index& index, uint64_t hash) const {
  if (index.size == 0) return kNoRow;
  const size_t mask = index.mask();
  const uint32_t tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot slot = index.slots[i];
    if (slot.row_plus_1 == 0) return kNoRow;
    if (slot.tag == tag) return slot.row_plus_1 - 1;
  }
}

void RowStore::Find(const uint64_t* keys, size_t n, uint32_t* rows) const {
  uint64_t hashes[kGroup];
  for (size_t begin = 0; begin < n; begin += kGroup) {
    const size_t count = std::min(kGroup, n - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = Hash(keys[begin + i]);
      __builtin_prefetch(&index_.slots[hashes[i] & index_.mask()]);
    }
    for (size_t i = 0; i < count; ++i) {
      uint32_t row = Guess(index_, hashes[i]);
      if (row == kNoRow) row = Guess(old_index_, hashes[i]);
      if (row == kNoRow) continue;
      const uint8_t* at = RowAt(row);
      __builtin_prefetch(at);
      __builtin_prefetch(at + 64);
    }
    for (size_t i = 0; i < count; ++i) {
      const uint64_t key = keys[begin + i];
      uint32_t row = Probe(index_, key, hashes[i]);
      if (row == kNoRow) row = Probe(old_index_, key, hashes[i]);
      rows[begin + i] = row;
    }
  }
}

uint32_t RowStore::FindOrInsert(uint64_t key, bool* created) {
  const uint64_t hash = Hash(key);
  uint32_t row = Probe(index_, key, hash);
  if (row == kNoRow) row = Probe(old_index_, key, hash);
  *created = row == kNoRow;
  if (row != kNoRow) return row;
  row = static_cast<uint32_t>(size_);
  if ((row & block_mask_) == 0) AddBlock();
  ++size_;
  std::memset(RowAt(row), 0, row_bytes_);
  header(row)->key = key;
  // Rows in the old index will come too: they count as used from the start of the growth.
  if ((index_.used + 1) * 10 > index_.size * 7) StartGrowth();
  ++index_.used;
  Place(hash, row);
  MoveSome();
  return row;
}

void RowStore::Place(uint64_t hash, uint32_t row) {
  const size_t mask = index_.mask();
  size_t i = hash & mask;
  while (index_.slots[i].row_plus_1 != 0) i = (i + 1) & mask;
  index_.slots[i] = {row + 1, static_cast<uint32_t>(hash >> 32)};
}

void RowStore::StartGrowth() {
  while (old_index_.size != 0) MoveSome();
  old_index_ = std::move(index_);
  moved_ = 0;
  index_ = NewIndex(old_index_.size * 2);
  index_.used = old_index_.used;
}

void RowStore::MoveSome() {
  if (old_index_.size == 0) return;
  const size_t end = std::min(moved_ + kMovedAtOnce, old_index_.size);
  for (; moved_ < end; ++moved_) {
    const Slot slot = old_index_.slots[moved_];
    if (slot.row_plus_1 != 0) Place(Hash(header(slot.row_plus_1 - 1)->key), slot.row_plus_1 - 1);
  }
  if (moved_ < old_index_.size) return;
  old_index_ = Index();
}

void RowStore::AddBlock() {
  const size_t bytes = row_bytes_ << block_bits_;
  const size_t rounded = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kBlockBytes, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  // The first block is touched page by page: a small shard stays small. A refusal costs only speed.
  if (!blocks_.empty()) (void)madvise(memory, rounded, MADV_HUGEPAGE);
  blocks_.emplace_back(memory);
}

}  // namespace sluice
