#include "worker/data/data_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utime.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "model/data/read_examples.h"
#include "tests/common/places/fake_store_env.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"
#include "tests/worker/fakes.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CsvModel : public FakeModel {
 public:
  explicit CsvModel(std::shared_ptr<const FeatureSchema> schema) : schema_(std::move(schema)) {}
  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }

 private:
  const std::shared_ptr<const FeatureSchema> schema_;
};

// Records how often the lines of each file are counted.
class WatchedData : public DataSource {
 public:
  explicit WatchedData(std::unique_ptr<DataSource> data)
      : DataSource(data->env()), data_(std::move(data)) {}
  absl::StatusOr<uint64_t> TextBytes(const std::string& path) const override {
    return data_->TextBytes(path);
  }
  absl::StatusOr<std::vector<uint64_t>> CountLines(const std::string& path, uint64_t begin,
                                                   uint64_t end, uint64_t piece) const override {
    ++counts[path];
    return data_->CountLines(path, begin, end, piece);
  }
  absl::Status ReadPiece(const std::string& path, uint64_t begin, uint64_t end, bool need_label,
                         Batch* examples, BadLines* bad) const override {
    return data_->ReadPiece(path, begin, end, need_label, examples, bad);
  }
  mutable std::map<std::string, int> counts;

 private:
  const std::unique_ptr<DataSource> data_;
};

std::string Csv(int lines) {
  std::string text = "y,n\n";
  for (int i = 0; i < lines; ++i) {
    absl::StrAppend(&text, i % 2, ",", i, i % 10 == 3 ? "\n\n" : "\n");
    if (i % 100 == 50) text += "bad\n";
  }
  return text;
}
uint64_t LinesOfCsv(int lines) { return lines + (lines + 49) / 100; }

class DataIndexTest : public ::testing::Test {
 protected:
  DataIndexTest() {
    JobConfig job = JobForTest(
        "data { format: CSV csv { header: true } label { column: 'y' } shuffle_lanes: 64 "
        "shuffle_window: 100 max_bad_lines: 100000 cache: true } features { name: 'n' numeric {} "
        "}");
    job.set_output_dir(folder_.Path("out/run"));
    // Files of about 500, 0, 90, 300 and 2 KiB.
    paths_ = {folder_.Write("a.csv", Csv(60000)), folder_.Write("b.csv", ""),
              folder_.Write("c.csv.gz", Gzip(Csv(10000))), folder_.Write("d.csv", Csv(40000)),
              folder_.Write("e.csv.zst", Zstd(Csv(200)))};
    for (const std::string& path : paths_) {
      job.mutable_data()->add_train_files(path);
      const utimbuf long_ago{1000000000, 1000000000};
      EXPECT_EQ(utime(path.c_str(), &long_ago), 0);
    }
    *spec_.mutable_config() = job;
    model_ = std::make_unique<CsvModel>(SchemaForTest(job));
    data_ = std::make_unique<WatchedData>(
        *DataSource::Create(job.data(), model_->schema(), Env::Real()));
    context_.spec = &spec_;
    context_.mode = Mode::kSync;
    context_.model = model_.get();
    context_.data = data_.get();
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
    context_.log = [](const std::string&) {};
  }

  IndexReport Index(uint32_t rank, uint32_t ranks, PieceTable* table) {
    spec_.set_worker_num(ranks);
    context_.rank = rank;
    *table = PieceTable();
    auto files = DataFiles::See(spec_.config(), data_env_);
    EXPECT_TRUE(files.ok()) << files.status();
    context_.files = *files;
    IndexReport report;
    EXPECT_TRUE(IndexTrainingData(context_, table, &report).ok());
    return report;
  }
  // The shares of all ranks.
  PieceTable IndexAll(uint32_t ranks) {
    PieceTable table;
    DataPieces all;
    for (uint32_t rank = 0; rank < ranks; ++rank)
      all.MergeFrom(Index(rank, ranks, &table).pieces());
    EXPECT_TRUE(UsePieces(all, &table).ok());
    std::sort(table.pieces.begin(), table.pieces.end(), [](const auto& a, const auto& b) {
      return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
    });
    return table;
  }
  void ExpectCovered(const PieceTable& table) {
    std::map<uint32_t, uint64_t> end, lines;
    for (const CountedPiece& piece : table.pieces) {
      EXPECT_EQ(piece.begin, end[piece.file]) << piece.file;
      end[piece.file] = piece.end;
      lines[piece.file] += piece.lines;
    }
    EXPECT_EQ(end, (std::map<uint32_t, uint64_t>{{0, std::filesystem::file_size(paths_[0])},
                                                 {2, kTextEnd},
                                                 {3, std::filesystem::file_size(paths_[3])},
                                                 {4, kTextEnd}}));
    EXPECT_EQ(lines, (std::map<uint32_t, uint64_t>{{0, LinesOfCsv(60000)},
                                                   {2, LinesOfCsv(10000)},
                                                   {3, LinesOfCsv(40000)},
                                                   {4, LinesOfCsv(200)}}));
  }

