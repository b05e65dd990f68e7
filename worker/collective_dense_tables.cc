#include "worker/collective_dense_tables.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
#include "common/wire/frame.h"
#include "worker/rank_records.h"

namespace sluice {
namespace {

constexpr size_t kPieceBytes = 4 << 20;

template <typename T>
absl::Span<uint8_t> AsBytes(absl::Span<T> array) {
  return absl::MakeSpan(reinterpret_cast<uint8_t*>(array.data()), array.size() * sizeof(T));
}

// Brings the arrays of one rank to others. All ranks take part; those that have the same bytes
// already drop what arrives.
class Sender {
 public:
  Sender(Collective* collective, uint32_t from, bool in_place)
      : collective_(collective), from_(from), in_place_(in_place) {}
  absl::Status Send(absl::Span<uint8_t> bytes) const {
    std::vector<uint8_t> dropped(in_place_ ? 0 : std::min(bytes.size(), kPieceBytes));
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const absl::Span<uint8_t> piece = bytes.subspan(at, kPieceBytes);
      SLUICE_RETURN_IF_ERROR(collective_->Broadcast(
          in_place_ ? piece : absl::MakeSpan(dropped).subspan(0, piece.size()), from_));
    }
    return absl::OkStatus();
  }

 private:
  Collective* const collective_;
  const uint32_t from_;
  const bool in_place_;
};

std::vector<GradientSize> SizesOf(const TableLayouts& tables) {
  std::vector<GradientSize> sizes;
  for (const auto& table : tables) sizes.push_back({table->elements(), table->wire_bytes()});
  return sizes;
}

std::vector<size_t> IndicesOf(std::vector<size_t> given, size_t tables) {
  if (!given.empty()) return given;
  given.resize(tables);
  std::iota(given.begin(), given.end(), size_t{0});
  return given;
}

}  // namespace

CollectiveDenseTables::CollectiveDenseTables(Options options)
    : spec_(options.spec),
      env_(options.env),
      alone_(spec_->config().evaluate_only()),
      group_(std::move(options.collective), GroupOptions(options.group)),
      replica_(std::move(options.tables)),
      indices_(IndicesOf(std::move(options.indices), replica_.tables().size())),
      places_(replica_.tables().size()),
      holds_(options.group.holds_tables),
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
  group_.Cancel();
  group_.collective()->Leave();  // no operation uses the buckets any more
  if (writer_.joinable()) writer_.join();
}

RankGroup::Options CollectiveDenseTables::GroupOptions(RankGroup::Options options) {
  options.add_standing = [this](RankGroupReport* report) {
    report->set_closed_steps(replica_.closed());
    report->set_has_means(has_means());
    report->clear_totals();
    if (newest_.steps == replica_.closed())
      report->mutable_totals()->Assign(newest_.totals.begin(), newest_.totals.end());
  };
  return options;
}

absl::StatusOr<std::unique_ptr<CollectiveDenseTables>> CollectiveDenseTables::Create(
    Options options) {
  const JobSpec& spec = *options.spec;
  const bool loads = !options.rejoins || spec.config().evaluate_only();
  options.group.ranks = spec.worker_num();
  options.group.generation = spec.route().generation();
  options.group.holds_tables = loads;
  std::unique_ptr<CollectiveDenseTables> tables(new CollectiveDenseTables(std::move(options)));
  if (loads) SLUICE_RETURN_IF_ERROR(tables->LoadTables());
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

RankMeetings* CollectiveDenseTables::meetings() { return alone_ ? nullptr : this; }

std::vector<const float*> CollectiveDenseTables::ValuesOf(const StepBuffers&) const {
  std::vector<const float*> values;
  for (size_t i = 0; i < replica_.tables().size(); ++i) values.push_back(replica_.values(i));
  return values;
}

void CollectiveDenseTables::Ready(const StepBuffers& gradients, double weight, size_t i) {
  if (has_means()) return;  // an earlier life of this rank has taken part
  const auto own = std::lower_bound(indices_.begin(), indices_.end(), i);
  MutexLock lock(&mutex_);
  Put(gradients.dense[i].data(), static_cast<size_t>(own - indices_.begin()));
  SendFull(weight);
}

void CollectiveDenseTables::Put(const float* gradient, size_t t) {
  if (put_[t]) return;
  put_[t] = true;
  const TableLayout& table = *replica_.tables()[t];
  Bucket& bucket = buckets_[places_[t].bucket];
  float* const to = bucket.values.data() + places_[t].offset;
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
    bucket.ticket = group_.collective()->WeightedMean(replica_.closed(),
                                                      absl::MakeSpan(bucket.values), weight, wire);
  }
}

