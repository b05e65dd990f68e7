#include "model/profile/parquet_profile.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/arrow/parquet.h"
#include "model/data/parquet_file.h"
#include "model/profile/held_out.h"
#include "model/profile/job_proposal.h"
#include "model/profile/label_choice.h"
#include "tests/common/arrow/arrow_columns.h"
#include "tests/model/data/arrow_arrays.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class ParquetProfileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status arrow = OpenArrow();
    if (arrow.ok()) return;
    std::fprintf(stderr, "SKIPPED, NOT PASSED: parquet_profile_test: %s\n",
                 std::string(arrow.message()).c_str());
    GTEST_SKIP() << arrow;
  }

  std::string Write(const std::string& name, ArrowOwner<ArrowSchema> schema,
                    ArrowOwner<ArrowArray> rows, uint64_t group_rows = 1 << 20) {
    const std::string path = absl::StrCat(folder_.path(), "/", name);
    auto file = Env::Real()->StartFile(path);
    EXPECT_TRUE(file.ok()) << file.status();
    ParquetWriterOptions options;
    options.row_group_rows = group_rows;
    auto writer = ParquetWriter::Create(*std::move(file), std::move(schema), options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Write(std::move(rows)).ok());
    EXPECT_TRUE((*writer)->Finish().ok());
    return path;
  }

  // Rows of a label, a number, a text and a date.
  std::string WriteRows(const std::string& name, int64_t rows, uint64_t group_rows = 1 << 20) {
    std::vector<std::optional<int8_t>> y;
    std::vector<std::optional<double>> n;
    std::vector<std::optional<std::string>> c;
    std::vector<std::optional<int32_t>> day;
    for (int64_t r = 0; r < rows; ++r) {
      y.push_back(static_cast<int8_t>(r % 3 == 0));
      n.push_back(r % 4 == 0 ? std::nullopt : std::optional(static_cast<double>(r) / 2));
      c.push_back(absl::StrCat("v", r % 23));
      day.push_back(static_cast<int32_t>(20000 + r % 90));
    }
    const TestColumns columns = {
        TestColumn::Numbers<int8_t>("label", "c", y), TestColumn::Numbers<double>("n", "g", n),
        TestColumn::Texts("c", c), TestColumn::Numbers<int32_t>("day", "tdD", day)};
    return Write(name, TestStructs::Schema(columns), TestStructs::Array(columns), group_rows);
  }

  static absl::StatusOr<TableProfile> Profile(const std::vector<std::string>& files,
                                              const ProfileLimits& limits = {}) {
    return ProfileTable(files, limits, Env::Real());
  }

  TempFolder folder_;
};

TEST_F(ParquetProfileTest, ColumnsAreWhatTheirTypesSay) {
  const auto table = Profile({WriteRows("a.parquet", 3000, 1000)});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->shape.data.format(), DataConfig::PARQUET);
  EXPECT_TRUE(table->whole);
  EXPECT_EQ(table->lines, 3000u);
  EXPECT_EQ(table->all_lines, 3000u);
  EXPECT_EQ(table->row_groups, 3u);
  EXPECT_EQ(table->bad.count, 0u);
  ASSERT_EQ(table->columns.size(), 4u);
  const ColumnProfile& n = table->columns[1];
  EXPECT_EQ(n.kind(), ColumnKind::kNumber);
  EXPECT_EQ(n.missing(), 750u);
  EXPECT_EQ(n.numbers().Quantiles({1})[0], 2999.0 / 2);
  EXPECT_EQ(table->columns[2].kind(), ColumnKind::kText);
  EXPECT_EQ(table->columns[2].distinct().Count(), 23u);
  const ColumnProfile& day = table->columns[3];
  EXPECT_EQ(day.kind(), ColumnKind::kDate);
  EXPECT_EQ(day.date_format(), "");
  EXPECT_FALSE(day.date_has_time());
  EXPECT_EQ(day.days(), 90u);
  EXPECT_THAT(day.values().Sorted(), Contains(Pair("2024-10-04", 34)));

  const auto label = ChooseLabel(*table, "");
  ASSERT_TRUE(label.ok()) << label.status();
  EXPECT_EQ(label->column, 0u);
  const JobProposal proposal = ProposeJob(*table, *label, "job");
  EXPECT_EQ(proposal.job.data().format(), DataConfig::PARQUET);
  EXPECT_FALSE(proposal.job.data().has_csv());
  EXPECT_THAT(JobText(proposal, {}), HasSubstr("date_part: MONTH"));
}

