#include "python/core/example_batches.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "common/config/job_config.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "model/built_in_models.h"
#include "model/features/feature_compiler.h"
#include "tests/common/arrow/arrow_columns.h"
#include "tests/python/core/arrow_streams.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr char kExampleJob[] = R"(
  name: "job"
  data { format: CSV train_files: "a.csv" csv { header: true missing: "?" } label { column: "y" } max_bad_lines: 1 }
  features { name: "age" numeric { z_score { mean: 10 stddev: 2 } } }
  features { name: "user" key: RAW categorical {} }
  features { name: "item" embedding: "item" categorical {} }
  features { name: "bought" embedding: "item" categorical { multi_value_delimiter: "|" pooling: MEAN } }
  model { program {
    collections { name: "emb" dim: 4 features: ["item", "bought"] }
    collections { name: "lin" dim: 1 features: ["user"] }
    parameters { name: "w" shape: [2] }
  } }
)";

class ExampleBatchesTest : public ::testing::Test {
 protected:
  ExampleBatchesTest() {
    dir_ = ::testing::TempDir() + "example_batches_test_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
    JobConfig job;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kExampleJob, &job));
    auto effective = EffectiveJobConfig(job, "", BuiltInSpecs());
    EXPECT_TRUE(effective.ok()) << effective.status();
    auto batches = ExampleBatches::Create(*std::move(effective));
    EXPECT_TRUE(batches.ok()) << batches.status();
    batches_ = *std::move(batches);
    for (size_t s = 0; s < batches_->shape().slots.size(); ++s) {
      const std::string& feature = batches_->shape().slots[s].feature;
      (feature == "user" ? user_ : feature == "item" ? item_ : bought_) = s;
    }
  }
  ~ExampleBatchesTest() override { std::filesystem::remove_all(dir_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
    return dir_ + "/" + name;
  }
  size_t TableOf(size_t slot) const { return batches_->shape().slots[slot].table; }
  // The keys of each example in a slot.
  std::vector<std::vector<uint64_t>> KeysOf(const KeyedBatch& batch, size_t slot) const {
    std::vector<std::vector<uint64_t>> keys;
    const SlotRows& rows = batch.rows();
    for (size_t i = 0; i < batch.examples().n; ++i) {
      keys.emplace_back();
      for (int64_t k = rows.offsets(slot)[i]; k < rows.offsets(slot)[i + 1]; ++k) {
        const int64_t row = rows.rows()[rows.begin(slot) + static_cast<size_t>(k)];
        keys.back().push_back(batch.keys(TableOf(slot))[static_cast<size_t>(row)]);
      }
    }
    return keys;
  }
  std::string Refusal(const std::vector<ExampleBatches::Column>& columns) const {
    const auto batch = batches_->FromColumns(columns);
    EXPECT_EQ(batch.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(batch.status().message());
  }
  static uint64_t Item(const std::string& value) { return ValueKey(value, SlotSeed("item")); }

  std::string dir_;
  std::shared_ptr<const ExampleBatches> batches_;
  size_t user_ = 0, item_ = 0, bought_ = 0;  // slots
};

TEST_F(ExampleBatchesTest, ColumnsBecomeNumbersAndDistinctKeys) {
  const auto batch = batches_->FromColumns({{"age", {"12", "?", std::nullopt}},
                                            {"user", {"7", "-1", "7"}},
                                            {"item", {"a", "b", ""}},
                                            {"bought", {"b|a", "", "c"}}});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ((*batch)->examples().n, 3u);
  EXPECT_EQ((*batch)->examples().numeric[0], 1.0f);
  EXPECT_THAT((*batch)->examples().weight, ElementsAre(1, 1, 1));
  EXPECT_THAT(KeysOf(**batch, user_),
              ElementsAre(ElementsAre(7), ElementsAre(UINT64_MAX), ElementsAre(7)));
  EXPECT_THAT(KeysOf(**batch, item_),
              ElementsAre(ElementsAre(Item("a")), ElementsAre(Item("b")), ElementsAre()));
  EXPECT_THAT(KeysOf(**batch, bought_), ElementsAre(ElementsAre(Item("b"), Item("a")),
                                                    ElementsAre(), ElementsAre(Item("c"))));
  // Features that share an embedding share keys, and so rows.
  ASSERT_EQ(TableOf(item_), TableOf(bought_));
  EXPECT_EQ((*batch)->keys(TableOf(item_)).size(), 3u);
  EXPECT_EQ((*batch)->keys(TableOf(user_)).size(), 2u);
  EXPECT_FALSE((*batch)->rows().single());
}

TEST_F(ExampleBatchesTest, WrongColumnsAreNamed) {
  const ExampleBatches::Column age = {"age", {"1", "2"}}, user = {"user", {"1", "2"}},
                               item = {"item", {"a", "b"}}, bought = {"bought", {"a", "b"}};
  EXPECT_THAT(Refusal({age, user, item, bought, {"sex", {"f", "m"}}}),
              AllOf(HasSubstr("sex"), HasSubstr("bought")));
  EXPECT_THAT(Refusal({age, item, bought}), HasSubstr("\"user\" is needed"));
  EXPECT_THAT(Refusal({age, user, item, {"bought", {"a"}}}),
              HasSubstr("\"bought\" has 1 examples"));
  EXPECT_THAT(Refusal({age, {"user", {"1", "many"}}, item, bought}),
              AllOf(HasSubstr("example 1"), HasSubstr("many")));
}

TEST_F(ExampleBatchesTest, FilesBecomeBatchesAcrossTheirBorders) {
  const std::string one =
      Write("1.csv", "y,age,user,item,bought\n1,12,7,a,b|a\n0,bad,7,a,\n0,8,8,b,\n");
  const std::string two =
      Write("2.csv", "user,item,bought,age\n9,c,c,10\n");  // without label, another order
  auto files = ExampleBatches::Read(batches_, {dir_ + "/*.csv"}, 2);
  ASSERT_TRUE(files.ok()) << files.status();
  auto first = (*files)->Next();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT((*first)->examples().label, ElementsAre(1, 0));
  EXPECT_THAT(KeysOf(**first, user_), ElementsAre(ElementsAre(7), ElementsAre(8)));
  EXPECT_EQ((*files)->bad_lines(), 1u);
  auto second = (*files)->Next();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->examples().n, 1u);
  EXPECT_THAT((*second)->examples().label, ElementsAre(0));
  EXPECT_TRUE((*second)->rows().single());
  auto end = (*files)->Next();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, nullptr);
  // The same as from memory.
  const auto memory = batches_->FromColumns(
      {{"age", {"12", "8"}}, {"user", {"7", "8"}}, {"item", {"a", "b"}}, {"bought", {"b|a", ""}}});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_THAT((*memory)->examples().numeric, ElementsAreArray((*first)->examples().numeric));
  EXPECT_EQ(KeysOf(**memory, bought_), KeysOf(**first, bought_));
}