void CollectiveDenseTables::EmptyBuckets() {
  put_.assign(put_.size(), false);
  sent_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.plan.tables.size();
}

absl::Status CollectiveDenseTables::Exchange(uint64_t step, const StepBuffers* gradients,
                                             double weight) {
  if (step != replica_.closed()) {
    return absl::InternalError(absl::StrCat("the dense tables of rank ", rank(), " are after step ",
                                            replica_.closed(), ", but the rank trains step ",
                                            step));
  }
  // After a meeting, the means may be there, and with them the step may have closed.
  while (replica_.closed() == step && !has_means()) {
    const absl::Status reduced = ReduceStep(gradients, weight);
    if (reduced.ok()) {
      means_of_ = step;
    } else {
      SLUICE_RETURN_IF_ERROR(Recover(reduced));
      MutexLock lock(&mutex_);
      EmptyBuckets();
    }
  }
  return absl::OkStatus();
}

absl::Status CollectiveDenseTables::ReduceStep(const StepBuffers* gradients, double weight) {
  {
    MutexLock lock(&mutex_);
    for (size_t t = 0; t < places_.size(); ++t)
      Put(gradients == nullptr ? nullptr : gradients->dense[indices_[t]].data(), t);
    SendFull(gradients == nullptr ? 0 : weight);
    SLUICE_RETURN_IF_ERROR(status_);
  }
  for (const Bucket& bucket : buckets_) {
    SLUICE_RETURN_IF_ERROR(group_.collective()->Wait(bucket.ticket));
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

void CollectiveDenseTables::CloseStep(uint64_t steps) {
  if (steps <= replica_.closed()) return;  // a meeting has closed it
  if (!has_means()) return;                // the next Exchange says so
  for (size_t i = 0; i < places_.size(); ++i) {
    const Bucket& bucket = buckets_[places_[i].bucket];
    if (bucket.values.back() > 0.5f) replica_.Update(i, bucket.values.data() + places_[i].offset);
  }
  replica_.CloseStep();
  means_of_.reset();
  MutexLock lock(&mutex_);
  EmptyBuckets();
}

absl::Status CollectiveDenseTables::Attend() {
  return group_.Attend(
      [this](Collective& collective, uint64_t closed) { return Agree(collective, closed); },
      [this](uint64_t steps) { return CloseAsTold(steps); });
}

absl::Status CollectiveDenseTables::Meet(uint64_t committed) {
  committed_ = committed;
  return group_.joined() ? Attend() : Recover(absl::OkStatus());
}

absl::Status CollectiveDenseTables::Recover(const absl::Status& why) {
  return group_.Await(
      why, [this](Collective& collective, uint64_t closed) { return Agree(collective, closed); },
      [this](uint64_t steps) { return CloseAsTold(steps); });
}

bool CollectiveDenseTables::CloseAsTold(uint64_t steps) {
  if (steps != replica_.closed() + 1 || !has_means()) return false;
  CloseStep(steps);
  return true;
}

absl::Status CollectiveDenseTables::GiveUp(const absl::Status& why) {
  group_.GiveUp(std::string(why.message()));
  return why;
}

absl::Status CollectiveDenseTables::Agree(Collective& collective, uint64_t closed) {
  SLUICE_ASSIGN_OR_RETURN(const Agreement agreement, Compare(collective, closed));
  // First with the gradients of the step before, whose place those of the open step take next.
  if (holds_ && !agreement.needs_tables[rank()]) CloseStep(agreement.closed);
  SLUICE_RETURN_IF_ERROR(TakeTables(collective, agreement));
  SLUICE_RETURN_IF_ERROR(TakeNewest(collective, agreement.tables_from));
  SLUICE_RETURN_IF_ERROR(TakeMeans(collective, agreement));
  if (agreement.closes) CloseStep(agreement.closed + 1);
  return absl::OkStatus();
}

absl::StatusOr<Agreement> CollectiveDenseTables::Compare(Collective& collective, uint64_t closed) {
  const RankRecord own = {holds_, replica_.closed(), has_means(), closed, committed_};
  SLUICE_ASSIGN_OR_RETURN(const std::vector<RankRecord> records,
                          GatherRecords(&collective, rank(), ranks(), own));
  std::vector<RankStanding> standings;
  for (const RankRecord& record : records)
    standings.push_back({record[0] != 0, record[1], record[2] != 0, record[3], record[4]});
  return AgreeOn(standings);
}

absl::Status CollectiveDenseTables::TakeTables(Collective& collective, const Agreement& agreement) {
  const std::vector<bool>& needs = agreement.needs_tables;
  if (std::find(needs.begin(), needs.end(), true) == needs.end()) return absl::OkStatus();
  if (needs[rank()]) holds_ = false;  // until all of it is there
  const Sender sender(&collective, agreement.tables_from,
                      needs[rank()] || rank() == agreement.tables_from);
  for (const absl::Span<float> array : replica_.Arrays())
    SLUICE_RETURN_IF_ERROR(sender.Send(AsBytes(array)));
  std::vector<uint64_t> counts = replica_.Counts();
  SLUICE_RETURN_IF_ERROR(sender.Send(AsBytes(absl::MakeSpan(counts))));
  if (!needs[rank()]) return absl::OkStatus();
  means_of_.reset();
  replica_.SetCounts(counts);
  holds_ = true;
  return absl::OkStatus();
}

absl::Status CollectiveDenseTables::TakeMeans(Collective& collective, const Agreement& agreement) {
  const std::vector<bool>& needs = agreement.needs_means;
  if (std::find(needs.begin(), needs.end(), true) == needs.end()) return absl::OkStatus();
  const Sender sender(&collective, *agreement.means_from,
                      needs[rank()] || rank() == *agreement.means_from);
  for (Bucket& bucket : buckets_)
    SLUICE_RETURN_IF_ERROR(sender.Send(AsBytes(absl::MakeSpan(bucket.values))));
  means_of_ = agreement.closed;
  return absl::OkStatus();
}

absl::Status CollectiveDenseTables::TakeNewest(Collective& collective, uint32_t from) {
  // Totals of ranks, then two numbers more.
  std::vector<RankRecord> records(ranks() + 1);
  newest_.totals.resize(ranks());
  for (uint32_t r = 0; r < ranks(); ++r) PutTotals(newest_.totals[r], 0, &records[r]);
  records.back()[0] = newest_.steps;
  records.back()[1] = newest_.checkpoint;
  SLUICE_RETURN_IF_ERROR(collective.Broadcast(AsBytes(absl::MakeSpan(records)), from));
  for (uint32_t r = 0; r < ranks(); ++r) newest_.totals[r] = TotalsAt(records[r], 0);
  newest_.steps = records.back()[0];
  newest_.checkpoint = records.back()[1];
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SavedFile>> CollectiveDenseTables::SaveModel(
    const std::string& directory, const std::string& save_id) {
  if (rank() != 0) return std::vector<SavedFile>();
  return DenseReplica::Write(replica_.Copy(/*state=*/false), directory, save_id, env_);
}

void CollectiveDenseTables::SaveCheckpoint(uint64_t number, uint64_t step, Saved done) {
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
        const absl::StatusOr<std::vector<SavedFile>> files =
            DenseReplica::Write(image, directory, save_id, env_);
        {
          MutexLock lock(&writer_mutex_);
          writing_ = false;
        }
        done(files);
      });
}

}  // namespace sluice
