#include "cli/plan/data_sample.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/arrow/parquet.h"
#include "model/data/expand_files.h"
#include "model/data/line_reader.h"
#include "model/data/parquet_file.h"
#include "model/data/partition_folders.h"
#include "tests/common/arrow/arrow_columns.h"

namespace sluice::plan {
namespace {

class DataSampleTest : public testing::Test {
 protected:
  DataSampleTest() {
    folder_ = testing::TempDir() + "data_sample_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/copies");
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  DataSample Copy(uint64_t bytes) {
    DataConfig data;
    data.add_train_files(folder_ + "/*.csv");
    return CopyFirstLines(data, folder_ + "/copies", bytes).value();
  }

  std::string folder_;
};

TEST_F(DataSampleTest, SmallDataIsCopiedWhole) {
  Write("a.csv", "h\n1\n2\n");
  Write("b.csv", "h\r\n3\r\n4");
  const DataSample sample = Copy(1000);
  ASSERT_EQ(sample.files.size(), 2u);
  EXPECT_EQ(Read(sample.files[0]), "h\n1\n2\n");
  EXPECT_EQ(Read(sample.files[1]), "h\n3\n4\n");
  EXPECT_TRUE(sample.whole);
  EXPECT_EQ(sample.share, 1);
  EXPECT_EQ(sample.lines, 6);
}

TEST_F(DataSampleTest, LargeDataIsCutAtALine) {
  Write("a.csv", "head\n0123456789\n0123456789\n0123456789\n");
  Write("b.csv", std::string(38, 'x') + "\n");
  const DataSample sample = Copy(16);
  ASSERT_EQ(sample.files.size(), 1u);
  EXPECT_EQ(Read(sample.files[0]), "head\n0123456789\n");
  EXPECT_FALSE(sample.whole);
  EXPECT_NEAR(sample.share, 16.0 / 77, 1e-9);
}

TEST_F(DataSampleTest, ErrorsNameTheFilesOfTheDataAndTheirLines) {
  Write("a.csv", "h\n" + std::string(LineReader::kMaxLineBytes + 1, 'x') + "\nlast\n");
  const DataSample sample = Copy(1000);
  ASSERT_EQ(sample.files.size(), 1u);
  EXPECT_EQ(Read(sample.files[0]), "h\n\nlast\n");
  const absl::Status named = WithSourceNames(
      absl::InternalError("too many bad lines: " + sample.files[0] + ":3: no number"), sample);
  EXPECT_EQ(named.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(named.message(), "too many bad lines: " + folder_ + "/a.csv:3: no number");
}

TEST_F(DataSampleTest, FoldersThatAreColumnsStay) {
  std::filesystem::create_directories(folder_ + "/day=7/city=a%2Ab");
  Write("day=7/city=a%2Ab/x.csv", "h\n1\n");
  DataConfig data;
  data.add_train_files(folder_ + "/day=*/*/*.csv");
  const DataSample sample = CopyFirstLines(data, folder_ + "/copies", 1000).value();
  ASSERT_EQ(sample.files.size(), 1u);
  EXPECT_EQ(Read(sample.files[0]), "h\n1\n");
  DataConfig copies;
  copies.add_train_files(sample.patterns[0]);
  EXPECT_EQ(ExpandFiles(copies.train_files(), Env::Real()).value(), sample.files);
  EXPECT_EQ(PartitionColumns(copies, sample.files[0]),
            (std::vector<std::pair<std::string, std::string>>{{"day", "7"}, {"city", "a*b"}}));
}

// Rows with a column that the job uses and one that it does not.
void WriteRows(const std::string& path, int64_t first, int64_t rows) {
  std::vector<std::optional<int64_t>> y, x, unused;
  for (int64_t r = 0; r < rows; ++r) {
    y.push_back(r % 2);
    x.push_back(first + r);
    unused.push_back(r);
  }
  const TestColumns columns = {TestColumn::Numbers<int64_t>("unused", "l", unused),
                               TestColumn::Numbers<int64_t>("x", "l", x),
                               TestColumn::Numbers<int64_t>("y", "l", y)};
  auto file = Env::Real()->StartFile(path);
  ASSERT_TRUE(file.ok());
  ParquetWriterOptions options;
  options.row_group_rows = 1000;
  auto writer = ParquetWriter::Create(*std::move(file), TestStructs::Schema(columns), options);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Write(TestStructs::Array(columns)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
}

TEST_F(DataSampleTest, RowsOfParquetAreCopiedWithTheColumnsOfTheJob) {
  if (const absl::Status arrow = OpenArrow(); !arrow.ok()) GTEST_SKIP() << arrow;
  WriteRows(folder_ + "/a.parquet", 0, 6000);
  WriteRows(folder_ + "/b.parquet", 6000, 6000);
  WriteRows(folder_ + "/c.parquet", 12000, 6000);
  JobConfig job;
  job.mutable_data()->set_format(DataConfig::PARQUET);
  job.mutable_data()->add_train_files(folder_ + "/*.parquet");
  job.mutable_data()->mutable_label()->set_column("y");
  Feature* const feature = job.add_features();
  feature->set_name("x");
  feature->mutable_numeric();
  // About 9,000 rows of two columns, of which one takes a bit.
  const auto all = CopyBeginning(job, folder_ + "/copies", 1 << 30);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE(all->whole);
  EXPECT_EQ(all->lines, 18000);
  EXPECT_EQ(all->share, 1);
  std::filesystem::remove_all(folder_ + "/copies");
  std::filesystem::create_directories(folder_ + "/copies");
  const auto reader = ParquetFile::OpenReader(folder_ + "/a.parquet", Env::Real());
  ASSERT_TRUE(reader.ok());
  const int32_t used[] = {1, 2};
  uint64_t bytes = 0;
  for (uint64_t g = 0; g < 6; ++g) bytes += (*reader)->RowGroup(g, used)->bytes;
  const auto sample = CopyBeginning(job, folder_ + "/copies", bytes + bytes / 2);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_FALSE(sample->whole);
  ASSERT_EQ(sample->files.size(), 2u);
  EXPECT_NEAR(sample->lines, 9000, 50);
  EXPECT_NEAR(sample->share, 0.5, 0.05);
  const auto copy = ParquetFile::OpenReader(sample->files[1], Env::Real());
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ((*copy)->schema().n_children, 2);
  EXPECT_EQ((*copy)->row_groups(), 3u);
}

TEST_F(DataSampleTest, MissingFilesAreAnError) {
  DataConfig data;
  data.add_train_files(folder_ + "/none*.csv");
  EXPECT_EQ(CopyFirstLines(data, folder_ + "/copies", 10).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice::plan
