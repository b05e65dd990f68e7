#include "worker/dense/rank_records.h"

#include <cstring>

#include "absl/types/span.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kFloats = sizeof(RankRecord) / sizeof(float);

uint64_t BitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

double DoubleOf(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

absl::StatusOr<std::vector<RankRecord>> GatherRecords(Collective* collective, uint32_t rank,
                                                      uint32_t ranks, const RankRecord& own) {
  // AllGather copies the floats as they are, so they may hold any bits.
  std::vector<float> values(kFloats * ranks);
  // Copied and not converted: the numbers are 64-bit integers and doubles.
  std::memcpy(values.data() + kFloats * rank, own.data(), sizeof(own));
  SLUICE_RETURN_IF_ERROR(collective->AllGather(absl::MakeSpan(values)));
  std::vector<RankRecord> records(ranks);
  for (uint32_t r = 0; r < ranks; ++r)
    std::memcpy(records[r].data(), values.data() + kFloats * r, sizeof(RankRecord));
  return records;
}

void PutTotals(const TrainTotals& totals, size_t at, RankRecord* record) {
  (*record)[at] = totals.examples();
  (*record)[at + 1] = totals.steps();
  (*record)[at + 2] = BitsOf(totals.loss_sum());
  (*record)[at + 3] = BitsOf(totals.weight_sum());
}

TrainTotals TotalsAt(const RankRecord& record, size_t at) {
  TrainTotals totals;
  totals.set_examples(record[at]);
  totals.set_steps(record[at + 1]);
  totals.set_loss_sum(DoubleOf(record[at + 2]));
  totals.set_weight_sum(DoubleOf(record[at + 3]));
  return totals;
}

}  // namespace sluice
