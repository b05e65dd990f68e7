#include "worker/step/hot_row_cache.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr char kHotRowField[] = "strategy.a_sync_configs.hot_row_cache";
constexpr size_t kHotRowsAhead = 16;  // distance of the prefetch, in rows
constexpr size_t kLineFloats = 64 / sizeof(float);

const HotRowCacheConfig& ConfigOf(const JobContext& context) {
  return context.config().strategy().a_sync_configs().hot_row_cache();
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<HotRowCache>>> HotRowCache::CreateAll(
    const JobContext& context) {
  std::vector<std::unique_ptr<HotRowCache>> caches;
  if (!context.config().strategy().a_sync_configs().has_hot_row_cache()) return caches;
  const HotRowCacheConfig& config = ConfigOf(context);
  for (size_t i = 0; i < context.sparse_tables(); ++i) {
    const TableLayout& table = context.sparse(i);
    absl::StatusOr<std::unique_ptr<ResidentRows>> resident =
        context.net->MakeResidentRows(i, config.rows());
    if (!resident.ok()) {
      return absl::Status(resident.status().code(),
                          absl::StrCat(kHotRowField, ".rows ", config.rows(), " for table '",
                                       table.name(), "': ", resident.status().message()));
    }
    caches.emplace_back(new HotRowCache(context, table, *std::move(resident)));
    caches.back()->LogHowItKeeps();
  }
  // Zeros, so that reports have the counts from the start.
  if (!caches.empty()) context.stats->AddHotRows(HotRowUse());
  return caches;
}

HotRowCache::HotRowCache(const JobContext& context, const TableLayout& table,
                         std::unique_ptr<ResidentRows> resident)
    : context_(context),
      table_(table),
      dim_(table.dim()),
      resident_(std::move(resident)),
      cache_(resident_ == nullptr ? ConfigOf(context).rows() : resident_->capacity(),
             ConfigOf(context).max_staleness_steps()) {}

void HotRowCache::LogHowItKeeps() const {
  if (!context_.log) return;
  context_.log(absl::StrCat("keeps up to ", cache_.capacity(), " hot rows of table '",
                            table_.name(), "', ", dim_, " values each, in ",
                            resident_ == nullptr ? "host" : "device",
                            " memory; a step uses no row pulled more than ",
                            ConfigOf(context_).max_staleness_steps(), " steps before"));
}

std::shared_ptr<const HotRowIndex::Rows> HotRowCache::Find(const KeySet& keys) {
  const uint64_t step = steps_found_++;
  // The rows of a batch need a slot each. With more keys than slots, one row would overwrite
  // another of the same step.
  if (keys.keys.size() > cache_.capacity()) {
    if (!told_ && context_.log) {
      context_.log(absl::StrCat(
          kHotRowField, ".rows = ", cache_.capacity(), " has no room for the ", keys.keys.size(),
          " unique keys of a batch in table '", table_.name(),
          "'; such batches are pulled whole. Set it to at least the unique keys of one batch, "
          "ideally of max_staleness_steps + 1 = ",
          uint64_t{ConfigOf(context_).max_staleness_steps()} + 1,
          " batches, or lower train.batch_size"));
    }
    told_ = true;
    return nullptr;
  }
  std::shared_ptr<HotRowIndex::Rows> found = pool_.Take();
  cache_.Find(keys, step, steps_run_, found.get());
  return found;
}

absl::Status HotRowCache::Use(const HotRowIndex::Rows* found, RowsInput* rows) {
  // Also for batches that are pulled whole: ages are in steps of this worker.
  ++steps_run_;
  if (found == nullptr) {
    HotRowUse use;
    use.set_whole_batches(1);
    context_.stats->AddHotRows(use);
    return absl::OkStatus();
  }
  const StageTimer timer(context_.stats, Stage::kCompute);
  context_.stats->AddHotRows(found->use);
  if (resident_ != nullptr) {
    // The device reads all rows from its slots; only the pulled ones are written there.
    rows->resident = resident_.get();
    rows->slots = found->slots.data();
    if (found->missing_slots.empty()) return absl::OkStatus();
    return resident_->Write(found->missing_slots.data(), found->missing_slots.size(), rows->values);
  }
  // Write first: Gather reads all rows of the batch from their slots, the pulled ones too.
  Write(*found, rows->values);
  Gather(found->slots);
  rows->values = rows_.data();
  return absl::OkStatus();
}

void HotRowCache::Write(const HotRowIndex::Rows& found, const float* pulled) {
  // Memory grows with the slots in use, not with the capacity.
  if (values_.size() < cache_.size() * dim_) values_.resize(cache_.size() * dim_);
  const std::vector<uint32_t>& to = found.missing_slots;
  for (size_t i = 0; i < to.size(); ++i) {
    if (i + kHotRowsAhead < to.size()) {
      const float* const row = &values_[to[i + kHotRowsAhead] * dim_];
      for (size_t at = 0; at < dim_; at += kLineFloats) __builtin_prefetch(row + at, 1);
    }
    std::memcpy(&values_[to[i] * dim_], pulled + i * dim_, dim_ * sizeof(float));
  }
}

void HotRowCache::Gather(const std::vector<uint32_t>& slots) {
  rows_.resize(slots.size() * dim_);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i + kHotRowsAhead < slots.size()) {
      const float* const row = &values_[slots[i + kHotRowsAhead] * dim_];
      for (size_t at = 0; at < dim_; at += kLineFloats) __builtin_prefetch(row + at);
    }
    std::memcpy(&rows_[i * dim_], &values_[slots[i] * dim_], dim_ * sizeof(float));
  }
}

}  // namespace sluice
