#include "worker/collective_dense_tables.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
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
      replica_(std::move(options.tables)),
      indices_(IndicesOf(std::move(options.indices), replica_.tables().size())),
      exchange_(replica_.tables(), group_.collective(), uint64_t{ConfigsOf(*spec_).fuse_mb()} << 20,
                std::max(1u, ConfigsOf(*spec_).fuse_layers())),
      holds_(options.group.holds_tables),
      writer_(env_) {}

CollectiveDenseTables::~CollectiveDenseTables() {
  group_.Cancel();
  group_.collective()->Leave();  // no operation uses the gradients any more
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
  leaving_.store(true, std::memory_order_relaxed);
  const auto own = std::lower_bound(indices_.begin(), indices_.end(), i);
  exchange_.Put(replica_.closed(), weight, static_cast<size_t>(own - indices_.begin()),
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
  if (step != replica_.closed() || has_means()) return;
  exchange_.PutRest(step, gradients == nullptr ? 0 : weight, GradientsOf(gradients));
}

absl::Status CollectiveDenseTables::Exchange(uint64_t step, const StepBuffers* gradients,
                                             double weight) {
  leaving_.store(false, std::memory_order_relaxed);
  if (step != replica_.closed()) {
    return absl::InternalError(absl::StrCat("the dense tables of rank ", rank(), " are after step ",
                                            replica_.closed(), ", but the rank trains step ",
                                            step));
  }
  // After a meeting, the means may be there, and with them the step may have closed.
  while (replica_.closed() == step && !has_means()) {
    SendRest(step, gradients, weight);
    const absl::Status reduced = exchange_.Wait();
    if (reduced.ok()) {
      means_of_ = step;
    } else {
      SLUICE_RETURN_IF_ERROR(Recover(reduced));
      exchange_.Clear();
    }
  }
  return absl::OkStatus();
}

void CollectiveDenseTables::CloseStep(uint64_t steps) {
  if (steps <= replica_.closed()) return;  // a meeting has closed it
  if (!has_means()) return;                // the next Exchange says so
  for (size_t t = 0; t < indices_.size(); ++t)
    if (const float* const mean = exchange_.mean(t)) replica_.Update(t, mean);
  replica_.CloseStep();
  means_of_.reset();
  exchange_.Clear();
}

absl::Status CollectiveDenseTables::Attend() {
  leaving_.store(false, std::memory_order_relaxed);
  return group_.Attend(
      [this](Collective& collective, uint64_t closed) { return Agree(collective, closed); },
      [this](uint64_t steps) { return CloseAsTold(steps); });
}

absl::Status CollectiveDenseTables::Meet(uint64_t committed) {
  committed_ = committed;
  return group_.joined() ? Attend() : Recover(absl::OkStatus());
}

absl::Status CollectiveDenseTables::Recover(const absl::Status& why) {
  leaving_.store(false, std::memory_order_relaxed);
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
  for (const absl::Span<float> array : exchange_.Arrays())
    SLUICE_RETURN_IF_ERROR(sender.Send(AsBytes(array)));
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
  writer_.Start(replica_, CheckpointFolder(CheckpointRoot(spec_->config()), step),
                CheckpointSaveId(spec_->instance(), number), std::move(done));
}

}  // namespace sluice