  Env* data_env_ = Env::Real();
  const TempFolder folder_;
  std::vector<std::string> paths_;
  JobSpec spec_;
  std::unique_ptr<CsvModel> model_;
  std::unique_ptr<WatchedData> data_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false};
  JobContext context_;
};

TEST_F(DataIndexTest, ARankThatJoinsLaterListsTheSameDataWithoutReadingIt) {
  PieceTable indexed;
  const IndexReport report = Index(1, 2, &indexed);
  data_->counts.clear();
  PieceTable listed;
  ASSERT_TRUE(ListTrainingData(context_, &listed).ok());
  EXPECT_EQ(listed.files, indexed.files);
  EXPECT_EQ(listed.piece_bytes, indexed.piece_bytes);
  EXPECT_TRUE(data_->counts.empty());
  EXPECT_TRUE(UsePieces(report.pieces(), &listed).ok());
}

TEST_F(DataIndexTest, SharesCoverAllFilesOnceAndThePiecesDoNotDependOnTheRanks) {
  const PieceTable one = IndexAll(1);
  ExpectCovered(one);
  EXPECT_GT(one.pieces.size(), 10u);
  for (const uint32_t ranks : {2u, 3u, 7u, 40u}) {
    data_->counts.clear();
    const PieceTable table = IndexAll(ranks);
    ASSERT_EQ(table.pieces.size(), one.pieces.size());
    for (size_t i = 0; i < table.pieces.size(); ++i) {
      EXPECT_EQ(table.pieces[i].end, one.pieces[i].end);
      EXPECT_EQ(table.pieces[i].lines, one.pieces[i].lines);
    }
    EXPECT_EQ(data_->counts[paths_[2]], 1);  // decompressed by one rank
  }
}

TEST_F(DataIndexTest, PiecesReadAsManyLinesAsWereCounted) {
  const PieceTable table = IndexAll(2);
  for (const CountedPiece& piece : table.pieces) {
    Batch batch;
    BadLines bad;
    ASSERT_TRUE(ReadExamples(*data_, *model_->schema(), nullptr,
                             {table.files[piece.file], piece.begin, piece.end}, &batch, &bad)
                    .ok());
    EXPECT_EQ(batch.n + bad.count, piece.lines) << piece.file << " from " << piece.begin;
  }
}

// An async job caches a compressed file whole, and a job with fewer lanes or more data caches
// longer pieces. Neither may change the pieces of this job, which decide the order of its examples.
TEST_F(DataIndexTest, PiecesDoNotDependOnCachesOfOtherJobs) {
  const PieceTable cold = IndexAll(1);
  context_.cache =
      MakeExampleCache(spec_.config(), *model_->schema(), Env::Real(), Clock::Real(), context_.log);
  const auto cache = [&](const DataPiece& piece) {
    Batch batch;
    BadLines bad;
    ASSERT_TRUE(
        ReadExamples(*data_, *model_->schema(), context_.cache.get(), piece, &batch, &bad).ok());
  };
  const uint64_t longer = 2 * cold.piece_bytes;
  for (const std::string& path : {paths_[2], paths_[4]}) {
    cache({path, 0, kTextEnd});
    cache({path, 0, longer});
    cache({path, longer, kTextEnd, longer});
    cache({path, 0, kTextEnd, 100 * longer});
  }
  const PieceTable warm = IndexAll(1);
  ASSERT_EQ(warm.pieces.size(), cold.pieces.size());
  for (size_t i = 0; i < cold.pieces.size(); ++i) {
    EXPECT_EQ(warm.pieces[i].begin, cold.pieces[i].begin) << i;
    EXPECT_EQ(warm.pieces[i].end, cold.pieces[i].end) << i;
    EXPECT_EQ(warm.pieces[i].lines, cold.pieces[i].lines) << i;
  }
}

