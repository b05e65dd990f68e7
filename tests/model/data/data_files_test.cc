#include "model/data/data_files.h"

#include <utime.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/env.h"
#include "gmock/gmock.h"
#include "model/data/data_source.h"
#include "model/data/example_cache.h"
#include "model/data/read_examples.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void AgeFile(const std::string& path, int seconds = 86400) {
  const time_t then = absl::ToTimeT(Clock::Real()->WallNow()) - seconds;
  utimbuf times{then, then};
  ASSERT_EQ(utime(path.c_str(), &times), 0);
}

JobConfig JobOf(const TempFolder& folder) {
  JobConfig job;
  job.mutable_data()->add_train_files(folder.Path("train-*"));
  job.mutable_data()->add_eval_files(folder.Path("test"));
  return job;
}

std::shared_ptr<const DataFiles> See(const JobConfig& job) {
  const auto files = DataFiles::See(job, Env::Real());
  EXPECT_TRUE(files.ok()) << files.status();
  return files.ok() ? *files : nullptr;
}

TEST(DataFilesTest, ReportsTheFilesForComparisonAcrossHosts) {
  const TempFolder folder;
  const std::string a = folder.Write("train-a", "abc"), b = folder.Write("train-b", "abd"),
                    test = folder.Write("test", std::string(300000, 'x'));
  const auto files = See(JobOf(folder));
  EXPECT_THAT(files->train(), ElementsAre(a, b));
  EXPECT_THAT(files->eval(), ElementsAre(test));
  IndexReport report;
  files->Report(&report);
  ASSERT_EQ(report.train_seen_size(), 2);
  EXPECT_EQ(report.train_seen(0).path(), a);
  EXPECT_EQ(report.train_seen(0).bytes(), 3u);
  EXPECT_NE(report.train_seen(0).sample_crc32c(), report.train_seen(1).sample_crc32c());
  ASSERT_EQ(report.eval_seen_size(), 1);
  EXPECT_EQ(report.eval_seen(0).bytes(), 300000u);
}

TEST(DataFilesTest, EvaluateOnlyJobsIgnoreTrainingFiles) {
  const TempFolder folder;
  folder.Write("test", "x");
  JobConfig job = JobOf(folder);
  EXPECT_EQ(DataFiles::See(job, Env::Real()).status().code(), absl::StatusCode::kNotFound);
  job.set_evaluate_only(true);
  EXPECT_TRUE(See(job)->train().empty());
}

TEST(DataFilesTest, SampleCoversBothEndsOfAFile) {
  const TempFolder folder;
  std::string bytes(400000, 'x');
  const std::string path = folder.Write("f", bytes);
  const uint32_t crc = SampleFile(path, Env::Real())->crc32c;
  EXPECT_EQ(SampleFile(path, Env::Real())->crc32c, crc);
  for (const size_t place : {size_t{0}, size_t{65535}, bytes.size() - 65536, bytes.size() - 1}) {
    std::string other = bytes;
    other[place] = 'y';
    folder.Write("f", other);
    EXPECT_NE(SampleFile(path, Env::Real())->crc32c, crc) << place;
  }
  EXPECT_EQ(SampleFile(folder.Path("none"), Env::Real()).status().code(),
            absl::StatusCode::kNotFound);
}

// Files of a store, which count the reads.
class TaggedFiles : public MemoryEnv {
 public:
  std::string tag;
  absl::Status failure;  // of Look
  int reads = 0;
  absl::StatusOr<FileInfo> Look(const std::string& path) override {
    FileInfo info;
    info.identity.size = Get(path).size();
    info.identity.tag = tag;
    if (!failure.ok()) return failure;
    return info;
  }
  absl::StatusOr<std::unique_ptr<FileReader>> NewReader(const std::string& path) override {
    class Reader : public FileReader {
     public:
      Reader(FileInfo info, std::string bytes, int* reads)
          : FileReader(std::move(info)), bytes_(std::move(bytes)), reads_(reads) {}
      absl::StatusOr<size_t> ReadAt(uint64_t offset, void* to, size_t n) override {
        ++*reads_;
        return bytes_.copy(static_cast<char*>(to), n, offset);
      }

     private:
      const std::string bytes_;
      int* const reads_;
    };
    return std::make_unique<Reader>(*Look(path), Get(path), &reads);
  }
};

