#include "server/shards/buffered_bytes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/server/test_worker.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20, kAvailable = uint64_t{32} << 30;
constexpr uint64_t kRow = 8 + 3 * 4, kSumRow = 8 + 3 * 8;  // table "e" of MakeSpec

UpdatePolicy PolicyOf(const JobSpec& spec, Mode mode, uint32_t gradients_to_wait = 1) {
  UpdatePolicy policy;
  policy.mode = mode;
  policy.worker_num = spec.worker_num();
  policy.gradients_to_wait = gradients_to_wait;
  return policy;
}

// A sync job whose workers have batches of 1000 examples, with these features.
JobSpec SpecOf(std::initializer_list<CategoricalFeature> features) {
  JobSpec spec = MakeSpec(4, false, 0);
  spec.mutable_config()->mutable_train()->set_batch_size(1000);
  spec.mutable_config()->mutable_data()->set_format(DataConfig::CSV);
  for (const CategoricalFeature& one : features)
    *spec.mutable_config()->add_features()->mutable_categorical() = one;
  return spec;
}

CategoricalFeature Hashed(uint64_t buckets, const char* delimiter = "") {
  CategoricalFeature feature;
  feature.set_hash_buckets(buckets);
  feature.set_multi_value_delimiter(delimiter);
  return feature;
}

uint64_t MostOfRank(const JobSpec& spec, uint64_t available = kAvailable) {
  return MostBufferedOfRank(spec, LayoutsOf(spec), 0, PolicyOf(spec, Mode::kSync), available);
}

