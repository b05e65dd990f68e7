#include "worker/hot_row_cache.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr char kField[] = "strategy.a_sync_configs.hot_row_cache";
constexpr size_t kAhead = 16;  // distance of the prefetch, in rows
constexpr size_t kLine = 64 / sizeof(float);

const HotRowCacheConfig& ConfigOf(const JobContext& context) {
  return context.config().strategy().a_sync_configs().hot_row_cache();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HotRowCache>> HotRowCache::Create(const JobContext& context) {
  if (!context.config().strategy().a_sync_configs().has_hot_row_cache() ||
      context.sparse() == nullptr) {
    return nullptr;
  }
  const HotRowCacheConfig& config = ConfigOf(context);
  absl::StatusOr<std::unique_ptr<ResidentRows>> resident =
      context.net->MakeResidentRows(config.rows());
  if (!resident.ok()) {
    return absl::Status(resident.status().code(), absl::StrCat(kField, ".rows ", config.rows(),
                                                               ": ", resident.status().message()));
  }
  std::unique_ptr<HotRowCache> rows(new HotRowCache(context, config, *std::move(resident)));
  rows->LogHowItKeeps();
  context.stats->AddHotRows(HotRowUse());
  return rows;
}

HotRowCache::HotRowCache(const JobContext& context, const HotRowCacheConfig& config,
                         std::unique_ptr<ResidentRows> resident)
    : context_(context),
      dim_(context.sparse()->dim()),
      resident_(std::move(resident)),
      cache_(resident_ == nullptr ? config.rows() : resident_->capacity(),
             config.max_staleness_steps()) {}

void HotRowCache::LogHowItKeeps() const {
  if (!context_.log) return;
  const HotRowCacheConfig& config = ConfigOf(context_);
  context_.log(absl::StrCat("keeps up to ", cache_.capacity(), " hot rows of ", dim_, " values in ",
                            resident_ == nullptr ? "host" : "device",
                            " memory; a step uses no row pulled more than ",
                            config.max_staleness_steps(), " steps before"));
}

std::shared_ptr<const HotRowIndex::Rows> HotRowCache::Find(const KeySet& keys) {
  const uint64_t step = steps_found_++;
  if (keys.keys.size() > cache_.capacity()) {
    if (!told_ && context_.log) {
      context_.log(absl::StrCat(
          kField, ".rows = ", cache_.capacity(), " has no room for the ", keys.keys.size(),
          " unique keys of a batch; such batches are pulled whole. Set it to at least the unique "
          "keys of one batch, ideally of max_staleness_steps + 1 = ",
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

absl::Status HotRowCache::Use(const HotRowIndex::Rows* found, NetInput* input) {
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
    input->resident = resident_.get();
    input->slots = found->slots.data();
    if (found->missing_slots.empty()) return absl::OkStatus();
    return resident_->Write(found->missing_slots.data(), found->missing_slots.size(), input->rows);
  }
  // Write first: Gather reads all rows of the batch from their slots, the pulled ones too.
  Write(*found, input->rows);
  Gather(found->slots);
  input->rows = rows_.data();
  return absl::OkStatus();
}

void HotRowCache::Write(const HotRowIndex::Rows& found, const float* pulled) {
  if (values_.size() < cache_.size() * dim_) values_.resize(cache_.size() * dim_);
  const std::vector<uint32_t>& to = found.missing_slots;
  for (size_t i = 0; i < to.size(); ++i) {
    if (i + kAhead < to.size()) {
      const float* const row = &values_[to[i + kAhead] * dim_];
      for (size_t at = 0; at < dim_; at += kLine) __builtin_prefetch(row + at, 1);
    }
    std::memcpy(&values_[to[i] * dim_], pulled + i * dim_, dim_ * sizeof(float));
  }
}

void HotRowCache::Gather(const std::vector<uint32_t>& slots) {
  rows_.resize(slots.size() * dim_);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i + kAhead < slots.size()) {
      const float* const row = &values_[slots[i + kAhead] * dim_];
      for (size_t at = 0; at < dim_; at += kLine) __builtin_prefetch(row + at);
    }
    std::memcpy(&rows_[i * dim_], &values_[slots[i] * dim_], dim_ * sizeof(float));
  }
}

}  // namespace sluice
