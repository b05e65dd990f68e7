#include "worker/dense/collective_dense_tables.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"

namespace sluice {
namespace {

std::vector<size_t> IndicesOf(std::vector<size_t> given, size_t tables) {
  if (!given.empty()) return given;
  given.resize(tables);
  std::iota(given.begin(), given.end(), size_t{0});
  return given;
}

const SyncConfigs& ConfigsOf(const JobSpec& spec) {
  return spec.config().strategy().sync_configs();
}

}  // namespace

CollectiveDenseTables::CollectiveDenseTables(Options options)
    : spec_(options.spec),
      env_(options.env),
      alone_(spec_->config().evaluate_only()),
      group_(std::move(options.collective), GroupOptions(options.group)),
      indices_(IndicesOf(std::move(options.indices), options.tables.size())),
      step_(options.tables, group_.collective(), uint64_t{ConfigsOf(*spec_).fuse_mb()} << 20,
            std::max(1u, ConfigsOf(*spec_).fuse_layers())),
      recovery_(&step_, group_.rank(), group_.ranks(), options.group.holds_tables),
      writer_(env_) {}

CollectiveDenseTables::~CollectiveDenseTables() {
  group_.Cancel();
  group_.collective()->Leave();  // no operation uses the gradients any more
}

RankGroup::Options CollectiveDenseTables::GroupOptions(RankGroup::Options options) {
  options.add_standing = [this](RankGroupReport* report) { recovery_.AddStanding(report); };
  return options;
}

absl::StatusOr<std::unique_ptr<CollectiveDenseTables>> CollectiveDenseTables::Create(
    Options options) {
  const JobSpec& spec = *options.spec;
  const bool loads = !options.rejoins || spec.config().evaluate_only();
  options.group.ranks = spec.worker_num();
  options.group.generation = spec.route().generation();
  // A rank that rejoins takes the tables of the present step from another rank. Tables that it
  // could load are older.
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
  return source.directory.empty() ? absl::OkStatus() : step_.replica().Load(source, env_);
}

RankMeetings* CollectiveDenseTables::meetings() { return alone_ ? nullptr : this; }

std::vector<const float*> CollectiveDenseTables::ValuesOf(const StepBuffers&) const {
  std::vector<const float*> values;
  for (size_t i = 0; i < step_.replica().tables().size(); ++i)
    values.push_back(step_.replica().values(i));
  return values;
}

void CollectiveDenseTables::Ready(const StepBuffers& gradients, double weight, size_t i) {
  if (has_means()) return;  // an earlier life of this rank has taken part
  // Only for WaitingFor: gradients that leave during backward keep nobody waiting.
  leaving_.store(true, std::memory_order_relaxed);
  const auto own = std::lower_bound(indices_.begin(), indices_.end(), i);
  step_.exchange().Put(step_.closed(), weight, static_cast<size_t>(own - indices_.begin()),
                       gradients.dense[i].data());
}

std::vector<const float*> CollectiveDenseTables::GradientsOf(const StepBuffers* gradients) const {
  std::vector<const float*> own(indices_.size());
  for (size_t t = 0; gradients != nullptr && t < own.size(); ++t)
    own[t] = gradients->dense[indices_[t]].data();
  return own;
}

void CollectiveDenseTables::Send(uint64_t step, const StepBuffers* gradients, double weight) {
  leaving_.store(true, std::memory_order_relaxed);
  SendRest(step, gradients, weight);
}

void CollectiveDenseTables::SendRest(uint64_t step, const StepBuffers* gradients, double weight) {
  // Exchange says so if it is not the next step.
  if (step != step_.closed() || has_means()) return;
  step_.exchange().PutRest(step, gradients == nullptr ? 0 : weight, GradientsOf(gradients));
}

absl::Status CollectiveDenseTables::Exchange(uint64_t step, const StepBuffers* gradients,
                                             double weight) {
  leaving_.store(false, std::memory_order_relaxed);
  if (step != step_.closed()) {
    return absl::InternalError(absl::StrCat("the dense tables of rank ", rank(), " are after step ",
                                            step_.closed(), ", but the rank trains step ", step));
  }
  // After a meeting, the means may be there, and with them the step may have closed. Each turn is
  // one try in one group. If a rank is lost meanwhile, the next group starts again with the
  // gradients of all ranks.
  while (step_.closed() == step && !has_means()) {
    SendRest(step, gradients, weight);
    const absl::Status reduced =
        group_.RunFor(step + 1, [this] { return step_.exchange().Wait(); });
    if (reduced.ok()) {
      step_.SetMeansOf(step);
    } else {
      const absl::Status met = Recover(reduced, step + 1);
      // Not another try: leaving a new group would end the meeting of ranks that are still in it.
      if (group_.NeverCloses(step + 1)) return reduced;
      SLUICE_RETURN_IF_ERROR(met);
      step_.exchange().Clear();
    }
  }
  return absl::OkStatus();
}

absl::Status CollectiveDenseTables::CloseStep(uint64_t steps) {
  // A meeting may have closed it. Without its means, the next Exchange says so.
  step_.Close(steps);
  return step_.replica().finite();
}

absl::Status CollectiveDenseTables::Attend() {
  leaving_.store(false, std::memory_order_relaxed);
  return group_.Attend([this](Collective& collective,
                              uint64_t closed) { return recovery_.Agree(collective, closed); },
                       [this](uint64_t steps) { return recovery_.CloseAsTold(steps); });
}

absl::Status CollectiveDenseTables::Meet(uint64_t committed) {
  recovery_.set_committed(committed);
  return group_.joined() ? Attend() : Recover(absl::OkStatus(), /*step=*/0);
}

absl::Status CollectiveDenseTables::Recover(const absl::Status& why, uint64_t step) {
  leaving_.store(false, std::memory_order_relaxed);
  return group_.Await(
      why, step,
      [this](Collective& collective, uint64_t closed) {
        return recovery_.Agree(collective, closed);
      },
      [this](uint64_t steps) { return recovery_.CloseAsTold(steps); });
}

absl::Status CollectiveDenseTables::GiveUp(const absl::Status& why) {
  group_.GiveUp(std::string(why.message()));
  return why;
}

absl::StatusOr<std::vector<SavedFile>> CollectiveDenseTables::SaveModel(
    const std::string& directory, const std::string& save_id) {
  // All ranks have the same bits, so one of them writes.
  if (rank() != 0) return std::vector<SavedFile>();
  return DenseReplica::Write(step_.replica().Copy(/*state=*/false), directory, save_id, env_);
}

void CollectiveDenseTables::SaveCheckpoint(uint64_t number, uint64_t step, Saved done) {
  writer_.Start(step_.replica(), CheckpointFolder(CheckpointRoot(spec_->config()), step),
                CheckpointSaveId(spec_->instance(), number), std::move(done));
}

}  // namespace sluice