TEST(BufferedBytesTest, ARankMayBufferFourTimesWhatItsBatchCanHave) {
  // 1000 keys of each feature at most, and 501 of the second.
  JobSpec spec = SpecOf({CategoricalFeature(), Hashed(500)});
  const uint64_t most = MostOfRank(spec);
  EXPECT_EQ(most, 4 * 1501 * kRow + 4 * kMiB);
  EXPECT_EQ(SparseBuffersOf(spec, LayoutsOf(spec), 0).bytes, 4 * 1501 * kRow) << "of four ranks";
  // Several batches are merged into one step.
  spec.mutable_config()->mutable_strategy()->mutable_sync_configs()->set_gradient_merge_steps(3);
  EXPECT_EQ(MostOfRank(spec), 4 * 3501 * kRow + 4 * kMiB);
  // The job resumes with the global batch of more workers.
  spec.set_global_batch(40'000);
  EXPECT_EQ(MostOfRank(spec), 4 * 10'501 * kRow + 4 * kMiB);
  // One of four shards is elsewhere.
  spec.mutable_route()->add_pservers("127.0.0.1:7001");
  spec.mutable_route()->mutable_tables(1)->set_owner(1, 1);
  EXPECT_EQ(MostOfRank(spec), 4 * 10'501 * kRow * 3 / 4 + 4 * kMiB);
  spec.mutable_tables(1)->set_max_rows(100);
  EXPECT_EQ(MostOfRank(spec), 4 * 100 * kRow * 3 / 4 + 4 * kMiB);
  // Keys that are not admitted take no row.
  spec.mutable_tables(1)->mutable_admit()->set_after(2);
  EXPECT_EQ(MostOfRank(spec), 4 * 10'501 * kRow * 3 / 4 + 4 * kMiB);
}

// A second sparse table with rows of `dim` values, placed like table "e".
void AddTable(uint32_t dim, JobSpec* spec) {
  TableConfig* const table = spec->add_tables();
  *table = spec->tables(1);
  table->set_name("second");
  while (table->columns_size() > 1) table->mutable_columns()->RemoveLast();
  table->mutable_columns(0)->set_dim(dim);
  *spec->mutable_route()->add_tables() = spec->route().tables(1);
}

TEST(BufferedBytesTest, SparseTablesShareTheKeysOfABatch) {
  JobSpec spec = SpecOf({CategoricalFeature(), Hashed(500)});
  AddTable(5, &spec);
  constexpr uint64_t kWideRow = 8 + 5 * 4, kWideSum = 8 + 5 * 8;
  // All 1501 keys may be in the table with the wider rows.
  EXPECT_EQ(MostOfRank(spec), 4 * 1501 * kWideRow + 4 * kMiB);
  EXPECT_EQ(
      MostBufferedOfRank(spec, LayoutsOf(spec), 0, PolicyOf(spec, Mode::kAsync, 7), kAvailable),
      4 * 7 * 1501 * kWideSum + 4 * kMiB);
  SparseBuffers all = SparseBuffersOf(spec, LayoutsOf(spec), 0);
  EXPECT_EQ(all.bytes, 4 * 1501 * kWideRow) << "of four ranks";
  EXPECT_EQ(all.most, all.bytes);
  EXPECT_EQ(all.name, "second");
  // Limits of rows leave less than that.
  spec.mutable_tables(1)->set_max_rows(100);
  spec.mutable_tables(2)->set_max_rows(200);
  all = SparseBuffersOf(spec, LayoutsOf(spec), 0);
  EXPECT_EQ(all.bytes, 4 * (100 * kRow + 200 * kWideRow));
  EXPECT_EQ(all.most, 4 * 200 * kWideRow);
  // A limit of one table alone does not take keys from the other.
  spec.mutable_tables(2)->set_max_rows(0);
  EXPECT_EQ(SparseBuffersOf(spec, LayoutsOf(spec), 0).bytes, 4 * 1501 * kWideRow);
}

TEST(BufferedBytesTest, WiderRowsOfSumsAndAllTheirFramesCount) {
  const JobSpec spec = SpecOf({CategoricalFeature()});
  EXPECT_EQ(
      MostBufferedOfRank(spec, LayoutsOf(spec), 0, PolicyOf(spec, Mode::kAsync, 7), kAvailable),
      4 * 7 * 1000 * kSumRow + 4 * kMiB);
}

TEST(BufferedBytesTest, RowsInBf16CountAsTheyAreBuffered) {
  JobSpec spec = SpecOf({CategoricalFeature()});
  const uint64_t most = MostOfRank(spec);
  spec.mutable_tables(1)->set_wire_type(TableConfig::BF16);
  EXPECT_EQ(MostOfRank(spec), most);
}

TEST(BufferedBytesTest, MultiValuedFeaturesMayFillTheirKeysOrHalfOfTheMemory) {
  EXPECT_EQ(MostOfRank(SpecOf({Hashed(1'000'000, "|")})), 4 * 1'000'001 * kRow + 4 * kMiB);
  EXPECT_EQ(MostOfRank(SpecOf({Hashed(0, "|")})), kAvailable / 2);
  EXPECT_EQ(MostOfRank(SpecOf({Hashed(UINT64_MAX, "|"), Hashed(UINT64_MAX, "|")})), kAvailable / 2);
  // Never less than with one value in each cell.
  EXPECT_EQ(MostOfRank(SpecOf({Hashed(0, "|")}), /*available=*/0), 4 * 1000 * kRow + 4 * kMiB);
  // Slots have any number of values.
  JobSpec slots = SpecOf({CategoricalFeature()});
  slots.mutable_config()->mutable_data()->set_format(DataConfig::MULTI_SLOT);
  EXPECT_EQ(MostOfRank(slots), kAvailable / 2);
}

TEST(BufferedBytesTest, WithoutFeaturesTheDataDecides) {
  EXPECT_EQ(MostOfRank(SpecOf({})), kAvailable / 2);
}

TEST(BufferBudgetTest, EachRankHasTheWholeBudget) {
  BufferBudget budget(2, 100);
  EXPECT_TRUE(budget.Take(0, 60));
  EXPECT_FALSE(budget.Take(0, 41));
  EXPECT_FALSE(budget.Take(0, UINT64_MAX));
  EXPECT_TRUE(budget.Take(0, 40));
  EXPECT_TRUE(budget.Take(1, 100)) << "another rank";
  EXPECT_FALSE(budget.Take(1, 1));
  budget.Give(0, 60);
  EXPECT_EQ(budget.taken(0), 40u);
  EXPECT_TRUE(budget.Take(0, 60));
}

TEST(BufferBudgetTest, ThreadsTogetherTakeNoMoreThanTheBudget) {
  BufferBudget budget(1, 1000);
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) taken += budget.Take(0, 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 333);
}

}  // namespace
}  // namespace sluice
