// A job of one small data file, and what new processes read of it with its cache.
#pragma once

#include <utime.h>

#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "gtest/gtest.h"
#include "model/data/example_cache.h"
#include "model/data/read_examples.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {

inline constexpr char kCachedFeatures[] =
    "features { name: 'x' numeric {} } "
    "features { name: 'tags' categorical { multi_value_delimiter: '|' } } ";

// A day ago, so that the modification time tells contents apart.
inline void Age(const std::string& path, int seconds = 86400) {
  const time_t then = absl::ToTimeT(Clock::Real()->WallNow()) - seconds;
  utimbuf times{then, then};
  ASSERT_EQ(utime(path.c_str(), &times), 0);
}

// 500 examples, with a bad line in each hundred.
class CachedData : public ::testing::Test {
 protected:
  CachedData() {
    std::string text = "y,w,x,tags\n";
    for (int i = 0; i < 500; ++i) {
      absl::StrAppend(&text, i % 2, ",", i % 7 == 0 ? "2.5" : "1", ",", i, ",",
                      i % 5 == 0 ? "" : "a|b", i, "\n");
      if (i % 100 == 50) absl::StrAppend(&text, "1,1,bad,c\n");
    }
    source_ = folder_.Write("train.csv", text);
    Age(source_);
    job_ = JobForTest(
        absl::StrCat("data { format: CSV csv { header: true } label { column: 'y' } cache: true } ",
                     kCachedFeatures));
    job_.set_output_dir(folder_.Path("out/run"));
  }

  std::unique_ptr<ExampleCache> Cache() {
    return MakeExampleCache(job_, *SchemaForTest(job_), Env::Real(), Clock::Real(),
                            [this](const std::string& line) { log_.push_back(line); });
  }

  // The examples that a new process reads, and whether they come from the cache.
  struct Read {
    Batch batch;
    BadLines bad;
    bool cached = false;
    DataSummary summary;
  };
  Read ReadWith(ExampleCache* cache, const DataPiece& piece) {
    return ReadPiecesWith(cache, {piece});
  }
  Read ReadPiecesWith(ExampleCache* cache, const std::vector<DataPiece>& pieces) {
    const auto schema = SchemaForTest(job_);
    const auto data = DataSource::Create(job_.data(), schema, Env::Real());
    EXPECT_TRUE(data.ok()) << data.status();
    Read read;
    Batch scratch;
    const auto examples = ReadExamples(**data, *schema, cache, absl::MakeConstSpan(pieces),
                                       &scratch, &read.bad, &read.summary);
    EXPECT_TRUE(examples.ok()) << examples.status();
    read.cached = examples->owner != nullptr;
    read.batch = EmptyBatch(*schema);
    for (uint64_t i = 0; i < examples->view.n; ++i)
      EXPECT_TRUE(read.batch.Append(examples->view, i, i).ok());
    return read;
  }
  Read ReadPiece(const DataPiece& piece) { return ReadWith(Cache().get(), piece); }
  Read ReadAll() { return ReadPiece({source_}); }

  void ExpectSame(const Read& a, const Read& b) {
    ASSERT_EQ(a.batch.n, b.batch.n);
    EXPECT_EQ(
        std::memcmp(a.batch.numeric.data(), b.batch.numeric.data(), 4 * a.batch.numeric.size()), 0);
    EXPECT_EQ(a.batch.label, b.batch.label);
    EXPECT_EQ(a.batch.weight, b.batch.weight);
    EXPECT_EQ(a.batch.key_offsets, b.batch.key_offsets);
    EXPECT_EQ(a.batch.keys, b.batch.keys);
    EXPECT_EQ(a.bad.count, b.bad.count);
    EXPECT_EQ(a.bad.first, b.bad.first);
    EXPECT_EQ(a.summary.SerializeAsString(), b.summary.SerializeAsString());
  }

  std::vector<std::string> Files() {
    std::vector<std::string> files;
    const std::string dir = folder_.Path("out/data_cache");
    if (!std::filesystem::exists(dir)) return files;
    for (const auto& entry : std::filesystem::directory_iterator(dir))
      files.push_back(entry.path());
    return files;
  }
  std::string OnlyFile() {
    const auto files = Files();
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? "" : files[0];
  }

  const TempFolder folder_;
  std::string source_;
  JobConfig job_;
  std::vector<std::string> log_;
};

}  // namespace sluice
