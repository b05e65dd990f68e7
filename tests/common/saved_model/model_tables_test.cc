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

TEST(ModelTablesTest, TablesOfEqualFormFit) {
  TableConfig sparse = Sparse(10);
  sparse.set_num_shards(64);
  sparse.mutable_columns(0)->mutable_optimizer()->mutable_sgd();
  EXPECT_TRUE(CheckTables("/m", Saved(), {sparse, Dense("layer_0/weights", {39, 400})}).ok());
}

TEST(ModelTablesTest, NamesTheFirstTableThatDiffersAndCountsTheOthers) {
  EXPECT_THAT(Refusal({Sparse(8)}), AllOf(HasSubstr("'embedding'"), HasSubstr("/m"),
                                          HasSubstr("sparse, columns wide (1), embedding (10)"),
                                          HasSubstr("sparse, columns wide (1), embedding (8)"),
                                          Not(HasSubstr("more table"))));
  const std::string three =
      Refusal({Dense("layer_0/weights", {39, 40}), Sparse(8), Dense("embedding", {1})});
  EXPECT_THAT(three, AllOf(HasSubstr("'layer_0/weights'"), HasSubstr("dense 39 x 400"),
                           HasSubstr("dense 39 x 40,"), HasSubstr("2 more tables"),
                           Not(HasSubstr("embedding"))));
  EXPECT_LT(three.size(), 250u);
}

TEST(ModelTablesTest, NamesATableThatTheModelLacks) {
  EXPECT_THAT(Refusal({Dense("layer_1/weights", {2}), Sparse(8)}),
              AllOf(HasSubstr("'layer_1/weights'"), HasSubstr("/m"), HasSubstr("1 more table ")));
}

TEST(ModelTablesTest, ANewJobStartsWithTheTablesThatBothHave) {
  const std::vector<TableConfig> tables = {Sparse(10), Dense("new", {3})};
  std::vector<std::string> fresh;
  EXPECT_TRUE(CheckStart("/c", Saved(), tables, &fresh).ok());
  EXPECT_EQ(fresh, std::vector<std::string>{"new"});
  EXPECT_FALSE(CheckTables("/c", Saved(), tables).ok());
  // Rates and schedules may change, rules and widths may not.
  TableConfig other = Sparse(10);
  other.mutable_columns(1)->mutable_optimizer()->set_learning_rate(7);
  EXPECT_TRUE(CheckStart("/c", Saved(), {other}, nullptr).ok());
  other.mutable_columns(1)->mutable_optimizer()->mutable_ftrl();
  const auto text = [](const std::vector<TableConfig>& of_job) {
    const absl::Status status = CheckStart("/c", Saved(), of_job, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(text({other}), AllOf(HasSubstr("column 'embedding' of table 'embedding'"),
                                   HasSubstr("adam"), HasSubstr("ftrl")));
  EXPECT_THAT(text({Sparse(8), Dense("new", {3})}),
              AllOf(HasSubstr("'embedding'"), HasSubstr("(10)"), HasSubstr("(8)")));
  EXPECT_THAT(text({Dense("new", {3})}), HasSubstr("'new'"));
}

// As Saved(), with optimizers, from which layouts can be made.
Manifest SavedWithRules() {
  Manifest manifest = Saved();
  for (TableConfig& table : *manifest.mutable_tables()) {
    if (table.kind() == TableConfig::DENSE) table.mutable_optimizer()->mutable_adam();
    if (table.kind() == TableConfig::SPARSE) table.set_num_shards(1);
  }
  return manifest;
}

TEST(ModelTablesTest, ANewJobTakesWhatItsStartsName) {
  const Manifest manifest = SavedWithRules();
  TableConfig dense = Dense("layer_0/weights", {30, 400});
  dense.mutable_optimizer()->mutable_adam();
  dense.mutable_start()->set_table("layer_0/weights");
  dense.mutable_start()->add_rows()->set_count(30);
  TableConfig sparse = Sparse(12);
  sparse.set_name("embedding_12");
  EXPECT_FALSE(CheckValues("/m", manifest, {sparse}).ok());
  sparse.mutable_start()->set_table("embedding");
  TableConfig fresh = Dense("new", {3});
  EXPECT_FALSE(CheckValues("/m", manifest, {fresh}).ok());
  fresh.mutable_start();
  EXPECT_TRUE(CheckValues("/m", manifest, {dense, sparse, fresh}).ok());
  std::vector<std::string> missing;
  EXPECT_TRUE(CheckStart("/m", manifest, {dense, sparse, fresh}, &missing).ok());
  EXPECT_EQ(missing, std::vector<std::string>{"new"});
  // A job that continues does not look at it.
  EXPECT_FALSE(CheckTables("/m", manifest, {dense}).ok());
  // Rules are compared with those of the saved table, and rows with its shape.
  sparse.mutable_columns(1)->mutable_optimizer()->mutable_sgd();
  EXPECT_FALSE(CheckStart("/m", manifest, {dense, sparse}, nullptr).ok());
  dense.mutable_start()->mutable_rows(0)->set_from(10);
  const absl::Status status = CheckValues("/m", manifest, {dense});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("/m"), HasSubstr("rows")));
}

}  // namespace
}  // namespace sluice
