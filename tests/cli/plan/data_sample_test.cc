#include "cli/plan/data_sample.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/data/line_reader.h"

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

TEST_F(DataSampleTest, MissingFilesAreAnError) {
  DataConfig data;
  data.add_train_files(folder_ + "/none*.csv");
  EXPECT_EQ(CopyFirstLines(data, folder_ + "/copies", 10).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice::plan
