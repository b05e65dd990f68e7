#include "model/data/read_examples.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/env.h"
#include "gmock/gmock.h"
#include "model/features/data_summary.h"
#include "tests/model/data/cached_data.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using ReadExamplesTest = CachedData;

TEST_F(ReadExamplesTest, SecondReadIsMappedAndHasTheSameBits) {
  job_.mutable_data()->set_max_bad_lines(10);
  job_.mutable_data()->set_weight_column("w");
  const Read plain = ReadWith(nullptr, {source_});
  EXPECT_EQ(plain.batch.n, 500);
  EXPECT_EQ(plain.bad.count, 5);
  const Read cold = ReadAll(), warm = ReadAll();
  EXPECT_FALSE(cold.cached);
  EXPECT_TRUE(warm.cached);
  ExpectSame(plain, cold);
  ExpectSame(plain, warm);
  EXPECT_THAT(warm.bad.first, SizeIs(1));  // all are of one kind
  EXPECT_THAT(log_, IsEmpty());
}

// Notes which files are to be fetched ahead.
class FetchedData : public DataSource {
 public:
  explicit FetchedData(std::unique_ptr<DataSource> data)
      : DataSource(data->env()), data_(std::move(data)) {}
  absl::StatusOr<uint64_t> TextBytes(const std::string& path) const override {
    return data_->TextBytes(path);
  }
  absl::StatusOr<std::vector<uint64_t>> CountLines(const std::string& path, uint64_t begin,
                                                   uint64_t end, uint64_t piece) const override {
    return data_->CountLines(path, begin, end, piece);
  }
  absl::Status ReadPiece(const std::string& path, uint64_t begin, uint64_t end, bool need_label,
                         Batch* examples, BadLines* bad) const override {
    return data_->ReadPiece(path, begin, end, need_label, examples, bad);
  }
  void FetchAhead(absl::Span<const FilePieces> files) const override {
    for (const FilePieces& file : files) fetched.push_back(file.path);
  }
  mutable std::vector<std::string> fetched;

 private:
  const std::unique_ptr<DataSource> data_;
};

TEST_F(ReadExamplesTest, WhatIsParsedAndWhatComesNextIsFetchedAheadUnlessItIsCached) {
  const std::string other = folder_.Write("other.csv", "y,w,x,tags\n1,1,3,a\n"),
                    third = folder_.Write("third.csv", "y,w,x,tags\n0,1,4,b\n");
  Age(other);
  const auto schema = SchemaForTest(job_);
  const FetchedData data(*DataSource::Create(job_.data(), schema, Env::Real()));
  const auto read = [&](const std::vector<DataPiece>& pieces) {
    data.fetched.clear();
    Batch scratch;
    BadLines bad;
    EXPECT_TRUE(ReadExamples(data, *schema, Cache().get(), absl::MakeConstSpan(pieces), &scratch,
                             &bad, nullptr, {{third, 0, 20}})
                    .ok());
    return data.fetched;
  };
  const std::vector<DataPiece> pieces = {{source_, 0, 100}, {source_, 200, 300}, {other, 0, 100}};
  EXPECT_THAT(read(pieces), ElementsAre(source_, other, third));
  EXPECT_THAT(read(pieces), IsEmpty());
  // A read of one file asks for its pieces itself.
  EXPECT_THAT(read({{other, 0, 100}}), ElementsAre(third));
}

TEST_F(ReadExamplesTest, EachPieceHasItsOwnFile) {
  const DataPiece first{source_, 0, 2000}, second{source_, 2000, UINT64_MAX},
      none{source_, 100000, 100001};
  for (const bool cached : {false, true}) {
    const Read a = ReadPiece(first), b = ReadPiece(second), c = ReadPiece(none);
    EXPECT_EQ(a.cached && b.cached && c.cached, cached);
    ExpectSame(a, ReadWith(nullptr, first));
    ExpectSame(b, ReadWith(nullptr, second));
    EXPECT_EQ(a.batch.n + b.batch.n, 500);
    EXPECT_EQ(c.batch.n, 0);
  }
  EXPECT_THAT(Files(), SizeIs(3));
}

TEST_F(ReadExamplesTest, SeveralPiecesOfSeveralFilesAreOneEntry) {
  const std::string other = folder_.Write("other.csv", "y,w,x,tags\n1,1,3,a\n0,1,4,b\n0,1,5,c\n");
  Age(other);
  const std::vector<DataPiece> pieces = {
      {other, 0, 12}, {other, 20, 30}, {source_, 0, 2000}, {source_, 4000, 5000}};
  const Read plain = ReadPiecesWith(nullptr, pieces);
  uint64_t examples = 0, bad = 0;
  for (const DataPiece& piece : pieces) {
    const Read one = ReadWith(nullptr, piece);
    examples += one.batch.n;
    bad += one.bad.count;
  }
  EXPECT_GT(bad, 0u);
  EXPECT_EQ(plain.batch.n, examples);
  EXPECT_EQ(plain.bad.count, bad);
  for (const bool cached : {false, true}) {
    const Read read = ReadPiecesWith(Cache().get(), pieces);
    EXPECT_EQ(read.cached, cached);
    ExpectSame(read, plain);
  }
  EXPECT_THAT(Files(), SizeIs(1));
  // Other pieces of the same files are another entry.
  EXPECT_FALSE(ReadPiecesWith(Cache().get(), {pieces[0], pieces[2]}).cached);
  // A change of any of the files counts.
  Age(folder_.Write("other.csv", "y,w,x,tags\n1,1,6,a\n0,1,7,b\n0,1,8,c\n"), 3600);
  const Read changed = ReadPiecesWith(Cache().get(), pieces);
  EXPECT_FALSE(changed.cached);
  EXPECT_EQ(changed.batch.numeric.front(), 6);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("changed")));
}

