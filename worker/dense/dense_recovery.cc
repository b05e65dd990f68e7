#include "worker/dense/dense_recovery.h"

#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "worker/dense/rank_records.h"

namespace sluice {
namespace {

constexpr size_t kBroadcastBytes = 4 << 20;

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
    std::vector<uint8_t> dropped(in_place_ ? 0 : std::min(bytes.size(), kBroadcastBytes));
    for (size_t at = 0; at < bytes.size(); at += kBroadcastBytes) {
      const absl::Span<uint8_t> piece = bytes.subspan(at, kBroadcastBytes);
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

bool Any(const std::vector<bool>& ranks) {
  return std::find(ranks.begin(), ranks.end(), true) != ranks.end();
}

}  // namespace

absl::Status DenseRecovery::Agree(Collective& collective, uint64_t closed) {
  SLUICE_ASSIGN_OR_RETURN(const Agreement agreement, Compare(collective, closed));
  // First with the gradients of the step before, whose place those of the open step take next.
  if (holds_ && !agreement.needs_tables[rank_]) step_->Close(agreement.closed);
  SLUICE_RETURN_IF_ERROR(TakeTables(collective, agreement));
  SLUICE_RETURN_IF_ERROR(TakeNewest(collective, agreement.tables_from));
  SLUICE_RETURN_IF_ERROR(TakeMeans(collective, agreement));
  if (agreement.closes) step_->Close(agreement.closed + 1);
  return absl::OkStatus();
}

absl::StatusOr<Agreement> DenseRecovery::Compare(Collective& collective, uint64_t closed) {
  const RankRecord own = {holds_, step_->closed(), step_->has_means(), closed, committed_};
  SLUICE_ASSIGN_OR_RETURN(const std::vector<RankRecord> records,
                          GatherRecords(&collective, rank_, ranks_, own));
  std::vector<RankStanding> standings;
  for (const RankRecord& record : records)
    standings.push_back({record[0] != 0, record[1], record[2] != 0, record[3], record[4]});
  return AgreeOn(standings);
}

absl::Status DenseRecovery::TakeTables(Collective& collective, const Agreement& agreement) {
  const std::vector<bool>& needs = agreement.needs_tables;
  if (!Any(needs)) return absl::OkStatus();
  if (needs[rank_]) holds_ = false;  // until all of it is there
  const Sender sender(&collective, agreement.tables_from,
                      needs[rank_] || rank_ == agreement.tables_from);
  // The same arrays in the same order on all ranks: each broadcast needs every rank, also those
  // that drop what arrives.
  for (const absl::Span<float> array : step_->replica().Arrays())
    SLUICE_RETURN_IF_ERROR(sender.Send(AsBytes(array)));
  std::vector<uint64_t> counts = step_->replica().Counts();
  SLUICE_RETURN_IF_ERROR(sender.Send(AsBytes(absl::MakeSpan(counts))));
  if (!needs[rank_]) return absl::OkStatus();
  // The means here are of the step at which this rank was, not of the one that is open now.
  step_->DropMeans();
  step_->replica().SetCounts(counts);
  holds_ = true;
  return absl::OkStatus();
}

absl::Status DenseRecovery::TakeMeans(Collective& collective, const Agreement& agreement) {
  const std::vector<bool>& needs = agreement.needs_means;
  if (!Any(needs)) return absl::OkStatus();
  const Sender sender(&collective, *agreement.means_from,
                      needs[rank_] || rank_ == *agreement.means_from);
  for (const absl::Span<float> array : step_->exchange().Arrays())
    SLUICE_RETURN_IF_ERROR(sender.Send(AsBytes(array)));
  step_->SetMeansOf(agreement.closed);
  return absl::OkStatus();
}

absl::Status DenseRecovery::TakeNewest(Collective& collective, uint32_t from) {
  // Totals of ranks, then two numbers more.
  std::vector<RankRecord> records(ranks_ + 1);
  newest_.totals.resize(ranks_);
  for (uint32_t r = 0; r < ranks_; ++r) PutTotals(newest_.totals[r], 0, &records[r]);
  records.back()[0] = newest_.steps;
  records.back()[1] = newest_.checkpoint;
  // From the rank with the tables, whose sums belong to the same step as its values.
  SLUICE_RETURN_IF_ERROR(collective.Broadcast(AsBytes(absl::MakeSpan(records)), from));
  for (uint32_t r = 0; r < ranks_; ++r) newest_.totals[r] = TotalsAt(records[r], 0);
  newest_.steps = records.back()[0];
  newest_.checkpoint = records.back()[1];
  return absl::OkStatus();
}

bool DenseRecovery::CloseAsTold(uint64_t steps) {
  // Without the means this rank cannot make the update, and has to meet the others first.
  if (steps != step_->closed() + 1 || !step_->has_means()) return false;
  step_->Close(steps);
  return true;
}

void DenseRecovery::AddStanding(RankGroupReport* report) const {
  report->set_closed_steps(step_->closed());
  report->set_has_means(step_->has_means());
  report->clear_totals();
  // Sums of an older step would make the scheduler count examples that it should not.
  if (newest_.steps == step_->closed())
    report->mutable_totals()->Assign(newest_.totals.begin(), newest_.totals.end());
}

}  // namespace sluice