TEST_F(ParquetProfileTest, AFileThatIsReadInPartIsReadAllOverIt) {
  ProfileLimits limits;
  limits.bytes = 64 << 10;
  const std::string path = WriteRows("a.parquet", 100000, 2000);
  const auto table = Profile({path}, limits);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_FALSE(table->whole);
  EXPECT_EQ(table->all_lines, 100000u);  // the file says so
  EXPECT_GT(table->lines, 1000u);
  EXPECT_LT(table->lines, 4000u);
  EXPECT_GT(table->columns[1].numbers().Quantiles({1})[0], 40000);
}

TEST_F(ParquetProfileTest, ListsMapsAndFractionsAreWhatAJobCanRead) {
  constexpr int64_t kRows = 60;
  std::vector<std::optional<std::string>> words;
  std::vector<std::optional<double>> numbers;
  std::vector<std::optional<int8_t>> label;
  std::vector<std::optional<int32_t>> sizes;
  std::vector<std::optional<int64_t>> time;
  for (int64_t r = 0; r < kRows; ++r) {
    label.push_back(static_cast<int8_t>(r % 2));
    sizes.push_back(2);
    time.push_back(1'700'000'000 + r * 3600);
    for (int v = 0; v < 2; ++v) {
      words.push_back(absl::StrCat("w", (r + v) % 7));
      numbers.push_back(static_cast<double>(r) / 8);
    }
  }
  using Node = ArrowNode;
  Node pair{"+s", "entries"};
  pair.length = 2 * kRows;
  pair.children = {Node::Texts<int32_t>("u", "key", words),
                   Node::Of<double>("g", "value", numbers)};
  ArrowNode table_node{"+s", ""};
  table_node.length = kRows;
  table_node.children = {
      Node::Of<int8_t>("c", "y", label),
      Node::Lists<int32_t>("+l", "tags", sizes, Node::Texts<int32_t>("u", "item", words)),
      Node::Lists<int32_t>("+l", "vector", sizes, Node::Of<double>("g", "item", numbers)),
      Node::Lists<int32_t>("+l", "weighted", sizes, pair),
      Node::Of<int64_t>("tss:", "time", time),
      Node::Of<int32_t>("tts", "clock", std::vector<std::optional<int32_t>>(kRows, 7))};
  const ArrowStructs structs(table_node);
  const auto table = Profile({Write("a.parquet", ArrowOwner<ArrowSchema>(structs.schema),
                                    ArrowOwner<ArrowArray>(structs.array))});
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->columns.size(), 5u);
  const ColumnProfile& tags = table->columns[1];
  EXPECT_EQ(tags.kind(), ColumnKind::kSeveralValues);
  EXPECT_EQ(tags.parts().Count(), 7u);
  EXPECT_EQ(tags.parts_per_cell(), 2);
  EXPECT_TRUE(table->columns[3].parts_have_weights());
  EXPECT_EQ(table->columns[3].parts().Count(), 7u);
  EXPECT_TRUE(table->columns[4].date_has_time());
  EXPECT_EQ(table->columns[2].vector_size(), 2u);
  EXPECT_EQ(tags.vector_size(), 0u);
  EXPECT_THAT(table->no_features, ElementsAre(Pair("clock", HasSubstr("time of day"))));

  const auto label_choice = ChooseLabel(*table, "y");
  ASSERT_TRUE(label_choice.ok());
  const std::string job = JobText(ProposeJob(*table, *label_choice, "job"), {});
  EXPECT_THAT(job, HasSubstr("name: \"tags\" categorical { }"));
  EXPECT_THAT(job, HasSubstr("name: \"weighted\" categorical { weight_delimiter: \":\" }"));
  EXPECT_THAT(job, HasSubstr("date_part: HOUR"));
  EXPECT_THAT(job, HasSubstr("name: \"vector\" numeric { z_score { mean: 3.688 stddev: 2.165 } "
                             "dim: 2 }"));
  EXPECT_THAT(job, HasSubstr("# - \"clock\": its type"));
}

