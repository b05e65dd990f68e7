#include "worker/dense/rank_records.h"

#include <gtest/gtest.h>

#include "tests/common/collective/rank_threads.h"

namespace sluice {
namespace {

TEST(RankRecordsTest, EveryRankGetsTheBitsOfAll) {
  for (const char* engine : {"shm", "gloo"}) {
    if (!CanMake(engine, 3)) continue;
    RankThreads group(engine, 3);
    group.Join();
    group.ExpectOk([&](uint32_t rank, Collective& collective) -> absl::Status {
      TrainTotals totals;
      totals.set_examples(rank);
      totals.set_loss_sum(-0.1 * rank);
      RankRecord own = {~uint64_t{0}, 0x7fc000017f800001};  // NaNs, seen as floats
      PutTotals(totals, 2, &own);
      own.back() = rank;
      const auto records = GatherRecords(&collective, rank, 3, own);
      if (!records.ok()) return records.status();
      for (uint32_t r = 0; r < 3; ++r) {
        const RankRecord& record = (*records)[r];
        EXPECT_EQ(record[0], ~uint64_t{0});
        EXPECT_EQ(record[1], 0x7fc000017f800001u);
        EXPECT_EQ(record.back(), r);
        EXPECT_EQ(TotalsAt(record, 2).examples(), r);
        EXPECT_EQ(TotalsAt(record, 2).loss_sum(), -0.1 * r);
      }
      return absl::OkStatus();
    });
  }
}

}  // namespace
}  // namespace sluice
