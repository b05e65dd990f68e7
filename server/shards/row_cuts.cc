#include "server/shards/row_cuts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {

std::unique_ptr<RowCuts::Reader> RowCuts::NewReader(RecordForm form, Source source) {
  return std::make_unique<Reader>(this, form, std::move(source));
}

void RowCuts::Begin(Reader* reader) {
  ++begun_;
  form_ = reader->form_;
  reader->begun_ = true;
  images_ = &reader->images_;
}

void RowCuts::Save(const RowStore::Row& row) {
  if (images_->failed()) return;
  char* const to = images_->Add(row.header->key);
  if (to != nullptr) WriteRecord(row, form_, to);
}

void RowCuts::WriteRecord(const RowStore::Row& row, const RecordForm& form, char* to) {
  if (form.history) {
    std::memcpy(to, &row.header->last_seen, sizeof(row.header->last_seen));
    to += sizeof(row.header->last_seen);
    std::memcpy(to, &row.header->count, sizeof(row.header->count));
    to += sizeof(row.header->count);
  }
  std::memcpy(to, row.weights, form.float_bytes);  // the state follows the weights
}

void RowCuts::MakeRoomToErase() {
  if (images_ != nullptr && erased_.size() == erased_.capacity())
    erased_.reserve(std::max<size_t>(64, 2 * erased_.size()));
}

void RowCuts::Free(uint32_t id) {
  if (images_ != nullptr && store_->header(id)->version <= 2 * begun_) {
    erased_.push_back(id);
  } else {
    store_->Free(id);
  }
}

bool RowCuts::WasErased(uint32_t id) const {
  if (erased_.empty()) return false;
  uint32_t live;
  store_->Find(&store_->header(id)->key, 1, &live);
  return live != id;
}

RowCuts::Reader::Reader(RowCuts* cuts, RecordForm form, Source source)
    : cuts_(cuts),
      form_(form),
      source_(std::move(source)),
      slots_(cuts->store_->slots()),
      in_cut_(2 * (cuts->begun_ + 1)),
      images_(slots_, form_.bytes(), source_.budget) {}

RowCuts::Reader::~Reader() {
  if (!begun_) return;  // memory ran out before the cut began, under the lock
  // Bounds how long an update waits for the lock. Few rows are erased meanwhile.
  constexpr size_t kSlotsALock = 1024;
  for (bool all = false; !all;) {
    MutexLock lock(source_.mutex);
    std::vector<uint32_t>& erased = cuts_->erased_;
    for (size_t n = std::min(erased.size(), kSlotsALock); n > 0; --n) {
      cuts_->store_->Free(erased.back());
      erased.pop_back();
    }
    all = erased.empty();
    // Only then, because another cut would take the rest for its own rows.
    if (all) {
      erased.shrink_to_fit();
      cuts_->images_ = nullptr;
    }
  }
}

absl::StatusOr<size_t> RowCuts::Reader::ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                                 uint32_t* rows) {
  const RowExpiry& expiry = *source_.expiry;
  size_t count = 0;
  MutexLock lock(source_.mutex);
  for (size_t i = 0; i < n; ++i) {
    const auto id = static_cast<uint32_t>(first + i);
    const RowStore::Header& header = *cuts_->store_->header(id);
    if (header.version > in_cut_) continue;  // free, or younger than the cut
    // A row that had expired by then cannot have been updated since, only erased.
    if (header.version < in_cut_ &&
        expiry.Expired(header.last_seen, header.count, source_.live_from)) {
      ++expired_;
      if (!source_.names_gone) continue;
      const uint64_t end = expiry.EndOf(header.last_seen, *source_.days);
      if (source_.since == 0) {
        gone_.Add(header.key, end);
      } else if (end >= RowTombstones::StepOfDelta(source_.since)) {
        source_.gone.push_back(header.key);
      }
      continue;
    }
    // A row that was updated after the cut began is in the delta too, as it was at the cut.
    if (header.last_seen < source_.since) continue;
    keys[count] = header.key;
    rows[count++] = id;
  }
  return count;
}

absl::Status RowCuts::Reader::ListGone(std::vector<uint64_t>* keys) {
  *keys = std::move(source_.gone);
  return absl::OkStatus();
}

void RowCuts::Reader::AddFacts(ShardFacts* facts) {
  if (expired_ > 0) facts->mutable_turnover()->set_expired(facts->turnover().expired() + expired_);
  if (gone_.size() == 0) return;
  RowTombstones all;
  all.Restore(*facts);
  all.Add(gone_);
  facts->clear_tombstones();
  all.Write(facts);
}

absl::Status RowCuts::Reader::ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) {
  // Bounds how long an update waits: the lock is held for one copy of this size.
  constexpr size_t kBytesALock = 64 << 10;
  const size_t most = std::max<size_t>(1, kBytesALock / form_.bytes());
  for (size_t begin = 0; begin < n; begin += most) {
    SLUICE_RETURN_IF_ERROR(
        ReadSome(rows + begin, std::min(most, n - begin), stride, to + begin * stride));
  }
  return absl::OkStatus();
}

absl::Status RowCuts::Reader::ReadSome(const uint32_t* rows, size_t n, size_t stride, char* to) {
  constexpr size_t kAhead = 16;
  const RowStore& store = *cuts_->store_;
  const size_t bytes = sizeof(RowStore::Header) + form_.float_bytes;
  MutexLock lock(source_.mutex);
  if (images_.failed()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for copies of the rows of ", source_.name,
        " that were updated while it was saved; use more pservers, or machines with more memory"));
  }
  for (size_t i = 0; i < n; ++i, to += stride) {
    if (i + kAhead < n) {
      const auto* line = reinterpret_cast<const char*>(store.header(rows[i + kAhead]));
      for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(line + at);
    }
    const RowStore::Row row = store.row(rows[i]);
    if (row.header->version < in_cut_) {
      WriteRecord(row, form_, to);
      row.header->version = in_cut_;  // no later update needs to save it
    } else {
      std::memcpy(to, images_.Find(row.header->key), form_.bytes());
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
