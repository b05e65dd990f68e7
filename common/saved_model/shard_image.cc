#include "common/saved_model/shard_image.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/saved_model/delta_image.h"
#include "common/saved_model/shard_file.h"
#include "common/table/not_finite.h"
#include "proto/model.pb.h"

namespace sluice {
namespace {

constexpr size_t kBlockBytes = 256 << 10;
// Runs are small compared with a shard's file, so that a reader that needs a part of the file reads
// little too much. All runs of a table together are few enough to be merged by key at once.
constexpr uint64_t kRunBytes = 256 << 10;
constexpr uint32_t kMostRunsOfFile = 64, kMaxRunsOfTable = 4096;
constexpr size_t kKeysAtOnce = 16 << 10;

ShardFileHeader HeaderOf(const TableLayout& table, uint32_t shard, uint32_t runs,
                         const CutState& state) {
  ShardFileHeader header;
  if (state.facts.has_value()) *header.mutable_facts() = *state.facts;
  header.set_state_floats(state.state_floats);
  header.set_table(table.name());
  header.set_kind(table.config().kind());
  header.set_shard(shard);
  header.set_runs(runs);
  return header;
}

std::string EncodeIndex(const ShardFileIndex& index) {
  std::string bytes = index.SerializeAsString();
  const uint32_t length = static_cast<uint32_t>(bytes.size());
  // The length stands last, so that a reader finds the index from the end of the file.
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes;
}

void AddBlock(uint64_t records, const std::string& block, ShardFileIndex* index) {
  index->add_records(static_cast<uint32_t>(records));
  index->add_crc32c(Crc32c(block.data(), block.size()));
}

class RowsCut : public ShardCut {
 public:
  // `delta`: the rows, if they are those of a delta; else null.
  RowsCut(const TableLayout& table, uint32_t shard, std::unique_ptr<ShardRows> rows, CutState state,
          DeltaRows* delta = nullptr)
      : table_(table),
        shard_(shard),
        rows_(std::move(rows)),
        delta_(delta),
        state_(std::move(state)),
        record_bytes_(sizeof(uint64_t) + (state_.facts.has_value() ? kRowHistoryBytes : 0) +
                      sizeof(float) * (table.dim() + state_.state_floats)) {}

  absl::StatusOr<bool> Next(std::string* chunk) override {
    switch (stage_) {
      case kHeader:
        // The header needs the number of rows, so the keys are sorted first. Values are read as the
        // file is written.
        SLUICE_RETURN_IF_ERROR(SortKeys());
        *chunk = Header();
        stage_ = kBlocks;
        return true;
      case kBlocks:
        if (at_ < order_.size()) {
          SLUICE_RETURN_IF_ERROR(NextBlock(chunk));
          return true;
        }
        *chunk = EncodeIndex(index_);
        stage_ = kEnd;
        return true;
      case kEnd:
        break;
    }
    return false;
  }

 private:
  struct Entry {
    uint64_t key;
    uint32_t run, row;
  };
  static bool InFileOrder(const Entry& a, const Entry& b) {
    return a.run != b.run ? a.run < b.run : a.key < b.key;
  }

  absl::Status Refuse(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard_, " of table '", table_.name(), "' cannot be saved: ", what));
  }