TEST_F(ExampleBatchesTest, WrongFilesAreNamed) {
  const auto refusal = [&](const std::string& file, size_t batch_size) {
    return ExampleBatches::Read(batches_, {file}, batch_size).status();
  };
  EXPECT_EQ(refusal(dir_ + "/none.csv", 2).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(refusal(Write("a.csv", "y,age,user,item\n"), 2).message()),
              HasSubstr("bought"));
  const std::string bad = Write("bad.csv", "age,user,item,bought\nx,1,a,b\ny,1,a,b\n");
  EXPECT_THAT(std::string(refusal(bad, 0).message()), HasSubstr("batch_size"));
  auto files = ExampleBatches::Read(batches_, {bad}, 2);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto next = (*files)->Next();
  EXPECT_EQ(next.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(next.status().message()), HasSubstr("max_bad_lines"));
}

TEST(ExampleBatchesOfJobTest, AJobWithoutFilesHasBatchesOfColumns) {
  JobConfig job;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kExampleJob, &job));
  job.mutable_data()->clear_format();
  job.mutable_data()->clear_csv();
  const auto batches = ExampleBatches::Create(job);
  ASSERT_TRUE(batches.ok()) << batches.status();
  const auto batch = (*batches)->FromColumns(
      {{"age", {"12"}}, {"user", {"7"}}, {"item", {"a"}}, {"bought", {"a"}}});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ((*batch)->examples().n, 1u);
  const absl::Status read = ExampleBatches::Read(*batches, {"a.csv"}, 2).status();
  EXPECT_EQ(read.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(read.message()), HasSubstr("data.format"));
}