TEST_F(ReadExamplesTest, SummariesOfPiecesAddUpToThatOfTheFileCachedOrNot) {
  job_.mutable_features(1)->mutable_categorical()->add_vocabulary("a");
  job_.mutable_features(1)->mutable_categorical()->add_vocabulary("b5");  // the text has "5"
  job_.mutable_features(1)->mutable_categorical()->add_vocabulary("b6");
  const DataSummary whole = ReadWith(nullptr, {source_}).summary;
  EXPECT_EQ(whole.examples(), 500u);  // bad lines are not examples
  EXPECT_EQ(whole.positive(), 250u);
  ASSERT_EQ(whole.features_size(), 2);
  EXPECT_EQ(whole.features(0).missing(), 0u);
  EXPECT_EQ(whole.features(1).out_of_vocabulary(), 499u);
  EXPECT_EQ(whole.features(1).vocabulary_seen(), "\x05");
  for (const bool cached : {false, true}) {
    DataSummary sum;
    for (uint64_t begin = 0; begin < 8000; begin += 1000) {
      const Read piece = ReadPiece({source_, begin, begin == 7000 ? UINT64_MAX : begin + 1000});
      EXPECT_EQ(piece.cached, cached);
      AddSummary(piece.summary, &sum);
    }
    EXPECT_EQ(sum.SerializeAsString(), whole.SerializeAsString());
  }
}

TEST_F(ReadExamplesTest, CompressedTextIsCachedToo) {
  const std::string zipped = folder_.Write("train.csv.gz", Gzip("y,w,x,tags\n1,1,3,a\n0,1,4,b\n"));
  Age(zipped);
  const Read cold = ReadPiece({zipped}), warm = ReadPiece({zipped});
  EXPECT_TRUE(warm.cached);
  ExpectSame(cold, warm);
  EXPECT_THAT(warm.batch.numeric, ElementsAre(3, 4));
}

TEST_F(ReadExamplesTest, ChangedSourceIsParsedAgainAndTheReasonLogged) {
  ReadAll();
  Age(folder_.Write("train.csv", "y,w,x,tags\n1,1,77,a\n"), 3600);
  const Read changed = ReadAll();
  EXPECT_FALSE(changed.cached);
  EXPECT_THAT(changed.batch.numeric, ElementsAre(77));
  EXPECT_THAT(log_, ElementsAre(HasSubstr("changed")));
  EXPECT_TRUE(ReadAll().cached);
}

// cp -p, rsync and touch -r give a file an old time of writing.
TEST_F(ReadExamplesTest, ChangedSourceWithSameSizeAndTimeIsParsedAgain) {
  const std::string text = "y,w,x,tags\n1,1,3,a\n0,1,4,b\n";
  Age(folder_.Write("train.csv", text));
  struct stat before;
  ASSERT_EQ(stat(source_.c_str(), &before), 0);
  ReadAll();
  ASSERT_TRUE(ReadAll().cached);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(20));  // beyond the file system's clock tick
  folder_.Write("train.csv", "y,w,x,tags\n1,1,7,a\n0,1,8,b\n");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, source_.c_str(), times, 0), 0);
  const Read changed = ReadAll();
  EXPECT_FALSE(changed.cached);
  EXPECT_THAT(changed.batch.numeric, ElementsAre(7, 8));
}

TEST_F(ReadExamplesTest, AMappedFileThatIsChangedIsNeverReadOutOfBounds) {
  const Read whole = ReadAll();
  const std::string file = OnlyFile();
  const auto schema = SchemaForTest(job_);
  const auto data = DataSource::Create(job_.data(), schema, Env::Real());
  const auto cache = Cache();
  Batch scratch, batch = EmptyBatch(*schema);
  BadLines bad;
  const auto examples = ReadExamples(**data, *schema, cache.get(), {source_}, &scratch, &bad);
  ASSERT_TRUE(examples.ok()) << examples.status();
  ASSERT_NE(examples->owner, nullptr);
  const ExampleView& view = examples->view;
  ASSERT_NE(view.key_offsets, nullptr);

  // The header has an offset, a size and a checksum of each section from byte 152 on.
  constexpr off_t kSections = 152, kSectionBytes = 24;
  const int fd = open(file.c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  off_t offsets = 0;
  ASSERT_EQ(pread(fd, &offsets, 8, kSections + 3 * kSectionBytes), 8);
  const uint64_t far = uint64_t{1} << 46;
  for (int s = 0; s < 7; ++s) ASSERT_EQ(pwrite(fd, &far, 8, kSections + s * kSectionBytes), 8);
  for (size_t i = 0; i < view.n; ++i) ASSERT_TRUE(batch.Append(view, i, i).ok());
  EXPECT_EQ(batch.keys, whole.batch.keys);

  std::vector<uint32_t> wrong(view.n * view.num_slots + 1);
  for (size_t i = 0; i < wrong.size(); ++i) wrong[i] = static_cast<uint32_t>(0xE0000000 + 2 * i);
  const ssize_t bytes = static_cast<ssize_t>(4 * wrong.size());
  ASSERT_EQ(pwrite(fd, wrong.data(), static_cast<size_t>(bytes), offsets), bytes);
  close(fd);
  batch = EmptyBatch(*schema);
  for (size_t i = 0; i < view.n; ++i) {
    const absl::Status status = batch.Append(view, i, i);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  }
  EXPECT_EQ(batch.n, 0u);
}

}  // namespace
}  // namespace sluice
