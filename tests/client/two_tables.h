// Two small tables and their routes, for tests of the client's parts.
#pragma once

#include <string>
#include <vector>

#include "client/shard_index.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Table 0: sparse, rows of 2, flat shards 0 to 3. Table 1: dense, flat shards 4 to 6.
inline constexpr uint32_t kRows = 0, kWeights = 1;
inline constexpr uint32_t kFlatShards = 7, kFirstBlock = 4;
inline constexpr uint64_t kBlock = 262144, kLastBlock = 5;  // elements of a block
inline constexpr uint64_t kWeightElements = 2 * kBlock + kLastBlock;

inline TableLayouts TwoTables() {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* const rows = tables.Add();
  rows->set_name("rows");
  rows->set_kind(TableConfig::SPARSE);
  rows->set_num_shards(4);
  ColumnGroup* const column = rows->add_columns();
  column->set_name("w");
  column->set_dim(2);
  column->mutable_initializer()->set_constant(0);
  column->mutable_optimizer()->mutable_sgd();
  column->mutable_optimizer()->set_learning_rate(1);
  TableConfig* const weights = tables.Add();
  weights->set_name("weights");
  weights->set_kind(TableConfig::DENSE);
  weights->add_shape(kWeightElements);
  weights->mutable_initializer()->set_constant(0);
  weights->mutable_optimizer()->mutable_sgd();
  weights->mutable_optimizer()->set_learning_rate(1);
  return *CreateTableLayouts(tables, 1);
}

// Makes a route; owner[flat] is an index of `pservers`.
inline Route RouteTo(uint64_t generation, const std::vector<std::string>& pservers,
                     const std::vector<uint32_t>& owner) {
  Route route;
  route.set_generation(generation);
  for (const std::string& address : pservers) route.add_pservers(address);
  route.add_tables();
  route.add_tables();
  for (uint32_t flat = 0; flat < owner.size(); ++flat) {
    route.mutable_tables(flat < kFirstBlock ? kRows : kWeights)->add_owner(owner[flat]);
  }
  return route;
}

// Shards 0, 1, 4 and 5 at "a", the others at "b".
inline Route TwoPservers(uint64_t generation = 1) {
  return RouteTo(generation, {"a", "b"}, {0, 0, 1, 1, 0, 0, 1});
}

}  // namespace sluice
