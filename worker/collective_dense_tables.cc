#include "worker/collective_dense_tables.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
#include "common/wire/frame.h"

namespace sluice {
namespace {

std::vector<GradientSize> SizesOf(const TableLayouts& tables) {
  std::vector<GradientSize> sizes;
  for (const auto& table : tables) sizes.push_back({table->elements(), table->wire_bytes()});
  return sizes;
}

}  // namespace

CollectiveDenseTables::CollectiveDenseTables(Options options)
    : spec_(options.spec),
      rank_(options.rank),
      env_(options.env),
      collective_(std::move(options.collective)),
      replica_(std::move(options.tables)),
      places_(replica_.tables().size()),
      put_(replica_.tables().size()) {
  const SyncConfigs& configs = spec_->config().strategy().sync_configs();
  const std::vector<GradientSize> sizes = SizesOf(replica_.tables());
  for (GradientBucket& plan : PlanGradientBuckets(sizes, uint64_t{configs.fuse_mb()} << 20,
                                                  std::max(1u, configs.fuse_layers()))) {
    Bucket& bucket = buckets_.emplace_back();
    for (const size_t table : plan.tables) {
      places_[table] = {
          buckets_.size() - 1,
          bucket.offsets.empty()
              ? 0
              : bucket.offsets.back() + sizes[plan.tables[bucket.offsets.size() - 1]].elements};
      bucket.offsets.push_back(places_[table].offset);
    }
    bucket.values.resize(plan.elements + 1);
    bucket.missing = plan.tables.size();
    bucket.plan = std::move(plan);
  }
}

CollectiveDenseTables::~CollectiveDenseTables() {
  collective_->Cancel();
  collective_->Leave();  // no operation uses the buckets any more
  if (writer_.joinable()) writer_.join();
}

absl::StatusOr<std::unique_ptr<CollectiveDenseTables>> CollectiveDenseTables::Create(
    Options options) {
  std::unique_ptr<CollectiveDenseTables> tables(new CollectiveDenseTables(std::move(options)));
  SLUICE_RETURN_IF_ERROR(tables->LoadTables());
  const JobSpec& spec = *tables->spec_;
  if (spec.config().evaluate_only()) return tables;  // the ranks exchange nothing
  SLUICE_ASSIGN_OR_RETURN(
      tables->card_,
      tables->collective_->Listen(spec.route().generation(), tables->rank_, spec.worker_num()));
  return tables;
}

absl::Status CollectiveDenseTables::LoadTables() {
  DenseReplica::Source source;
  source.directory = spec_->config().initial_model();
  if (spec_->has_restore()) {
    source.directory = spec_->restore().directory();
    source.state = true;
    source.new_job = spec_->restore().kind() == Restore::INITIAL;
    if (!source.new_job) source.step = spec_->restore().step();
  }
  return source.directory.empty() ? absl::OkStatus() : replica_.Load(source, env_);
}

absl::Status CollectiveDenseTables::Join(const std::vector<std::string>& cards) {
  return collective_->Join(spec_->route().generation(), cards, rank_);
}

std::vector<const float*> CollectiveDenseTables::ValuesOf(const StepBuffers&) const {
  std::vector<const float*> values;
  for (size_t i = 0; i < replica_.tables().size(); ++i) values.push_back(replica_.values(i));
  return values;
}

void CollectiveDenseTables::Ready(const StepBuffers& gradients, double weight, size_t i) {
  MutexLock lock(&mutex_);
  Put(gradients.dense[i].data(), i);
  SendFull(weight);
}

void CollectiveDenseTables::Put(const float* gradient, size_t i) {
  if (put_[i]) return;
  put_[i] = true;
  const TableLayout& table = *replica_.tables()[i];
  Bucket& bucket = buckets_[places_[i].bucket];
  float* const to = bucket.values.data() + places_[i].offset;
  if (gradient == nullptr) {
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

void CollectiveDenseTables::SendFull(double weight) {
  // A rank with a bad gradient stops here: nothing of it may reach the others.
  for (; status_.ok() && sent_ < buckets_.size() && buckets_[sent_].missing == 0; ++sent_) {
    Bucket& bucket = buckets_[sent_];
    const auto wire =
        bucket.plan.wire_bytes == 2 ? Collective::Wire::kBf16 : Collective::Wire::kF32;
    bucket.ticket =
        collective_->WeightedMean(replica_.closed(), absl::MakeSpan(bucket.values), weight, wire);
  }
}

absl::Status CollectiveDenseTables::Exchange(uint64_t step, const StepBuffers* gradients,
                                             double weight) {
  if (step != replica_.closed()) {
    return absl::InternalError(absl::StrCat("the dense tables of rank ", rank_, " are after step ",
                                            replica_.closed(), ", but the rank trains step ",
                                            step));
  }
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < places_.size(); ++i)
      Put(gradients == nullptr ? nullptr : gradients->dense[i].data(), i);
    SendFull(gradients == nullptr ? 0 : weight);
    SLUICE_RETURN_IF_ERROR(status_);
  }
  for (const Bucket& bucket : buckets_) {
    SLUICE_RETURN_IF_ERROR(collective_->Wait(bucket.ticket));
    SLUICE_RETURN_IF_ERROR(CheckMeans(bucket));
  }
  return absl::OkStatus();
}

// Finite gradients may overflow when they are weighted, summed or rounded to bf16. All ranks have
// the same means, so all of them stop here.
absl::Status CollectiveDenseTables::CheckMeans(const Bucket& bucket) const {
  if (AllFinite(bucket.values.data(), bucket.plan.elements)) return absl::OkStatus();
  for (size_t i = 0; i < bucket.plan.tables.size(); ++i) {
    const TableLayout& table = *replica_.tables()[bucket.plan.tables[i]];
    if (AllFinite(bucket.values.data() + bucket.offsets[i], table.elements())) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the mean gradient of table '", table.name(),
        "' over all workers overflows; it was not used. Lower the learning rate or clip the "
        "gradient (optimizers.clip_global_norm)"));
  }
  return absl::OkStatus();
}

