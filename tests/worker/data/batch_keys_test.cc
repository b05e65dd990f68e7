#include "worker/data/batch_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/worker/fakes.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class BatchKeysTest : public ::testing::Test {
 protected:
  // The model outlives the test's use of the context.
  void Use(const Model& model) {
    client_ = std::make_unique<FakeClient>(model, 1.0f);
    context_.model = &model;
    context_.client = client_.get();
  }

  std::unique_ptr<FakeClient> client_;
  JobContext context_;
  BatchKeys keys_;
};

TEST_F(BatchKeysTest, OneTableHasAllKeysOfTheBatch) {
  const FakeModel model;
  Use(model);
  PreparedBatch prepared;
  prepared.batch.keys = {5, 9, 5, 7, 9};
  keys_.Find(context_, &prepared);
  ASSERT_THAT(prepared.keys, SizeIs(1));
  KeySet expected;
  std::vector<uint32_t> index(5);
  KeyDeduplicator().Run(context_.sparse(0), prepared.batch.keys.data(), 5, &expected, index.data());
  EXPECT_EQ(prepared.keys[0].keys, expected.keys);
  EXPECT_EQ(prepared.keys[0].offsets, expected.offsets);
  EXPECT_EQ(prepared.row_index, index);
}

TEST_F(BatchKeysTest, AModelWithoutSparseTablesHasNoKeys) {
  const TablesModel model({SgdTable("dense", TableConfig::DENSE, 2, 1.0f)});
  Use(model);
  PreparedBatch prepared;
  prepared.keys.resize(1);  // of another job
  keys_.Find(context_, &prepared);
  EXPECT_THAT(prepared.keys, IsEmpty());
}

// Slots 0 and 2 have their keys in table 1, slot 1 in table 0.
TEST_F(BatchKeysTest, EachTableHasTheKeysOfItsSlots) {
  const TwoTablesModel model;
  Use(model);
  std::mt19937 random(3);
  PreparedBatch prepared;
  // Batches of other sizes reuse the buffers of the one before.
  for (const size_t examples : {40, 3, 0, 70}) {
    prepared.batch.Reset(0, 3);
    std::vector<std::vector<uint64_t>> gathered(2);
    for (size_t i = 0; i < examples; ++i) {
      std::vector<std::vector<uint64_t>> by_slot(3);
      for (size_t slot = 0; slot < 3; ++slot) {
        // The same keys are in both tables; some slots have none.
        for (size_t k = random() % 4; k > 0; --k) by_slot[slot].push_back(random() % 30);
        std::vector<uint64_t>& table = gathered[slot == 1 ? 0 : 1];
        table.insert(table.end(), by_slot[slot].begin(), by_slot[slot].end());
      }
      AppendKeys(by_slot, &prepared.batch);
    }
    keys_.Find(context_, &prepared);
    ASSERT_THAT(prepared.keys, SizeIs(2));
    ASSERT_EQ(prepared.row_index.size(), prepared.batch.keys.size());
    for (size_t table = 0; table < 2; ++table) {
      KeySet expected;
      std::vector<uint32_t> index(gathered[table].size());
      KeyDeduplicator().Run(context_.sparse(table), gathered[table].data(), index.size(), &expected,
                            index.data());
      EXPECT_EQ(prepared.keys[table].keys, expected.keys) << "the order of first use in a shard";
      EXPECT_EQ(prepared.keys[table].offsets, expected.offsets);
    }
    for (size_t cell = 0; cell < 3 * examples; ++cell) {
      const std::vector<uint64_t>& unique = prepared.keys[cell % 3 == 1 ? 0 : 1].keys;
      for (uint32_t k = prepared.batch.key_offsets[cell]; k < prepared.batch.key_offsets[cell + 1];
           ++k) {
        ASSERT_LT(prepared.row_index[k], unique.size());
        EXPECT_EQ(unique[prepared.row_index[k]], prepared.batch.keys[k]);
      }
    }
  }
}

TEST_F(BatchKeysTest, ABatchWithoutExamplesHasAnEmptyListForEachShardOfEachTable) {
  const TwoTablesModel model;
  Use(model);
  PreparedBatch prepared;
  prepared.batch.Reset(0, 3);
  keys_.Find(context_, &prepared);
  ASSERT_THAT(prepared.keys, SizeIs(2));
  for (size_t table = 0; table < 2; ++table) {
    EXPECT_THAT(prepared.keys[table].keys, IsEmpty());
    EXPECT_THAT(prepared.keys[table].offsets, SizeIs(context_.sparse(table).num_shards() + 1));
    EXPECT_THAT(prepared.keys[table].offsets, Each(0u));
  }
}

}  // namespace
}  // namespace sluice