TEST_F(ParquetProfileTest, FilesOfOtherColumnsAreRefused) {
  const std::string first = WriteRows("a.parquet", 100);
  const auto error = [&](const std::string& second) {
    const auto table = Profile({first, second});
    EXPECT_FALSE(table.ok());
    return std::string(table.status().message());
  };
  const TestColumns two = {
      TestColumn::Numbers<int8_t>("label", "c", std::vector<std::optional<int8_t>>(10, 1)),
      TestColumn::Texts("n", std::vector<std::optional<std::string>>(10, "x"))};
  EXPECT_THAT(error(Write("b.parquet", TestStructs::Schema(two), TestStructs::Array(two))),
              ::testing::AllOf(HasSubstr("b.parquet"), HasSubstr("\"n\""), HasSubstr("a.parquet")));
  EXPECT_THAT(error(folder_.Write("c.csv", "label,n\n1,2\n")), HasSubstr("c.csv"));
  EXPECT_THAT(
      std::string(
          Profile({folder_.Write("d.csv", "label,n\n1,2\n0,1\n"), first}).status().message()),
      HasSubstr("Parquet"));
  const auto empty = Profile({WriteRows("e.parquet", 0)});
  EXPECT_THAT(std::string(empty.status().message()), HasSubstr("no rows"));
}

TEST_F(ParquetProfileTest, HeldOutRowsAreAllRowsOnce) {
  for (const int64_t rows : {int64_t{3000}, int64_t{60000}}) {
    const std::string path = WriteRows("all.parquet", rows, 1000);
    const std::string train = folder_.path() + "/train.parquet",
                      eval = folder_.path() + "/eval.parquet";
    const auto held = HoldOutRows(path, 0.2, train, eval, Env::Real());
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(held->train_lines + held->eval_lines, static_cast<uint64_t>(rows));
    EXPECT_NEAR(static_cast<double>(held->eval_lines), 0.2 * static_cast<double>(rows),
                0.03 * static_cast<double>(rows));
    ProfileLimits all;
    all.bytes = UINT64_MAX;
    const auto whole = Profile({path}, all), both = Profile({train, eval}, all),
               part = Profile({eval}, all);
    ASSERT_TRUE(whole.ok() && both.ok() && part.ok()) << both.status() << part.status();
    EXPECT_EQ(part->lines, held->eval_lines);
    EXPECT_EQ(both->lines, whole->lines);
    for (size_t c = 0; c < whole->columns.size(); ++c) {
      EXPECT_EQ(both->columns[c].missing(), whole->columns[c].missing());
      EXPECT_EQ(both->columns[c].values().Sorted().size(),
                whole->columns[c].values().Sorted().size());
    }
    // Texts and dates occur as often as before, so no row came twice.
    EXPECT_EQ(both->columns[2].values().Sorted(), whole->columns[2].values().Sorted());
    EXPECT_EQ(both->columns[3].values().Sorted(), whole->columns[3].values().Sorted());
    EXPECT_NEAR(both->columns[1].moments().mean, whole->columns[1].moments().mean, 1e-6);
    // The same rows again.
    const auto again = HoldOutRows(path, 0.2, train, eval, Env::Real());
    EXPECT_EQ(again->eval_lines, held->eval_lines);
  }
}

}  // namespace
}  // namespace sluice
