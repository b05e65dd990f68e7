#include "model/model_spec.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(ModelSpecTest, ShardsOfSparseTablesFollowThePservers) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  for (int i = 0; i < 3; ++i)
    tables.Add()->set_kind(i == 1 ? TableConfig::DENSE : TableConfig::SPARSE);
  tables[2].set_num_shards(3);
  ResolveShards(2, &tables);
  EXPECT_EQ(tables[0].num_shards(), 16u);
  EXPECT_EQ(tables[1].num_shards(), 0u);
  EXPECT_EQ(tables[2].num_shards(), 3u);
  tables[0].set_num_shards(0);
  ResolveShards(9, &tables);
  EXPECT_EQ(tables[0].num_shards(), 36u);
}

}  // namespace
}  // namespace sluice