TEST(DataFilesTest, AStrongTagStandsForTheContents) {
  TaggedFiles env;
  env.Put("s3://b/k", "some text");
  env.tag = "\"1\"";
  const uint32_t crc = SampleFile("s3://b/k", &env)->crc32c;
  EXPECT_EQ(SampleFile("s3://b/k", &env)->crc32c, crc);
  env.tag = "\"2\"";
  EXPECT_NE(SampleFile("s3://b/k", &env)->crc32c, crc);
  EXPECT_EQ(env.reads, 0);
  for (const char* weak : {"W/\"1\"", "of Sun, 29 Nov 2026 00:00:00 GMT"}) {
    env.tag = weak;
    EXPECT_EQ(SampleFile("s3://b/k", &env)->crc32c, Crc32c("some text", 9)) << weak;
  }
  EXPECT_GT(env.reads, 0);
}

TEST(DataFilesTest, AnotherVersionInAStoreIsAChange) {
  TaggedFiles env;
  env.Put("s3://b/k", "some text");
  env.tag = "\"1\"";
  const auto files = DataFiles::SeeForPrediction({"s3://b/k"}, &env);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE((*files)->CheckUnchanged("s3://b/k").ok());
  env.tag = "\"2\"";
  const absl::Status changed = (*files)->CheckUnchanged("s3://b/k");
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(changed.message()), HasSubstr("its version was \"1\" and is now"));
}

TEST(DataFilesTest, AStoreThatDoesNotAnswerIsNoChange) {
  TaggedFiles env;
  env.Put("s3://b/k", "some text");
  const auto files = DataFiles::SeeForPrediction({"s3://b/k"}, &env);
  ASSERT_TRUE(files.ok()) << files.status();
  for (const absl::Status& failure :
       {absl::UnavailableError("no answer"), absl::PermissionDeniedError("403: ExpiredToken")}) {
    env.failure = failure;
    const absl::Status told = (*files)->CheckUnchanged("s3://b/k");
    EXPECT_EQ(told.code(), failure.code());
    EXPECT_EQ(told.message(), absl::StrCat("cannot find data file s3://b/k: ", failure.message()));
  }
  env.failure = absl::NotFoundError("404");
  const absl::Status gone = (*files)->CheckUnchanged("s3://b/k");
  EXPECT_THAT(std::string(gone.message()), HasSubstr("has changed since"));
}

TEST(DataFilesTest, EveryKindOfChangeIsAnErrorThatNamesTheFile) {
  const TempFolder folder;
  const std::string path = folder.Path("train-a");
  folder.Write("test", "x");
  const std::vector<std::pair<std::string, std::function<void()>>> changes = {
      {"grown",
       [&] {
         folder.Write("train-a", "1\n2\n3\n");
         AgeFile(path);
       }},
      {"same size", [&] { folder.Write("train-a", "1\n3\n"); }},
      {"replaced",
       [&] {
         folder.Write("new", "1\n2\n");
         AgeFile(folder.Path("new"));
         std::rename(folder.Path("new").c_str(), path.c_str());
       }},
      {"removed", [&] { std::remove(path.c_str()); }}};
  for (const auto& [name, change] : changes) {
    folder.Write("train-a", "1\n2\n");
    AgeFile(path);
    const auto files = See(JobOf(folder));
    EXPECT_TRUE(files->CheckUnchanged(path).ok()) << name;
    EXPECT_TRUE(files->CheckAllUnchanged(files->train()).ok()) << name;
    change();
    const absl::Status status = files->CheckUnchanged(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path)) << name;
    EXPECT_EQ(files->CheckAllUnchanged(files->train()).code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(files->CheckUnchanged(folder.Path("another")).ok());
  }
}