  absl::Status SortKeys() {
    const uint64_t n = rows_->size();
    // A few at a time, so that their copy needs little memory.
    const uint64_t most = std::min<uint64_t>(n, kKeysAtOnce);
    std::vector<uint64_t> keys(most);
    std::vector<uint32_t> rows(most);
    order_.reserve(n);
    for (uint64_t begin = 0; begin < n; begin += most) {
      SLUICE_ASSIGN_OR_RETURN(const size_t count, rows_->ReadKeys(begin, std::min(most, n - begin),
                                                                  keys.data(), rows.data()));
      for (size_t i = 0; i < count; ++i) order_.push_back({keys[i], 0, rows[i]});
    }
    runs_ = RunsOfShardFile(table_.num_shards(), order_.size() * record_bytes_);
    // The file is in the order of hash and key, whatever the order of the rows in memory: the same
    // rows give the same bytes.
    const uint32_t parts = table_.num_shards() * runs_, first_part = shard_ * runs_;
    for (Entry& entry : order_) {
      entry.run = ShardOfKey(entry.key, parts) - first_part;
      // Unsigned: a key of an earlier shard wraps around and is refused, too.
      if (entry.run >= runs_) {
        return Refuse(
            absl::StrCat("key ", entry.key, " belongs to shard ", table_.ShardOf(entry.key)));
      }
    }
    std::sort(order_.begin(), order_.end(), InFileOrder);
    for (size_t i = 1; i < order_.size(); ++i) {
      if (order_[i].key == order_[i - 1].key)
        return Refuse(absl::StrCat("key ", order_[i].key, " occurs twice"));
    }
    index_.mutable_run_blocks()->Resize(static_cast<int>(runs_), 0);
    if (state_.facts.has_value()) rows_->AddFacts(&*state_.facts);
    return delta_ != nullptr ? ListGone(parts, first_part) : absl::OkStatus();
  }

  absl::Status ListGone(uint32_t parts, uint32_t first_part) {
    SLUICE_RETURN_IF_ERROR(delta_->ListGone(&gone_));
    std::sort(gone_.begin(), gone_.end());
    gone_.erase(std::unique(gone_.begin(), gone_.end()), gone_.end());
    const auto has_row = [&](uint64_t key) {
      const Entry wanted{key, ShardOfKey(key, parts) - first_part, 0};
      return std::binary_search(order_.begin(), order_.end(), wanted, InFileOrder);
    };
    gone_.erase(std::remove_if(gone_.begin(), gone_.end(), has_row), gone_.end());
    if (gone_.size() <= kMostGoneKeys) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("shard ", shard_, " of table '", table_.name(), "' has lost ", gone_.size(),
                     " rows since the export before, more than a delta names (", kMostGoneKeys,
                     "); the next export is a new base"));
  }

  std::string Header() const {
    ShardFileHeader header = HeaderOf(table_, shard_, runs_, state_);
    header.set_rows(order_.size());
    header.set_dim(table_.dim());
    header.mutable_gone()->Assign(gone_.begin(), gone_.end());
    return EncodeShardFileHeader(header);
  }

  absl::Status NextBlock(std::string* block) {
    const size_t most = std::max<size_t>(1, kBlockBytes / record_bytes_), begin = at_;
    numbers_.clear();
    // A block never spans two runs: a reader of some runs reads whole blocks, with their checksums.
    while (at_ < order_.size() && order_[at_].run == order_[begin].run && at_ - begin < most) {
      numbers_.push_back(order_[at_++].row);
    }
    block->resize(numbers_.size() * record_bytes_);
    for (size_t i = 0; i < numbers_.size(); ++i) {
      std::memcpy(block->data() + i * record_bytes_, &order_[begin + i].key, sizeof(uint64_t));
    }
    // All rows of the block at once, each behind its key.
    SLUICE_RETURN_IF_ERROR(rows_->ReadRecords(numbers_.data(), numbers_.size(), record_bytes_,
                                              block->data() + sizeof(uint64_t)));
    SLUICE_RETURN_IF_ERROR(CheckFinite(*block, begin));
    const int run = static_cast<int>(order_[begin].run);
    index_.set_run_blocks(run, index_.run_blocks(run) + 1);
    AddBlock(numbers_.size(), *block, &index_);
    return absl::OkStatus();
  }

  // `block` has the rows of order_ from `first` on.
  absl::Status CheckFinite(const std::string& block, size_t first) const {
    const size_t n = table_.dim() + state_.state_floats;
    const char* values = block.data() + record_bytes_ - n * sizeof(float);
    for (size_t row = first; row < at_; ++row, values += record_bytes_) {
      const auto* const floats = reinterpret_cast<const UnalignedFloat*>(values);
      if (kernels_.all_finite(n, floats)) continue;
      return RowNotFinite(table_, order_[row].key, FirstNotFinite(floats, n));
    }
    return absl::OkStatus();
  }

  const Kernels& kernels_ = BestKernels();
  const TableLayout& table_;
  const uint32_t shard_;
  const std::unique_ptr<ShardRows> rows_;
  DeltaRows* const delta_;
  CutState state_;
  const size_t record_bytes_;
  enum { kHeader, kBlocks, kEnd } stage_ = kHeader;
  uint32_t runs_ = 1;
  std::vector<Entry> order_;
  std::vector<uint64_t> gone_;  // delta
  size_t at_ = 0;               // position in order_
  std::vector<uint32_t> numbers_;
  ShardFileIndex index_;
};

