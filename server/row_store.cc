#include "server/row_store.h"

#include <algorithm>
#include <utility>

#include "common/base/hash.h"

namespace sluice {
namespace {
constexpr size_t kFirstSlots = 64;
// Slots behind the last home, for keys that probing drives there.
constexpr size_t kSlack = 64;
// Slots copied for each insertion while the index grows (2 would do). Keys that are not moved yet
// go into the old index, whose load this keeps below 0.75 + 1 / 16. About 50 ns.
constexpr size_t kMovedAtOnce = 16;
constexpr size_t kMostSlots = size_t{1} << 32;  // tags have 32 bits

size_t RowBytes(uint32_t dim, uint32_t state_floats) {
  const size_t bytes = sizeof(RowStore::Header) + 4 * (static_cast<size_t>(dim) + state_floats);
  return (bytes + 7) / 8 * 8;
}
}  // namespace

RowStore::RowStore(uint32_t dim, uint32_t state_floats)
    : dim_(dim), row_bytes_(RowBytes(dim, state_floats)) {
  // One huge page, or as many as keep the waste at its end below 1 / 32.
  const size_t bytes = std::max(MappedMemory::kHugePage, 32 * row_bytes_);
  block_bytes_ =
      (bytes + MappedMemory::kHugePage - 1) / MappedMemory::kHugePage * MappedMemory::kHugePage;
  rows_per_block_ = static_cast<uint32_t>(block_bytes_ / row_bytes_);
  block_factor_ = UINT64_MAX / rows_per_block_ + 1;
  index_ = NewIndex(kFirstSlots);
}

RowStore::Index RowStore::NewIndex(size_t size) {
  Index index;
  index.memory = MappedMemory((size + kSlack + 1) * sizeof(Slot));
  index.slots = reinterpret_cast<Slot*>(index.memory.data());
  index.size = size;
  index.shift = 32 - __builtin_ctzll(size);
  return index;
}

// Not the hash that chose the shard: keys of one shard share its high bits.
uint32_t RowStore::Tag(uint64_t key) {
  return static_cast<uint32_t>(MixHash(key + 0x8CB92BA72F3D8DD7u) >> 32);
}

size_t RowStore::bytes() const {
  size_t bytes = index_.memory.size();
  for (const MappedMemory& block : blocks_) bytes += block.size();
  if (!growing_for_test()) return bytes;
  return bytes + old_index_.memory.size() - front_ * sizeof(Slot);
}

uint32_t RowStore::Probe(uint32_t tag, uint64_t key) const {
  const Index& index = IndexOf(tag);
  const Slot* slot = &index.slots[tag >> index.shift];
  for (; slot->row_plus_1 != 0; ++slot) {
    if (slot->tag == tag && header(slot->row_plus_1 - 1)->key == key) return slot->row_plus_1 - 1;
  }
  if (index.spill.empty()) return kNoRow;
  const auto spilled = index.spill.find(key);
  return spilled == index.spill.end() ? kNoRow : spilled->second;
}

uint8_t* RowStore::Guess(uint32_t tag) const {
  const Index& index = IndexOf(tag);
  const Slot* slot = &index.slots[tag >> index.shift];
  for (; slot->row_plus_1 != 0; ++slot) {
    if (slot->tag == tag) return RowAt(slot->row_plus_1 - 1);
  }
  return nullptr;
}

void RowStore::Find(const uint64_t* keys, size_t n, uint32_t* rows) const {
  for (size_t i = 0; i < n; ++i) rows[i] = Probe(Tag(keys[i]), keys[i]);
}

uint32_t RowStore::FindOrInsert(uint64_t key, bool* created) {
  const uint32_t tag = Tag(key);
  uint32_t id = Probe(tag, key);
  *created = id == kNoRow;
  if (id != kNoRow) return id;
  id = static_cast<uint32_t>(size_);
  // Fresh from the kernel: zero.
  if (id % rows_per_block_ == 0) {
    blocks_.emplace_back(block_bytes_, /*huge=*/!blocks_.empty());
  }
  ++size_;
  header(id)->key = key;
  if (size_ > index_.size / 4 * 3 && index_.size < kMostSlots) StartGrowth();
  Place(tag < moved_below_ ? &index_ : &old_index_, tag, id);
  if (old_index_.slots != nullptr) MoveSome();
  return id;
}

void RowStore::Place(Index* index, uint32_t tag, uint32_t id) {
  const Slot* const last = &index->slots[index->size + kSlack];
  Slot* slot = &index->slots[tag >> index->shift];
  while (slot->row_plus_1 != 0) ++slot;
  if (slot == last) {
    index->spill.emplace(header(id)->key, id);
  } else {
    *slot = {id + 1, tag};
  }
}

void RowStore::StartGrowth() {
  while (old_index_.slots != nullptr) MoveSome();
  old_index_ = std::move(index_);
  index_ = NewIndex(old_index_.size * 2);
  front_ = 0;
  moved_below_ = 0;
}

void RowStore::MoveSome() {
  const size_t begin = front_, end = old_index_.size + kSlack;
  const Slot* slots = old_index_.slots;
  // On to an empty slot: no key with a home before it lies behind it.
  for (; front_ < end && (front_ < begin + kMovedAtOnce || slots[front_].row_plus_1 != 0);
       ++front_) {
    if (slots[front_].row_plus_1 != 0)
      Place(&index_, slots[front_].tag, slots[front_].row_plus_1 - 1);
  }
  if (front_ < old_index_.size) {
    moved_below_ = static_cast<uint64_t>(front_) << old_index_.shift;
    const size_t page = MappedMemory::kHugePage;
    const size_t from = begin * sizeof(Slot) / page * page,
                 to = front_ * sizeof(Slot) / page * page;
    if (to > from) old_index_.memory.Release(from, to);
    return;
  }
  for (; front_ < end; ++front_) {
    if (slots[front_].row_plus_1 != 0)
      Place(&index_, slots[front_].tag, slots[front_].row_plus_1 - 1);
  }
  for (const auto& [key, id] : old_index_.spill) Place(&index_, Tag(key), id);
  moved_below_ = uint64_t{1} << 32;
  old_index_ = Index();
}

}  // namespace sluice