TEST_F(DataIndexTest, TextOnAStoreIsCountedOnceForAVersionOfIt) {
  FakeStoreEnv env;
  spec_.mutable_config()->mutable_data()->clear_train_files();
  spec_.mutable_config()->mutable_data()->set_cache(false);
  for (std::string& path : paths_) {
    const std::string name = "b/" + path.substr(path.rfind('/') + 1);
    env.store.Put(name, *Env::Real()->ReadFile(path));
    path = "s3://" + name;
    spec_.mutable_config()->mutable_data()->add_train_files(path);
  }
  const auto open = [&] {
    data_ = std::make_unique<WatchedData>(
        *DataSource::Create(spec_.config().data(), model_->schema(), env.get()));
    context_.data = data_.get();
  };
  data_env_ = env.get();
  context_.line_counts = folder_.Path("line_counts");
  context_.log_env = Env::Real();
  open();
  const PieceTable counted = IndexAll(2);
  EXPECT_EQ(data_->counts.size(), 4u);  // one is empty
  const auto text_again = [&](uint32_t ranks) {
    open();
    const PieceTable again = IndexAll(ranks);
    EXPECT_EQ(again.pieces.size(), counted.pieces.size());
    for (size_t i = 0; i < again.pieces.size(); ++i) {
      EXPECT_EQ(again.pieces[i].begin, counted.pieces[i].begin) << i;
      EXPECT_EQ(again.pieces[i].end, counted.pieces[i].end) << i;
      EXPECT_EQ(again.pieces[i].lines, counted.pieces[i].lines) << i;
    }
    return data_->counts;
  };
  EXPECT_THAT(text_again(2), IsEmpty());
  // A line that a killed process has left, and one that somebody has changed.
  std::string kept = *Env::Real()->ReadFile(context_.line_counts);
  kept[kept.size() - 2] ^= 1;
  ASSERT_TRUE(Env::Real()->WriteFile(context_.line_counts, {kept, "0123"}).ok());
  EXPECT_EQ(text_again(2).size(), 1u);
  // Other versions and other formats are counted.
  EXPECT_FALSE(text_again(3).empty()) << "other shares";
  CsvFormat* const csv = spec_.mutable_config()->mutable_data()->mutable_csv();
  const CsvFormat with_header = *csv;
  csv->set_header(false);
  csv->add_columns("y");
  csv->add_columns("n");
  open();
  IndexAll(2);
  EXPECT_EQ(data_->counts.size(), 4u);
  *csv = with_header;
  std::string other = env.store.objects()["b/d.csv"];
  other[other.rfind('\n')] = ' ';
  other[other.size() / 2] = '\n';
  env.store.Put("b/d.csv", other);
  env.Pass(PlacesEnv::kVersionHolds);
  open();
  IndexAll(2);
  EXPECT_EQ(data_->counts.size(), 1u);
  EXPECT_EQ(data_->counts.count("s3://b/d.csv"), 1u);
}

TEST_F(DataIndexTest, CachedPiecesAreCountedWithoutReadingText) {
  context_.cache =
      MakeExampleCache(spec_.config(), *model_->schema(), Env::Real(), Clock::Real(), context_.log);
  const PieceTable table = IndexAll(1);
  for (const CountedPiece& piece : table.pieces) {
    Batch batch;
    BadLines bad;
    ASSERT_TRUE(ReadExamples(*data_, *model_->schema(), context_.cache.get(), table.KeyOf(piece),
                             &batch, &bad)
                    .ok());
  }
  data_->counts.clear();
  ExpectCovered(IndexAll(2));
  EXPECT_TRUE(data_->counts.empty());
  // Without one cached piece of a plain file, only that piece is counted.
  const std::string changed = paths_[3];
  const utimbuf earlier{999999999, 999999999};
  ASSERT_EQ(utime(changed.c_str(), &earlier), 0);
  ExpectCovered(IndexAll(2));
  EXPECT_EQ(data_->counts.size(), 1u);
  EXPECT_GT(data_->counts[changed], 0);
}

TEST_F(DataIndexTest, WithPerRankFilesEachRankKeepsItsOwnPieces) {
  spec_.mutable_config()->mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  PieceTable table;
  const IndexReport report = Index(0, 2, &table);
  EXPECT_EQ(report.examples(), LinesOfCsv(60000) + LinesOfCsv(10000) + LinesOfCsv(200));
  uint64_t lines = 0;
  for (const CountedPiece& piece : table.pieces) {
    EXPECT_EQ(piece.file % 2, 0u);
    lines += piece.lines;
  }
  EXPECT_EQ(lines, report.examples());
  EXPECT_EQ(Index(1, 2, &table).examples(), LinesOfCsv(40000));
}

TEST_F(DataIndexTest, AsyncReportsTheTextSizesOfItsShare) {
  context_.mode = Mode::kAsync;
  PieceTable table;
  const IndexReport report = Index(1, 3, &table);
  ASSERT_EQ(report.files_size(), 2);
  EXPECT_EQ(report.files(0).path(), paths_[1]);
  EXPECT_EQ(report.files(1).path(), paths_[4]);
  EXPECT_EQ(report.files(1).bytes(), Csv(200).size());
}

TEST_F(DataIndexTest, RefusesPiecesOfFilesThatThisRankDoesNotSee) {
  PieceTable table;
  table.files = {"a"};
  DataPieces pieces;
  pieces.add_file(1);
  EXPECT_EQ(UsePieces(pieces, &table).code(), absl::StatusCode::kInvalidArgument);
  pieces.add_begin(0);
  pieces.add_end(5);
  pieces.add_examples(2);
  EXPECT_EQ(UsePieces(pieces, &table).code(), absl::StatusCode::kInvalidArgument);
  pieces.set_file(0, 0);
  EXPECT_TRUE(UsePieces(pieces, &table).ok());
  EXPECT_EQ(table.pieces.size(), 1u);
}

}  // namespace
}  // namespace sluice
