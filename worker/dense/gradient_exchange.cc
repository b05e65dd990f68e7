#include "worker/dense/gradient_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/frame.h"

namespace sluice {
namespace {

std::vector<GradientSize> SizesOf(const TableLayouts& tables) {
  std::vector<GradientSize> sizes;
  for (const auto& table : tables) sizes.push_back({table->elements(), table->wire_bytes()});
  return sizes;
}

}  // namespace

GradientExchange::GradientExchange(TableLayouts tables, Collective* collective, uint64_t max_bytes,
                                   size_t max_tables)
    : tables_(std::move(tables)),
      collective_(collective),
      places_(tables_.size()),
      put_(tables_.size()) {
  for (GradientBucket& plan : PlanGradientBuckets(SizesOf(tables_), max_bytes, max_tables))
    AddBucket(std::move(plan));
}

void GradientExchange::AddBucket(GradientBucket plan) {
  Bucket bucket;
  size_t offset = 0;
  for (const size_t table : plan.tables) {
    places_[table] = {buckets_.size(), offset};
    bucket.offsets.push_back(offset);
    offset += tables_[table]->elements();
  }
  // The last value tells whether any rank had examples (mean).
  bucket.values.resize(plan.elements + 1);
  bucket.missing = plan.tables.size();
  bucket.plan = std::move(plan);
  buckets_.push_back(std::move(bucket));
}

void GradientExchange::Put(uint64_t step, double weight, size_t t, const float* gradient) {
  MutexLock lock(&mutex_);
  Copy(gradient, t);
  SendFull(step, weight);
}

void GradientExchange::PutRest(uint64_t step, double weight,
                               const std::vector<const float*>& gradients) {
  MutexLock lock(&mutex_);
  for (size_t t = 0; t < tables_.size(); ++t) Copy(gradients[t], t);
  SendFull(step, weight);
}

void GradientExchange::Copy(const float* gradient, size_t t) {
  // The table left during backward already; PutRest brings all of them.
  if (put_[t]) return;
  put_[t] = true;
  const TableLayout& table = *tables_[t];
  Bucket& bucket = buckets_[places_[t].bucket];
  float* const to = bucket.values.data() + places_[t].offset;
  if (gradient == nullptr) {
    // A rank without examples takes part too: the others wait for its buckets.
    std::fill_n(to, table.elements(), 0.0f);
  } else if (AllFinite(gradient, table.elements())) {
    std::copy_n(gradient, table.elements(), to);
  } else if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "the gradient of table '", table.name(),
        "' holds a NaN or an infinity; it was not used. Lower the learning rate or clip the "
        "gradient (optimizers.clip_global_norm)"));
  }
  if (--bucket.missing == 0) bucket.values.back() = 1;
}

void GradientExchange::SendFull(uint64_t step, double weight) {
  // A rank with a bad gradient stops here: nothing of it may reach the others.
  for (; status_.ok() && sent_ < buckets_.size() && buckets_[sent_].missing == 0; ++sent_) {
    Bucket& bucket = buckets_[sent_];
    const auto wire =
        bucket.plan.wire_bytes == 2 ? Collective::Wire::kBf16 : Collective::Wire::kF32;
    bucket.ticket = collective_->WeightedMean(step, absl::MakeSpan(bucket.values), weight, wire);
  }
}

absl::Status GradientExchange::Wait() {
  {
    MutexLock lock(&mutex_);
    SLUICE_RETURN_IF_ERROR(status_);
  }
  // In the order in which the buckets left, and without the lock: nobody puts gradients any more.
  for (const Bucket& bucket : buckets_) {
    SLUICE_RETURN_IF_ERROR(collective_->Wait(bucket.ticket));
    SLUICE_RETURN_IF_ERROR(CheckMeans(bucket));
  }
  return absl::OkStatus();
}

// Finite gradients may overflow when they are weighted, summed or rounded to bf16. All ranks have
// the same means, so all of them stop here.
absl::Status GradientExchange::CheckMeans(const Bucket& bucket) const {
  if (AllFinite(bucket.values.data(), bucket.plan.elements)) return absl::OkStatus();
  for (size_t i = 0; i < bucket.plan.tables.size(); ++i) {
    const TableLayout& table = *tables_[bucket.plan.tables[i]];
    if (AllFinite(bucket.values.data() + bucket.offsets[i], table.elements())) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the mean gradient of table '", table.name(),
        "' over all workers overflows; it was not used. Lower the learning rate or clip the "
        "gradient (optimizers.clip_global_norm)"));
  }
  return absl::OkStatus();
}

void GradientExchange::Clear() {
  MutexLock lock(&mutex_);
  put_.assign(put_.size(), false);
  sent_ = 0;
  status_ = absl::OkStatus();
  for (Bucket& bucket : buckets_) bucket.missing = bucket.plan.tables.size();
}

const float* GradientExchange::mean(size_t t) const {
  const Bucket& bucket = buckets_[places_[t].bucket];
  // 1 if any rank had examples, and 0 otherwise. Rounding may move a weighted mean of ones a
  // little.
  return bucket.values.back() > 0.5f ? bucket.values.data() + places_[t].offset : nullptr;
}

std::vector<absl::Span<float>> GradientExchange::Arrays() {
  std::vector<absl::Span<float>> arrays;
  for (Bucket& bucket : buckets_) arrays.push_back(absl::MakeSpan(bucket.values));
  return arrays;
}

}  // namespace sluice