void CollectiveDenseTables::CloseStep() {
  for (size_t i = 0; i < places_.size(); ++i) {
    const Bucket& bucket = buckets_[places_[i].bucket];
    if (bucket.values.back() > 0.5f) replica_.Update(i, bucket.values.data() + places_[i].offset);
  }
  replica_.CloseStep();
  MutexLock lock(&mutex_);
  put_.assign(put_.size(), false);
  sent_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.plan.tables.size();
}

absl::StatusOr<std::vector<SavedFile>> CollectiveDenseTables::SaveModel(
    const std::string& directory, const std::string& save_id) {
  if (rank_ != 0) return std::vector<SavedFile>();
  return DenseReplica::Write(replica_.Copy(/*state=*/false), directory, save_id, env_);
}

void CollectiveDenseTables::SaveCheckpoint(uint64_t number, uint64_t step, Saved done) {
  if (rank_ != 0) return done(std::vector<SavedFile>());
  {
    MutexLock lock(&writer_mutex_);
    if (writing_) {
      // The disk is slow: the scheduler has given the earlier checkpoint up meanwhile.
      done(absl::UnavailableError("the files of an earlier checkpoint are still being written"));
      return;
    }
    writing_ = true;
  }
  if (writer_.joinable()) writer_.join();
  writer_ =
      std::thread([this, image = replica_.Copy(/*state=*/true),
                   directory = CheckpointFolder(CheckpointRoot(spec_->config()), step),
                   save_id = CheckpointSaveId(spec_->instance(), number), done = std::move(done)] {
        absl::StatusOr<std::vector<SavedFile>> files =
            DenseReplica::Write(image, directory, save_id, env_);
        {
          MutexLock lock(&writer_mutex_);
          writing_ = false;
        }
        done(std::move(files));
      });
}

}  // namespace sluice