class ElementsCut : public ShardCut {
 public:
  ElementsCut(const TableLayout& table, uint32_t shard,
              std::vector<std::shared_ptr<const float>> arrays, CutState state)
      : table_(table), shard_(shard), arrays_(std::move(arrays)), state_(std::move(state)) {}

  absl::StatusOr<bool> Next(std::string* chunk) override {
    const uint64_t all = table_.ShardElements(shard_);
    if (!begun_) {
      begun_ = true;
      ShardFileHeader header = HeaderOf(table_, shard_, 1, state_);
      header.set_first_element(shard_ * table_.block_elements());
      header.set_elements(all);
      *chunk = EncodeShardFileHeader(header);
      return true;
    }
    // First the values, then each array of the optimizer's state, so that a saved model is the
    // beginning of a checkpoint's file.
    if (array_ < arrays_.size() && all > 0) {
      const uint64_t n = std::min<uint64_t>(all - at_, kBlockBytes / sizeof(float));
      const float* const values = arrays_[array_].get() + at_;
      if (!BestKernels().all_finite(n, values)) {
        const uint64_t element = shard_ * table_.block_elements() + at_;
        return ElementNotFinite(table_, element + FirstNotFinite(values, n), array_);
      }
      chunk->assign(reinterpret_cast<const char*>(values), n * sizeof(float));
      AddBlock(n, *chunk, &index_);
      at_ += n;
      if (at_ == all) {
        ++array_;
        at_ = 0;
      }
      return true;
    }
    if (ended_) return false;
    ended_ = true;
    index_.add_run_blocks(static_cast<uint32_t>(index_.records_size()));
    *chunk = EncodeIndex(index_);
    return true;
  }

 private:
  const TableLayout& table_;
  const uint32_t shard_;
  const std::vector<std::shared_ptr<const float>> arrays_;
  const CutState state_;
  bool begun_ = false, ended_ = false;
  size_t array_ = 0;
  uint64_t at_ = 0;  // the next element of the array
  ShardFileIndex index_;
};

}  // namespace

uint32_t RunsOfShardFile(uint32_t num_shards, uint64_t bytes) {
  // A power of two, so that the runs of a file with more of them are parts of those of a file with
  // fewer.
  uint32_t runs = 1;
  while (runs < kMostRunsOfFile && 2 * runs * uint64_t{num_shards} <= kMaxRunsOfTable &&
         bytes / runs > kRunBytes) {
    runs *= 2;
  }
  return runs;
}

std::unique_ptr<ShardCut> CutOfRows(const TableLayout& table, uint32_t shard,
                                    std::unique_ptr<ShardRows> rows, CutState state) {
  return std::make_unique<RowsCut>(table, shard, std::move(rows), std::move(state));
}

std::unique_ptr<ShardCut> CutOfDelta(const TableLayout& table, uint32_t shard,
                                     std::unique_ptr<DeltaRows> rows) {
  DeltaRows* const delta = rows.get();
  return std::make_unique<RowsCut>(table, shard, std::move(rows), CutState(), delta);
}

std::unique_ptr<ShardCut> CutOfElements(const TableLayout& table, uint32_t shard,
                                        std::vector<std::shared_ptr<const float>> arrays,
                                        CutState state) {
  return std::make_unique<ElementsCut>(table, shard, std::move(arrays), std::move(state));
}

}  // namespace sluice