TEST(DataFilesTest, PredictionLooksAtTheGivenFiles) {
  const TempFolder folder;
  const std::string a = folder.Write("a", "1\n"), b = folder.Write("b", "2\n");
  const auto files = DataFiles::SeeForPrediction({b, a, b}, Env::Real());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE((*files)->CheckAllUnchanged({a, b}).ok());
  folder.Write("b", "2\n3\n");
  EXPECT_TRUE((*files)->CheckUnchanged(a).ok());
  EXPECT_EQ((*files)->CheckUnchanged(b).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DataFiles::SeeForPrediction({a, folder.Path("none")}, Env::Real()).status().code(),
            absl::StatusCode::kNotFound);
}

// Changes a file while its lines are parsed.
class ChangingSchema : public FeatureSchema {
 public:
  ChangingSchema(std::shared_ptr<const FeatureSchema> inner, std::function<void()> change)
      : inner_(std::move(inner)), change_(std::move(change)) {}
  const std::vector<Numeric>& numerics() const override { return inner_->numerics(); }
  const std::vector<Slot>& slots() const override { return inner_->slots(); }
  const std::vector<std::string>& columns() const override { return inner_->columns(); }
  using FeatureSchema::AppendExample;
  absl::Status AppendExample(const ExampleCells& cells, bool need_label,
                             Batch* batch) const override {
    if (batch->n == 1) change_();
    return inner_->AppendExample(cells, need_label, batch);
  }

 private:
  const std::shared_ptr<const FeatureSchema> inner_;
  const std::function<void()> change_;
};

class ReadUnchangedTest : public ::testing::Test {
 protected:
  ReadUnchangedTest() {
    path_ = folder_.Write("train-a", "y,x\n1,1\n0,2\n1,3\n");
    AgeFile(path_);
    folder_.Write("test", "x");
    job_ = JobForTest(
        "data { format: CSV csv { header: true } label { column: 'y' } cache: true } "
        "features { name: 'x' numeric {} }");
    *job_.mutable_data()->mutable_train_files() = JobOf(folder_).data().train_files();
    job_.set_output_dir(folder_.Path("out/run"));
  }
  std::unique_ptr<DataSource> Source(std::shared_ptr<const FeatureSchema> schema) {
    auto data = DataSource::Create(job_.data(), std::move(schema), Env::Real());
    EXPECT_TRUE(data.ok()) << data.status();
    (*data)->Expect(See(job_));
    return *std::move(data);
  }
  absl::Status Read(const DataSource& data) {
    Batch batch = EmptyBatch(*SchemaForTest(job_));
    BadLines bad;
    return data.ReadPiece(path_, 0, UINT64_MAX, true, &batch, &bad);
  }

  const TempFolder folder_;
  std::string path_;
  JobConfig job_;
};

TEST_F(ReadUnchangedTest, FileThatChangedBeforeItIsReadIsAnError) {
  const auto data = Source(SchemaForTest(job_));
  EXPECT_TRUE(Read(*data).ok());
  EXPECT_TRUE(data->TextBytes(path_).ok());
  folder_.Write("train-a", "y,x\n1,1\n");
  EXPECT_EQ(Read(*data).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(data->TextBytes(path_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReadUnchangedTest, FileThatChangesWhileItIsReadIsAnError) {
  const auto data = Source(std::make_shared<ChangingSchema>(
      SchemaForTest(job_), [this] { folder_.Write("train-a", "y,x\n1,1\n0,2\nbad\n"); }));
  const absl::Status status = Read(*data);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
}

TEST_F(ReadUnchangedTest, CachedExamplesOfAChangedFileAreAnError) {
  const auto schema = SchemaForTest(job_);
  const auto data = Source(schema);
  const auto cache =
      MakeExampleCache(job_, *schema, Env::Real(), Clock::Real(), [](const std::string&) {});
  Batch scratch;
  BadLines bad;
  for (const bool cached : {false, true}) {
    const auto read = ReadExamples(*data, *schema, cache.get(), {path_}, &scratch, &bad);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->owner != nullptr, cached);
  }
  folder_.Write("train-a", "y,x\n1,1\n");
  EXPECT_EQ(ReadExamples(*data, *schema, cache.get(), {path_}, &scratch, &bad).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sluice