TEST(ExampleBatchesOfJobTest, AVectorIsWrittenAsAListInItsColumn) {
  JobConfig job;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kExampleJob, &job));
  job.mutable_features(0)->mutable_numeric()->set_column("ages");
  job.mutable_features(0)->mutable_numeric()->set_dim(2);
  const auto batches = ExampleBatches::Create(job);
  ASSERT_TRUE(batches.ok()) << batches.status();
  EXPECT_THAT((*batches)->VectorColumns(), ElementsAre("ages"));
  const auto batch = (*batches)->FromColumns(
      {{"ages", {"[12, 8]"}}, {"user", {"7"}}, {"item", {"a"}}, {"bought", {"a"}}});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT((*batch)->examples().numeric, ElementsAre(1, -1));
}

TEST(ExampleBatchesOfJobTest, AJobWithASourceTakesBatchesAsItsSourceGivesThem) {
  JobConfig job;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kExampleJob, &job));
  job.clear_data();
  auto* const bought = job.mutable_features(3)->mutable_categorical();
  bought->clear_multi_value_delimiter();
  const auto effective = EffectiveJobConfig(job, "", BuiltInSpecs());
  ASSERT_TRUE(effective.ok()) << effective.status();
  const auto batches = ExampleBatches::Create(*effective);
  ASSERT_TRUE(batches.ok()) << batches.status();
  EXPECT_TRUE((*batches)->own_data());
  GivenBatch given;
  given.n = 2;
  given.numbers = {{12, 8}};
  for (const ProgramShape::Slot& slot : (*batches)->shape().slots) {
    if (slot.feature == "bought")
      given.values.push_back({{5, 6, 5}, {0, 2, 3}});
    else
      given.values.push_back({{5, 7}, {}});
  }
  const auto batch = (*batches)->FromGiven(given);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT((*batch)->examples().numeric, ElementsAre(1, -1));
  // item and bought share 5, 7 and 6; user has keys of its own.
  std::vector<size_t> rows;
  for (size_t t = 0; t < (*batches)->shape().tables.size(); ++t)
    rows.push_back((*batch)->keys(t).size());
  EXPECT_THAT(rows, ::testing::UnorderedElementsAre(3, 2));
  given.values[0].values.pop_back();
  EXPECT_EQ((*batches)->FromGiven(given).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExampleBatchesTest, RowsOfATableAreThoseOfTheSameCells) {
  const TestColumns columns = {TestColumn::Numbers<int64_t>("user", "l", {7, 8, -1}),
                               TestColumn::Texts("item", {"a", std::nullopt, "?"}),
                               TestColumn::Texts("bought", {"a|b", "", "c"}),
                               TestColumn::Numbers<double>("age", "g", {12, std::nullopt, 8})};
  ArrowArrayStream stream = TestStream::Of({columns});
  const auto rows = ExampleBatches::ReadTable(batches_, &stream, 2);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const auto first = (*rows)->Next(), second = (*rows)->Next(), end = (*rows)->Next();
  ASSERT_TRUE(first.ok() && second.ok() && end.ok()) << first.status() << second.status();
  EXPECT_EQ(*end, nullptr);
  const auto cells = batches_->FromColumns({{"user", {"7", "8"}},
                                            {"item", {"a", std::nullopt}},
                                            {"bought", {"a|b", ""}},
                                            {"age", {"12", ""}}});
  ASSERT_TRUE(cells.ok()) << cells.status();
  EXPECT_EQ((*first)->examples().numeric, (*cells)->examples().numeric);
  EXPECT_EQ((*first)->examples().keys, (*cells)->examples().keys);
  EXPECT_EQ((*first)->examples().key_offsets, (*cells)->examples().key_offsets);
  EXPECT_THAT((*first)->examples().label, ElementsAre(0, 0));  // there is none
  EXPECT_EQ((*second)->examples().n, 1u);
  EXPECT_THAT((*second)->examples().numeric, ElementsAre(-1));
  ArrowArrayStream other = TestStream::Of({{columns[0]}});
  EXPECT_THAT(std::string(ExampleBatches::ReadTable(batches_, &other, 2).status().message()),
              HasSubstr("\"age\""));
}

TEST(ExampleBatchesOfJobTest, OnlyProgramsHaveThem) {
  JobConfig job;
  job.mutable_model()->mutable_wide_deep();
  EXPECT_THAT(std::string(ExampleBatches::Create(job).status().message()),
              HasSubstr("not a program"));
}

}  // namespace
}  // namespace sluice
