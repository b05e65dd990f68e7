#include "server/shards/row_store.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/seeded_hash.h"
#include "server/shards/no_room.h"

namespace sluice {
namespace {
constexpr size_t kFirstSlots = 64;
// Extra slots past the last home slot, so that probing need not wrap around.
constexpr size_t kSlack = 64;
// Slots copied per insertion while the index grows; 2 would suffice. Until a key's home has been
// copied, the key goes into the old index, whose load this rate keeps below 0.75 + 1 / 8. Costs
// about 25 ns.
constexpr size_t kMovedAtOnce = 8;
constexpr size_t kSmallPage = 4096;

size_t RowBytes(uint32_t dim, uint32_t state_floats) {
  const size_t bytes = sizeof(RowStore::Header) + 4 * (static_cast<size_t>(dim) + state_floats);
  return (bytes + 7) / 8 * 8;
}
}  // namespace

RowStore::RowStore(uint32_t dim, uint32_t state_floats, ReadyPages* pages,
                   std::shared_ptr<RowMemory> memory)
    : dim_(dim),
      row_bytes_(RowBytes(dim, state_floats)),
      pages_(pages),
      row_memory_(memory),
      index_memory_(memory) {
  // One huge page, or enough of them to waste less than 1 / 32 at the end of a block.
  const size_t bytes = std::max(MappedMemory::kHugePage, 32 * row_bytes_);
  block_bytes_ =
      (bytes + MappedMemory::kHugePage - 1) / MappedMemory::kHugePage * MappedMemory::kHugePage;
  rows_per_block_ = static_cast<uint32_t>(block_bytes_ / row_bytes_);
  block_factor_ = UINT64_MAX / rows_per_block_ + 1;
  index_ = NewIndex(kFirstSlots);
}

RowStore::Index RowStore::NewIndex(size_t size) {
  Index index;
  index.memory = MappedMemory((size + kSlack + 1) * sizeof(Slot), MappedMemory::Pages::kSmall);
  index.slots = reinterpret_cast<Slot*>(index.memory.data());
  index.size = size;
  index.shift = 32 - __builtin_ctzll(size);
  index.begun = size < kSlotsAPage ? SIZE_MAX : 0;
  index.huge.resize(size / kSlotsAPage);
  return index;
}

bool RowStore::TakeRoom() {
  if (IndexIsFull() && !StartGrowth()) return false;
  if (slots_ < room_ || free_ != kNoRow) return true;
  const size_t block = room_ / rows_per_block_, end = (block + 1) * rows_per_block_;
  const bool begins = block == blocks_.size();
  // The rows before have been touched, since all of them are in use.
  size_t rows = end - room_;
  if (!bulk_ || block == 0) {
    const size_t piece = std::max(kSmallPage, slots_ * row_bytes_ / 8);
    rows = std::min(rows, std::max<size_t>(1, piece / row_bytes_));
  }
  if (!row_memory_.Take(rows * row_bytes_)) return false;
  if (begins && AddBlock()) {
    row_memory_.Touched();
    rows = end - room_;
  }
  room_ += rows;
  return true;
}

bool RowStore::AddBlock() {
  MappedMemory page;
  if (!blocks_.empty()) {
    blocks_.back().AllowHuge(0, block_bytes_);
    if (bulk_) {
      blocks_.emplace_back(block_bytes_, MappedMemory::Pages::kHuge);
      return false;
    }
    if (block_bytes_ == MappedMemory::kHugePage) page = pages_.Take();
  }
  const bool ready = page.data() != nullptr;
  if (!ready) page = MappedMemory(block_bytes_, MappedMemory::Pages::kSmall);
  blocks_.push_back(std::move(page));
  return ready;
}

// Differs from the hash that chose the shard, because the keys of one shard share that hash's high
// bits, and from what a peer can foresee.
uint32_t RowStore::Tag(uint64_t key) { return static_cast<uint32_t>(SeededHash(key) >> 32); }

size_t RowStore::reserved_bytes() const {
  return room_ / rows_per_block_ * block_bytes_ + room_ % rows_per_block_ * row_bytes_ +
         index_.memory.size() + old_index_.memory.size();
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
  if (size_ >= most_rows_ || (free_ == kNoRow && slots_ >= kMostRows)) {
    throw NoRoom(absl::StrCat("the sparse table has ", size_,
                              " rows in one shard, and no shard can have more; raise num_shards of "
                              "the table, or limit its rows (max_rows)"));
  }
  // Allocate index and block before anything changes. After that only spill may throw. A new block
  // is zero, and so are its rows.
  if (!MakeRoom()) throw std::bad_alloc();
  if (free_ != kNoRow) {
    id = free_;
    free_ = static_cast<uint32_t>(header(id)->key);
    std::memset(RowAt(id), 0, row_bytes_);
  } else {
    id = static_cast<uint32_t>(slots_++);
  }
  ++size_;
  header(id)->key = key;
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
    return;
  }
  const auto at = static_cast<size_t>(slot - index->slots);
  if (at >= index->begun) Begin(index, at);
  *slot = {id + 1, tag};
}

