#include "common/saved_model/model_tables.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TableConfig Dense(const std::string& name, const std::vector<uint64_t>& shape) {
  TableConfig table;
  table.set_name(name);
  table.set_kind(TableConfig::DENSE);
  *table.mutable_shape() = {shape.begin(), shape.end()};
  return table;
}

TableConfig Sparse(uint32_t dim) {
  TableConfig table;
  table.set_name("embedding");
  table.set_kind(TableConfig::SPARSE);
  for (const char* name : {"wide", "embedding"}) {
    ColumnGroup* column = table.add_columns();
    column->set_name(name);
    column->set_dim(column->name() == "wide" ? 1 : dim);
    column->mutable_optimizer()->mutable_adam();
  }
  return table;
}

Manifest Saved() {
  Manifest manifest;
  *manifest.add_tables() = Dense("layer_0/weights", {39, 400});
  *manifest.add_tables() = Sparse(10);
  *manifest.add_tables() = Dense("other", {1});
  return manifest;
}

std::string Refusal(const std::vector<TableConfig>& tables) {
  const absl::Status status = CheckTables("/m", Saved(), tables);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ModelTablesTest, TablesOfTheSameFormFit) {
  TableConfig sparse = Sparse(10);
  sparse.set_num_shards(64);
  sparse.mutable_columns(0)->mutable_optimizer()->mutable_sgd();
  EXPECT_TRUE(CheckTables("/m", Saved(), {sparse, Dense("layer_0/weights", {39, 400})}).ok());
}

TEST(ModelTablesTest, TheFirstThatDiffersIsToldInShortAndTheOthersAreCounted) {
  EXPECT_EQ(
      Refusal({Sparse(8)}),
      "table 'embedding' of /m is sparse, columns wide (1), embedding (10); the job's is "
      "sparse, columns wide (1), embedding (8); give a model that was trained with this job's "
      "features and widths, or the job the model's");
  const std::string three =
      Refusal({Dense("layer_0/weights", {39, 40}), Sparse(8), Dense("embedding", {1})});
  EXPECT_THAT(three,
              AllOf(HasSubstr("'layer_0/weights' of /m is dense 39 x 400; the job's is dense "
                              "39 x 40, and 2 more tables do not fit; "),
                    Not(HasSubstr("embedding"))));
  EXPECT_LT(three.size(), 250u);
}

TEST(ModelTablesTest, ATableThatTheModelLacksIsNamed) {
  EXPECT_THAT(Refusal({Dense("layer_1/weights", {2}), Sparse(8)}),
              HasSubstr("table 'layer_1/weights' is not in /m, and 1 more table does not fit; "));
}

}  // namespace
}  // namespace sluice