uint32_t RowStore::Unlink(uint64_t key) {
  const uint32_t tag = Tag(key);
  Index* const index = tag < moved_below_ ? &index_ : &old_index_;
  Slot* slot = &index->slots[tag >> index->shift];
  uint32_t id = kNoRow;
  for (; slot->row_plus_1 != 0 && id == kNoRow; ++slot) {
    if (slot->tag == tag && header(slot->row_plus_1 - 1)->key == key) id = slot->row_plus_1 - 1;
  }
  if (id != kNoRow) {
    Remove(index, slot - 1);
  } else {
    const auto spilled = index->spill.find(key);
    if (spilled == index->spill.end()) return kNoRow;
    id = spilled->second;
    index->spill.erase(spilled);
  }
  --size_;
  ++unlinked_;
  return id;
}

// Keys stay reachable: a key moves back only to a slot at or behind its home. Spilled keys need no
// full path to the end, because a probe that ends at an empty slot always asks the map.
void RowStore::Remove(Index* index, Slot* slot) {
  for (const Slot* next = slot + 1; next->row_plus_1 != 0; ++next) {
    if (index->slots + (next->tag >> index->shift) > slot) continue;
    *slot = *next;
    slot = &index->slots[next - index->slots];
  }
  *slot = {0, 0};
}

void RowStore::Free(uint32_t id) {
  Header* const freed = header(id);
  freed->version = Header::kFree;
  freed->key = free_;
  free_ = id;
}

void RowStore::Begin(Index* index, size_t slot) {
  for (; index->begun <= slot; index->begun += kSlotsAPage) {
    if (index->begun == index->size) continue;  // the few slots past the last home stay small
    MappedMemory page = pages_.Take();
    index->huge[index->begun / kSlotsAPage] =
        page.data() != nullptr &&
        index->memory.Replace(index->begun * sizeof(Slot), std::move(page));
  }
}

bool RowStore::StartGrowth() {
  while (old_index_.slots != nullptr) MoveSome();
  // The old index is given back as it is copied.
  if (!index_memory_.Take(index_.memory.size())) return false;
  Index index = NewIndex(index_.size * 2);
  // The next block will be needed soon.
  if (slots_ > rows_per_block_ / 2) pages_.Announce();
  old_index_ = std::move(index_);
  index_ = std::move(index);
  front_ = returned_ = 0;
  moved_below_ = 0;
  return true;
}

void RowStore::MoveSome() {
  const size_t begin = front_, end = old_index_.size + kSlack;
  const Slot* slots = old_index_.slots;
  // Continue to an empty slot: no key whose home is before an empty slot can be stored after it.
  for (; front_ < end && (front_ < begin + kMovedAtOnce || slots[front_].row_plus_1 != 0);
       ++front_) {
    if (slots[front_].row_plus_1 != 0)
      Place(&index_, slots[front_].tag, slots[front_].row_plus_1 - 1);
  }
  if (front_ < old_index_.size) {
    const uint64_t below = static_cast<uint64_t>(front_) << old_index_.shift;
    // The slot may be empty because a key was unlinked after others had been spilled.
    for (const auto& [key, id] : old_index_.spill)
      if (Tag(key) < below) Place(&index_, Tag(key), id);
    moved_below_ = below;  // only now: what throws must leave every key reachable
    absl::erase_if(old_index_.spill, [&](const auto& one) { return Tag(one.first) < below; });
    ReturnOldPages();
    return;
  }
  for (; front_ < end; ++front_) {
    if (slots[front_].row_plus_1 != 0)
      Place(&index_, slots[front_].tag, slots[front_].row_plus_1 - 1);
  }
  for (const auto& [key, id] : old_index_.spill) Place(&index_, Tag(key), id);
  moved_below_ = uint64_t{1} << 32;
  ReturnOldPages();
  old_index_ = Index();
  index_memory_.Touched();
  index_.memory.AllowHuge(0, index_.huge.size() * MappedMemory::kHugePage);
}

void RowStore::ReturnOldPages() {
  for (; returned_ + kSlotsAPage <= front_; returned_ += kSlotsAPage) {
    pages_.Return(old_index_.memory.TakeFront(), old_index_.huge[returned_ / kSlotsAPage]);
  }
}

}  // namespace sluice
