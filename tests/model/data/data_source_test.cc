#include "model/data/data_source.h"

#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/ranges_reader.h"
#include "gmock/gmock.h"
#include "model/data/format_reader.h"
#include "model/data/record_rule.h"
#include "tests/common/base/hooked_env.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Source {
  std::shared_ptr<const FeatureSchema> schema;
  std::unique_ptr<DataSource> data;
};

Source SourceOf(const std::string& job_text, const FeatureUse& use = FeatureUse()) {
  const JobConfig job = JobForTest(job_text);
  Source source{SchemaForTest(job, use), nullptr};
  auto data = DataSource::Create(job.data(), source.schema, Env::Real());
  EXPECT_TRUE(data.ok()) << data.status();
  if (data.ok()) source.data = std::move(*data);
  return source;
}

std::string CreateErrorOf(const std::string& job_text) {
  const JobConfig job = JobForTest(job_text);
  const auto data =
      DataSource::Create(job.data(), SchemaForTest(job, WithKeyWeights()), Env::Real());
  EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(data.status().message());
}

struct Piece {
  absl::Status status;
  Batch batch;
  BadLines bad;
};

Piece Read(const Source& source, const std::string& path, uint64_t begin = 0,
           uint64_t end = UINT64_MAX, bool need_label = true) {
  Piece piece;
  piece.batch = EmptyBatch(*source.schema);
  piece.status = source.data->ReadPiece(path, begin, end, need_label, &piece.batch, &piece.bad);
  return piece;
}

// The one number of each example.
std::vector<float> Numbers(const Source& source, const std::string& path, uint64_t begin = 0,
                           uint64_t end = UINT64_MAX) {
  const Piece piece = Read(source, path, begin, end);
  EXPECT_TRUE(piece.status.ok()) << piece.status;
  EXPECT_EQ(piece.bad.count, 0u) << piece.bad.Describe();
  EXPECT_EQ(piece.batch.n, piece.batch.numeric.size());
  return piece.batch.numeric;
}

const char kNamed[] =
    "data { format: CSV label { column: 'y' } csv { columns: ['y', 'n'] } } features { name: 'n' "
    "numeric {} }";
const char kHeader[] =
    "data { format: CSV label { column: 'y' } csv { header: true } } features { name: 'n' numeric "
    "{} }";

// Reads a text whose numbers are `expected` in every split by two cuts, plain and gzip. All splits
// use one data source, whose kept readers must not matter.
void ExpectEverySplitIsExact(const char* job, const std::string& text,
                             const std::vector<float>& expected) {
  const TempFolder folder;
  const Source source = SourceOf(job);
  const std::string plain = folder.Write("plain", text),
                    zipped = folder.Write("zipped", Gzip(text));
  for (const std::string& path : {plain, zipped}) {
    ASSERT_EQ(*source.data->TextBytes(path), text.size());
    for (uint64_t a = 0; a <= text.size(); ++a) {
      for (uint64_t b = a; b <= text.size(); ++b) {
        std::vector<float> numbers;
        for (const auto& [begin, end] :
             {std::pair<uint64_t, uint64_t>(0, a), {a, b}, {b, text.size()}}) {
          const std::vector<float> piece = Numbers(source, path, begin, end);
          numbers.insert(numbers.end(), piece.begin(), piece.end());
        }
        ASSERT_EQ(numbers, expected) << path << " cut at " << a << " and " << b;
      }
    }
  }
}

TEST(DataSourceTest, EverySplitYieldsEachExampleOnce) {
  ExpectEverySplitIsExact(kNamed, "0,1\n1,22\r\n\n0,333\n\r\n1,4", {1, 22, 333, 4});
}

TEST(DataSourceTest, EverySplitOfAFileWithHeaderYieldsEachExampleOnce) {
  ExpectEverySplitIsExact(kHeader, "\nx,n,y\n7,1,0\n8,22,1\n9,3,0\n", {1, 22, 3});
}

TEST(DataSourceTest, PiecesOfAFileInOnePassAreThoseReadOneByOne) {
  const TempFolder folder;
  const Source source = SourceOf(kHeader);
  std::string text = "x,n,y\n";
  for (int i = 0; i < 60; ++i) text += "7," + std::string(i % 9, '0') + std::to_string(i) + ",1\n";
  std::mt19937 random(3);
  for (const std::string& path :
       {folder.Write("plain", text), folder.Write("zipped", Gzip(text))}) {
    for (int trial = 0; trial < 200; ++trial) {
      // Some are shorter than a line, touch, or lie behind the end.
      std::vector<TextRange> pieces;
      std::vector<float> expected;
      for (uint64_t at = random() % 20; at < text.size() + 40;) {
        pieces.push_back({at, at + random() % 30});
        const std::vector<float> one = Numbers(source, path, at, pieces.back().end);
        expected.insert(expected.end(), one.begin(), one.end());
        at = pieces.back().end + (random() % 2 == 0 ? 0 : random() % 40);
      }
      Batch batch = EmptyBatch(*source.schema);
      BadLines bad;
      const absl::Status status = source.data->ReadPieces(path, pieces, true, &batch, &bad);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(batch.numeric, expected) << path << " " << trial;
    }
  }
}

// The number of lines of each piece that ReadPiece finds.
std::vector<uint64_t> LinesOfPieces(const Source& source, const std::string& path, uint64_t begin,
                                    uint64_t end, uint64_t piece) {
  std::vector<uint64_t> lines;
  for (uint64_t at = begin; at < end; at += piece) {
    const Piece read = Read(source, path, at, std::min(at + piece, end));
    EXPECT_TRUE(read.status.ok()) << read.status;
    lines.push_back(read.batch.n + read.bad.count);
  }
  return lines;
}

TEST(DataSourceTest, CountLinesAgreesWithReadPiece) {
  const TempFolder folder;
  std::mt19937 random(5);
  std::string text = "\xEF\xBB\xBF# comment\n\ny,n\n";
  for (int i = 0; i < 200; ++i) {
    const char* const lines[] = {"1,2\n", "# 1,2\n", "\r\n", "bad\n", "0,12345\r\n", "  \n"};
    text += lines[random() % 6];
  }
  text += "1,7";
  const Source source = SourceOf(
      "data { format: CSV label { column: 'y' } csv { header: true comment_prefix: '#' } } "
      "features { name: 'n' numeric {} }");
  for (const std::string& path :
       {folder.Write("plain", text), folder.Write("zipped", Gzip(text))}) {
    for (const uint64_t piece : {1, 7, 64, 5000}) {
      for (const uint64_t begin : {uint64_t{0}, uint64_t{10}, text.size() / 2}) {
        for (const uint64_t end : {begin + 1, begin + 3 * piece, uint64_t{text.size()}}) {
          auto counted = source.data->CountLines(path, begin, end, piece);
          ASSERT_TRUE(counted.ok()) << counted.status();
          const std::vector<uint64_t> read =
              LinesOfPieces(source, path, begin, std::min<uint64_t>(end, text.size()), piece);
          ASSERT_LE(counted->size(), read.size());
          counted->resize(read.size());
          EXPECT_EQ(*counted, read)
              << path << " from " << begin << " to " << end << " by " << piece;
        }
      }
    }
    // In text of unknown length, the last piece is the one in which the last line starts.
    EXPECT_EQ(source.data->CountLines(path, 0, UINT64_MAX, 10)->size(), (text.size() - 3) / 10 + 1);
  }
}

TEST(DataSourceTest, ChangedHeaderAppliesToLaterPieces) {
  const TempFolder folder;
  const Source source = SourceOf(kHeader);
  const std::string path = folder.Write("a", "y,n\n1,5\n");
  EXPECT_THAT(Numbers(source, path), ElementsAre(5));
  folder.Write("a", "x,n,y\n1,6,0\n");
  EXPECT_THAT(Numbers(source, path), ElementsAre(6));
}

TEST(DataSourceTest, PiecesMayBeReadInAnyOrderAndOnManyThreads) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "1," + std::to_string(i) + "\n";
  const std::string path = folder.Write("a.gz", Gzip(text));
  const Source source = SourceOf(kNamed);
  constexpr int kPieces = 24;
  std::vector<std::vector<float>> pieces(kPieces);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int p = kPieces - 1 - t; p >= 0;
           p -= 4) {  // backwards, so that kept readers cannot always help
        pieces[p] =
            Numbers(source, path, text.size() * p / kPieces, text.size() * (p + 1) / kPieces);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<float> all;
  for (const auto& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  ASSERT_EQ(all.size(), 20000u);
  for (int i = 0; i < 20000; ++i) ASSERT_EQ(all[i], i);
}

TEST(DataSourceTest, ChangedFileIsReadAgain) {
  const TempFolder folder;
  const Source source = SourceOf(kNamed);
  std::string path = folder.Write("a.gz", Gzip("0,1\n0,2\n0,3\n"));
  EXPECT_THAT(Numbers(source, path, 0, 4), ElementsAre(1));
  path = folder.Write("a.gz", Gzip("0,1\n0,7\n0,8\n0,9\n"));
  EXPECT_THAT(Numbers(source, path, 4), ElementsAre(7, 8, 9));
}

TEST(DataSourceTest, CsvWithQuotesCommentsAndMissingValues) {
  const TempFolder folder;
  const Source source = SourceOf(R"(
      data { format: CSV label { column: 'y' positive: 'yes' }
             csv { columns: ['n', 'c', 'y'] missing: '?' comment_prefix: '|' } }
      features { name: 'n' numeric { default_value: -1 } }
      features { name: 'c' categorical {} })");
  const Piece piece =
      Read(source, folder.Write("a", "|comment, with commas,,,,\n 1 , \"a,b\", yes\n?, ?, no\n"));
  ASSERT_TRUE(piece.status.ok());
  EXPECT_EQ(piece.bad.count, 0u) << piece.bad.Describe();
  EXPECT_THAT(piece.batch.label, ElementsAre(1, 0));
  EXPECT_THAT(piece.batch.numeric, ElementsAre(1, -1));
  EXPECT_EQ(piece.batch.keys.size(), 1u);
  EXPECT_TRUE(piece.batch.example_id.empty());
}

TEST(DataSourceTest, HeaderNamesColumnsInAnyOrder) {
  const TempFolder folder;
  const Source source = SourceOf(kHeader);
  EXPECT_THAT(Numbers(source, folder.Write("a", "\xEF\xBB\xBFn,y\n5,1\n")), ElementsAre(5));
  EXPECT_THAT(Numbers(source, folder.Write("b", "y, \"n\" ,z\r\n1,6,x\r\n")), ElementsAre(6));
  EXPECT_THAT(Numbers(source, folder.Write("c", "y,n")), IsEmpty());
  EXPECT_THAT(Numbers(source, folder.Write("d", "")), IsEmpty());
}

TEST(DataSourceTest, MissingColumnIsAnErrorOfTheFile) {
  const TempFolder folder;
  const Source source = SourceOf(kHeader);
  const std::string path = folder.Write("a", "y,m,z\n1,2,3\n");
  const Piece piece = Read(source, path);
  EXPECT_EQ(piece.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(piece.status.message()),
              AllOf(HasSubstr(path), HasSubstr("\"n\""), HasSubstr("y, m, z")));
  EXPECT_EQ(piece.bad.count, 0u);
  EXPECT_THAT(std::string(Read(source, folder.Write("b", "y,n,n\n1,2,3\n")).status.message()),
              HasSubstr("twice"));
}

TEST(DataSourceTest, OnlyTrainingNeedsTheLabelColumn) {
  const TempFolder folder;
  const Source source = SourceOf(kHeader);
  const std::string path = folder.Write("a", "n\n5\n");
  EXPECT_THAT(std::string(Read(source, path).status.message()),
              AllOf(HasSubstr("\"y\""), HasSubstr("label")));
  const Piece piece = Read(source, path, 0, UINT64_MAX, /*need_label=*/false);
  EXPECT_TRUE(piece.status.ok()) << piece.status;
  EXPECT_THAT(piece.batch.numeric, ElementsAre(5));
}

TEST(DataSourceTest, BadLinesAreCountedAndTheFirstOnesNamed) {
  const TempFolder folder;
  const Source source = SourceOf(kHeader);
  std::string text = "y,n\n1,1\n1\n\n1,x\n2,2\n1,nan\n";
  for (int i = 0; i < 10; ++i) text += "1,2,3\n";
  text += "0,4\n";
  const std::string path = folder.Write("a", text);
  const Piece whole = Read(source, path);
  ASSERT_TRUE(whole.status.ok());
  EXPECT_THAT(whole.batch.numeric, ElementsAre(1, 4));
  EXPECT_EQ(whole.bad.count, 14u);
  // The first line of each kind.
  ASSERT_EQ(whole.bad.first.size(), 4u);
  EXPECT_THAT(whole.bad.first[0], AllOf(HasSubstr(path + ":3: "), HasSubstr("1 value")));
  EXPECT_THAT(whole.bad.first[1], AllOf(HasSubstr(path + ":5: "), HasSubstr("\"x\"")));
  EXPECT_THAT(whole.bad.first[2], AllOf(HasSubstr(path + ":6: "), HasSubstr("\"2\"")));
  // Bad lines in the middle of a file have the right numbers in any order of the pieces.
  const Piece middle = Read(source, path, 9);
  EXPECT_EQ(middle.bad.count, 13u);
  EXPECT_THAT(middle.bad.first[0], HasSubstr(path + ":5: "));
  EXPECT_THAT(Read(source, path, 6).bad.first[0], HasSubstr(path + ":3: "));
  EXPECT_THAT(Read(source, path, 16).bad.first[0], HasSubstr(path + ":7: "));
}

TEST(DataSourceTest, TooLongLinesAreBadLines) {
  const TempFolder folder;
  const Source source = SourceOf(kNamed);
  const Piece piece =
      Read(source, folder.Write("a", "1,1\n1," + std::string(3 << 20, '1') + "\n1,3\n"));
  ASSERT_TRUE(piece.status.ok());
  EXPECT_THAT(piece.batch.numeric, ElementsAre(1, 3));
  EXPECT_EQ(piece.bad.count, 1u);
  EXPECT_THAT(piece.bad.first[0], HasSubstr("1048576 bytes"));
}

// The number of each example and the count of malformed lines, read in pieces from the last one on,
// so that each seeks by itself.
std::pair<std::vector<float>, uint64_t> ReadFromTheBack(const Source& source,
                                                        const std::string& path, uint64_t size,
                                                        uint64_t piece) {
  std::pair<std::vector<float>, uint64_t> all;
  for (uint64_t at = (size - 1) / piece * piece;; at -= piece) {
    const Piece read = Read(source, path, at, at + piece);
    EXPECT_TRUE(read.status.ok()) << read.status;
    all.first.insert(all.first.begin(), read.batch.numeric.begin(), read.batch.numeric.end());
    all.second += read.bad.count;
    if (at == 0) return all;
  }
}

// Every reader must cut the text in the same way, wherever it begins.
TEST(DataSourceTest, LoneQuotesSpoilTheirOwnLineInEveryReader) {
  const TempFolder folder;
  for (const bool header : {true, false}) {
    const std::string job = absl::StrCat(
        "data { format: CSV label { column: 'y' } csv { ",
        header ? "header: true" : "columns: ['y', 'n', 'c']",
        " } } features { name: 'n' numeric {} } features { name: 'c' categorical {} }");
    for (const std::string second : {"tall\"", "\"inch"}) {
      std::string text = header ? "y,n,c\n" : "";
      std::vector<float> numbers;
      for (int i = 0; i < 3000; ++i) {
        const std::string cell = i == 100    ? "\"wide"
                                 : i == 2000 ? second
                                 : i == 2500 ? "\"a\nb, c\nd\""
                                             : "ok";
        absl::StrAppend(&text, i % 2, ",", i, ",", cell, "\n");
        if (cell[0] != '"' || i == 2500) numbers.push_back(static_cast<float>(i));
      }
      const uint64_t bad = 3000 - numbers.size();
      for (const std::string& path :
           {folder.Write("plain", text), folder.Write("zipped", Gzip(text))}) {
        for (const uint64_t piece : {40'000, 7'001, 997}) {
          const Source source = SourceOf(job);
          EXPECT_EQ(ReadFromTheBack(source, path, text.size(), piece), std::pair(numbers, bad));
          const auto lines = SourceOf(job).data->CountLines(path, 0, text.size(), piece);
          ASSERT_TRUE(lines.ok()) << lines.status();
          EXPECT_EQ(std::accumulate(lines->begin(), lines->end(), uint64_t{0}), 3000u);
        }
        const Piece whole = Read(SourceOf(job), path);
        EXPECT_EQ(whole.batch.numeric, numbers);
        EXPECT_THAT(whole.bad.Describe(), HasSubstr("data.csv.quote: \"\""));
        uint64_t told = 0;
        const auto checked = SourceOf(job).data->CheckBeginning(
            path, 1 << 20, 10'000, [&told](uint64_t, const absl::Status&) { ++told; });
        ASSERT_TRUE(checked.ok()) << checked.status();
        EXPECT_EQ(checked->lines, 3000u);
        EXPECT_EQ(told, bad);
      }
    }
  }
}

TEST(DataSourceTest, LibsvmColumnsAreIndices) {
  const TempFolder folder;
  const char job[] =
      "data { format: LIBSVM } features { name: 'f' numeric { column: '7' default_value: -2 } }";
  const Source source = SourceOf(job);
  const Piece piece =
      Read(source, folder.Write("a", "+1 7:0.5\n-1 3:1\n0 7:2 # end\n# all comment\nx 7:1\n"));
  ASSERT_TRUE(piece.status.ok());
  EXPECT_THAT(piece.batch.label, ElementsAre(1, 0, 0));
  EXPECT_THAT(piece.batch.numeric, ElementsAre(0.5f, -2, 2));
  EXPECT_EQ(piece.bad.count, 1u);
  EXPECT_THAT(CreateErrorOf("data { format: LIBSVM } features { name: 'age' numeric {} }"),
              AllOf(HasSubstr("\"age\""), HasSubstr("index")));
}

TEST(DataSourceTest, TheIndicesOfALibsvmLineMayBeTheValuesOfOneFeature) {
  const TempFolder folder;
  const Source source = SourceOf(
      "data { format: LIBSVM } features { name: 'n' numeric { column: '7' } } "
      "features { name: 'all' categorical { column: 'indices' pooling: MEAN } }",
      WithKeyWeights());
  const Piece piece = Read(
      source, folder.Write("a", "+1:0.5 7:2 54686452:1\n-1 07:2 # end\n0 \n1 8:x\n1 5:1 3:1:1\n"));
  ASSERT_TRUE(piece.status.ok()) << piece.status;
  EXPECT_EQ(piece.bad.count, 2u) << piece.bad.Describe();
  EXPECT_THAT(piece.batch.label, ElementsAre(1, 0, 0));
  EXPECT_THAT(piece.batch.weight, ElementsAre(0.5F, 1, 1));
  EXPECT_THAT(piece.batch.numeric, ElementsAre(2, 2, 0));
  EXPECT_THAT(piece.batch.key_offsets, ElementsAre(0, 2, 3, 3));
  EXPECT_EQ(piece.batch.keys[0], piece.batch.keys[2]) << "07 is the index 7";
  EXPECT_THAT(piece.batch.key_weights, ElementsAre(2, 1, 2));
}

TEST(DataSourceTest, LibffmFieldsAreFeaturesOfWeightedIndices) {
  const TempFolder folder;
  const char job[] =
      "data { format: LIBFFM } features { name: 'f0' categorical { column: '0' } } "
      "features { name: 'f2' categorical { column: '2' } }";
  const Source source = SourceOf(job, WithKeyWeights());
  const Piece piece =
      Read(source, folder.Write("a",
                                "1 0:7:1 1:9:0.5 2:3:0.25 0:8:-2\n-1 00:07:1 # end\n"
                                "# comment\n1 0:7\n1 a:7:1\n1 0:b:1\n1 0:7:c\n"
                                "0:7:1\nx 0:7:1\n"));
  ASSERT_TRUE(piece.status.ok()) << piece.status;
  EXPECT_EQ(piece.bad.count, 6u) << piece.bad.Describe();
  EXPECT_THAT(piece.batch.label, ElementsAre(1, 0));
  EXPECT_THAT(piece.batch.key_offsets, ElementsAre(0, 2, 3, 4, 4));
  EXPECT_THAT(piece.batch.key_weights, ElementsAre(1, -2, 0.25F, 1));
  EXPECT_EQ(piece.batch.keys[0], piece.batch.keys[3]);
  // Prediction takes lines without their label.
  const Piece bare = Read(source, folder.Write("b", "0:7:1\n"), 0, 100, /*need_label=*/false);
  EXPECT_EQ(bare.batch.n, 1u);
  EXPECT_THAT(bare.batch.keys, ElementsAre(piece.batch.keys[0]));
  EXPECT_THAT(CreateErrorOf("data { format: LIBFFM } features { name: 'age' categorical {} }"),
              AllOf(HasSubstr("\"age\""), HasSubstr("field")));
}

TEST(DataSourceTest, LibsvmFilesWithoutLabelsAreRefusedForTraining) {
  const TempFolder folder;
  const Source source =
      SourceOf("data { format: LIBSVM } features { name: 'f' numeric { column: '2' } }");
  const std::string none = folder.Write("none", "1:0.5 2:0.33\n1:0.2 2:0.4\n1:0.1 2:7\n");
  const auto checked = source.data->CheckBeginning(none, 1 << 20, 100, nullptr);
  for (const absl::Status& status :
       {Read(source, none).status, source.data->CheckColumns(none, true), checked.status(),
        source.data->CountLines(none, 0, 10, 10).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(none), HasSubstr("no labels")));
  }
  EXPECT_TRUE(Read(source, none, 0, 100, /*need_label=*/false).status.ok());
  // One line among others is malformed, and so it is for the reader of its piece alone.
  const std::string one = folder.Write("one", "1 1:0.5 2:0.33\n0 1:0.2 2:0.4\n1:0.1 2:7\n");
  EXPECT_EQ(Read(source, one).bad.count, 1u);
  EXPECT_EQ(Read(SourceOf("data { format: LIBSVM } features { name: 'f' numeric { column: '2' } }"),
                 one, 20, 100)
                .bad.count,
            1u);
  // The file may get labels later.
  folder.Write("none", "1:0.5 1:3 2:0.33\n1:0.2 2:0.4\n");
  const Piece labelled = Read(source, none);
  EXPECT_THAT(labelled.batch.numeric, ElementsAre(0.33F, 0.4F));
  EXPECT_THAT(labelled.batch.weight, ElementsAre(0.5F, 0.2F));
}

TEST(DataSourceTest, CriteoLinesHaveFortyColumns) {
  const TempFolder folder;
  const Source source = SourceOf(R"(data { format: CRITEO_TSV }
      features { name: 'I2' numeric { default_value: 9 } } features { name: 'C26' categorical {} })");
  std::string one = "1", two = "0";
  for (int i = 1; i <= 39; ++i) {
    one += "\t" + std::to_string(i);
    two += "\t";
  }
  const Piece piece = Read(source, folder.Write("a", one + "\n" + two + "\n" + one + "\t40\n"));
  ASSERT_TRUE(piece.status.ok());
  EXPECT_THAT(piece.batch.label, ElementsAre(1, 0));
  EXPECT_THAT(piece.batch.numeric, ElementsAre(2, 9));
  EXPECT_THAT(piece.batch.key_offsets, ElementsAre(0, 1, 1));
  EXPECT_EQ(piece.bad.count, 1u);
  EXPECT_THAT(CreateErrorOf("data { format: CRITEO_TSV } features { name: 'I14' numeric {} }"),
              AllOf(HasSubstr("\"I14\""), HasSubstr("I13, C1")));
}

TEST(DataSourceTest, EachFormatWithSeveralValuesHasVectors) {
  const TempFolder folder;
  const auto vectors = [&](const std::string& data, const std::string& text,
                           const std::string& more = "") {
    const Source source = SourceOf("data { label { column: 'y' } " + data +
                                   " } features { name: 'v' numeric { dim: 2 " + more + " } }");
    const Piece piece = Read(source, folder.Write("file", text));
    EXPECT_TRUE(piece.status.ok()) << piece.status;
    // Each text has one line whose vector has another length.
    EXPECT_EQ(piece.bad.count, 1u) << data;
    EXPECT_THAT(piece.bad.Describe(), HasSubstr("dim is 2")) << data;
    return piece.batch.numeric;
  };
  const char bar[] = "multi_value_delimiter: '|'";
  EXPECT_THAT(
      vectors("format: CSV csv { header: true }", "y,v\n1,0.5|1\n0,2\n0,\n1,\"[3, 4]\"\n", bar),
      ElementsAre(0.5, 1, 0, 0, 3, 4));
  EXPECT_THAT(vectors("format: TSV csv { columns: ['v', 'y'] }", "0.5|1\t1\n1|2|3\t0\n", bar),
              ElementsAre(0.5, 1));
  EXPECT_THAT(vectors("format: JSON_LINES",
                      "{\"y\": 1, \"v\": [0.5, 1]}\n{\"y\": 1, \"v\": [1]}\n"
                      "{\"y\": 0, \"v\": null}\n{\"y\": 0, \"v\": [null, 7]}\n"),
              ElementsAre(0.5, 1, 0, 0, 0, 7));
  const char slots[] = " slots { name: 'y' type: UINT64 dim: 1 } slots { name: 'v' type: FLOAT }";
  EXPECT_THAT(vectors(std::string("format: MULTI_SLOT") + slots, "1 1 2 0.5 1\n1 0 3 1 2 3\n"),
              ElementsAre(0.5, 1));
  EXPECT_THAT(vectors(std::string("format: SLOT_VALUE") + slots, "y:1 v:0.5 v:1\nv:2 y:0\ny:1\n"),
              ElementsAre(0.5, 1, 0, 0));
}

TEST(DataSourceTest, FoldersAreColumnsInEachFormat) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.path() + "/day=7/city=a%20b");
  // The days of the lines.
  const auto read = [&](const std::string& data, const std::string& text) {
    const Source source = SourceOf(
        "data { train_files: '" + folder.path() + "/day=*/city=*/*' " + data +
            " } features { name: 'day' numeric {} } features { name: 'city' categorical {} }",
        WithKeyWeights());
    const std::string path = folder.Write("day=7/city=a%20b/file", text);
    EXPECT_TRUE(source.data->CheckColumns(path, true).ok());
    const auto beginning = source.data->CheckBeginning(
        path, 1 << 20, 100,
        [](uint64_t line, const absl::Status& why) { ADD_FAILURE() << line << why; });
    EXPECT_TRUE(beginning.ok()) << beginning.status();
    EXPECT_TRUE(beginning->named.empty() || beginning->named[2] == beginning->lines);
    // As training and as prediction read it.
    const Piece piece = Read(source, path);
    EXPECT_TRUE(piece.status.ok()) << piece.status;
    EXPECT_EQ(piece.bad.count, 0u) << piece.bad.Describe();
    const auto stream = source.data->OpenStream({path, "city"});
    EXPECT_TRUE(stream.ok()) << stream.status();
    ExampleStream::Text lines;
    ExampleStream::Piece of_stream;
    BadLines bad;
    EXPECT_TRUE((*stream)->Read(1 << 20, &lines).ok());
    EXPECT_TRUE((*stream)->NewParser()->Parse(&lines, &of_stream, &bad).ok());
    EXPECT_EQ(of_stream.examples.numeric, piece.batch.numeric) << data;
    EXPECT_EQ(of_stream.examples.keys, piece.batch.keys) << data;
    EXPECT_EQ(of_stream.ids.front(), "a b");
    const Batch by_hand =
        ExampleForTest(*SchemaForTest(FeaturesForTest("features { name: 'city' categorical {} }")),
                       {{"city", "a b"}});
    EXPECT_EQ(KeysOf(piece.batch, 0, 0), by_hand.keys) << data;
    return piece.batch.numeric;
  };
  const char label[] = " label { column: 'y' } ";
  EXPECT_THAT(read(std::string("format: CSV csv { header: true }") + label, "x,y\n1,0\n2,1\n"),
              ElementsAre(7, 7));
  EXPECT_THAT(read(std::string("format: TSV csv { columns: ['y', 'x'] }") + label, "1\t0\n"),
              ElementsAre(7));
  // A file that has the column itself keeps it.
  EXPECT_THAT(read(std::string("format: CSV csv { header: true }") + label, "day,y\n1,0\n,1\n"),
              ElementsAre(1, 0));
  EXPECT_THAT(
      read(std::string("format: JSON_LINES") + label, "{\"y\": 1}\n{\"y\": 0, \"day\": 3}\n"),
      ElementsAre(7, 3));
  const char slot[] = " slots { name: 'y' type: UINT64 dim: 1 } ";
  EXPECT_THAT(read(std::string("format: MULTI_SLOT") + slot + label, "1 1\n"), ElementsAre(7));
  EXPECT_THAT(read(std::string("format: SLOT_VALUE") + slot + label, "y:1\n"), ElementsAre(7));
  EXPECT_THAT(read("format: LIBSVM", "1 3:4\n0 3:1\n"), ElementsAre(7, 7));
  EXPECT_THAT(read("format: LIBFFM", "1 0:3:4\n"), ElementsAre(7));
}

TEST(DataSourceTest, AFolderThatIsNoColumnIsMissed) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.path() + "/day=7");
  const std::string path = folder.Write("day=7/file", "y\n1\n");
  const char features[] =
      " label { column: 'y' } csv { header: true } } features { name: 'day' numeric {} }";
  // Named as it is, the file has no columns of folders.
  const Source named = SourceOf("data { format: CSV train_files: '" + path + "'" + features);
  EXPECT_THAT(std::string(named.data->CheckColumns(path, true).message()), HasSubstr("\"day\""));
  const Source below =
      SourceOf("data { format: CSV train_files: '" + folder.path() + "/*/*'" + features);
  EXPECT_TRUE(below.data->CheckColumns(path, true).ok());
}

TEST(DataSourceTest, EachFormatHasAReader) {
  const auto* const formats = DataConfig::Format_descriptor();
  for (int i = 0; i < formats->value_count(); ++i) {
    DataConfig data;
    data.set_format(static_cast<DataConfig::Format>(formats->value(i)->number()));
    EXPECT_EQ(ReaderOf(data) != nullptr, data.format() != DataConfig::FORMAT_UNSPECIFIED);
  }
}

TEST(DataSourceTest, ContradictoryFormatsAreRefused) {
  const std::string feature = " features { name: 'n' numeric {} }";
  EXPECT_THAT(CreateErrorOf("data { label { column: 'y' } }" + feature), HasSubstr("data.format"));
  EXPECT_THAT(CreateErrorOf("data { format: CSV label { column: 'y' } }" + feature),
              AllOf(HasSubstr("data.csv"), HasSubstr("header"), HasSubstr("columns")));
  EXPECT_THAT(
      CreateErrorOf("data { format: CSV label { column: 'y' } csv { header: true columns: 'y' } }" +
                    feature),
      AllOf(HasSubstr("data.csv"), HasSubstr("header"), HasSubstr("columns")));
  EXPECT_THAT(
      CreateErrorOf("data { format: CSV label { column: 'y' } csv { columns: ['y', 'm'] } }" +
                    feature),
      AllOf(HasSubstr("data.csv.columns"), HasSubstr("\"n\""), HasSubstr("y, m")));
  EXPECT_THAT(
      CreateErrorOf("data { format: CSV label { column: 'z' } csv { columns: ['y', 'n'] } }" +
                    feature),
      AllOf(HasSubstr("\"z\""), HasSubstr("the label")));
  EXPECT_THAT(
      CreateErrorOf(
          "data { format: CRITEO_TSV csv { header: true } } features { name: 'I1' numeric {} }"),
      AllOf(HasSubstr("data.csv"), HasSubstr("missing")));
}

TEST(DataSourceTest, FilesThatCannotBeReadAreNamed) {
  const TempFolder folder;
  const Source source = SourceOf(kNamed);
  const std::string whole = Gzip("0,1\n0,2\n");
  const std::string cut = folder.Write("cut.gz", whole.substr(0, whole.size() - 3));
  for (const std::string& path : {folder.Path("absent"), cut, folder.path()}) {
    EXPECT_THAT(std::string(Read(source, path).status.message()), HasSubstr(path));
    EXPECT_FALSE(source.data->TextBytes(path).ok());
  }
}

TEST(DataSourceTest, RandomBytesNeverCrash) {
  const TempFolder folder;
  std::mt19937 random(5);
  const Source sources[] = {
      SourceOf(kNamed), SourceOf(kHeader),
      SourceOf("data { format: LIBSVM } features { name: '7' categorical {} }"),
      SourceOf("data { format: CRITEO_TSV } features { name: 'C1' categorical {} }")};
  const std::string likely = "01,,\"\n\n\r\t :7#y n\x1f\x8b";
  for (int round = 0; round < 150; ++round) {
    std::string bytes(random() % 300, '\0');
    for (char& c : bytes)
      c = random() % 3 == 0 ? static_cast<char>(random()) : likely[random() % likely.size()];
    if (round % 3 == 1) bytes = Gzip(bytes);
    if (round % 6 == 1 && !bytes.empty()) bytes[random() % bytes.size()] ^= 1 << random() % 8;
    if (round % 5 == 2) bytes.insert(0, "y,n\n");
    const std::string path = folder.Write("random", bytes);
    for (const Source& source : sources) {
      for (const bool need_label : {false, true}) {
        const Piece piece = Read(source, path, random() % 50, 50 + random() % 300, need_label);
        EXPECT_EQ(piece.batch.key_offsets.size(), piece.batch.n * piece.batch.num_slots + 1);
        EXPECT_EQ(piece.batch.label.size(), piece.batch.n);
        EXPECT_EQ(piece.batch.numeric.size(), piece.batch.n * piece.batch.num_numeric);
      }
    }
  }
}

TEST(DataSourceTest, CheckColumnsNamesAMissingColumnAndTheClosestName) {
  const TempFolder folder;
  const Source source = SourceOf(
      "data { format: CSV csv { header: true } label { column: 'y' } } "
      "features { name: 'hours' numeric {} }");
  const std::string good = folder.Write("good.csv", "hours,y,z\n"),
                    swapped = folder.Write("bad.csv", "huors,y,z\n1,1,1\n"),
                    unlabelled = folder.Write("test.csv", "hours,z\n"),
                    gone = folder.Path("gone.csv");
  EXPECT_TRUE(source.data->CheckColumns(good, true).ok());
  const absl::Status status = source.data->CheckColumns(swapped, true);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(swapped), HasSubstr("\"hours\""), HasSubstr("\"huors\"")));
  EXPECT_FALSE(source.data->CheckColumns(unlabelled, true).ok());
  EXPECT_TRUE(source.data->CheckColumns(unlabelled, false).ok());
  EXPECT_FALSE(source.data->CheckColumns(gone, true).ok());
}

// Files that are far away: notes what readers plan, and what they read before they have a plan.
class FarEnv : public HookedEnv {
 public:
  class Reader : public RangesReader {
   public:
    Reader(std::unique_ptr<FileReader> file, const std::string& path, FarEnv* env)
        : RangesReader(file->info()), file_(std::move(file)), path_(path), env_(*env) {}
    absl::StatusOr<size_t> ReadAt(uint64_t offset, void* to, size_t n) override {
      // The head tells the form of a file.
      if (env_.planned.count(path_) == 0 && offset > 0) env_.read_unplanned = true;
      return file_->ReadAt(offset, to, n);
    }
    void ExpectRanges(std::vector<FileRange> ranges) override {
      env_.planned[path_] = std::move(ranges);
    }
    void ExpectHead() override { env_.heads.push_back(path_); }

   private:
    const std::unique_ptr<FileReader> file_;
    const std::string path_;
    FarEnv& env_;
  };
  FilePlace PlaceOf(const std::string&) override { return {"far", false, false, false, false}; }
  absl::StatusOr<std::unique_ptr<FileReader>> NewReader(const std::string& path) override {
    auto file = Env::Real()->NewReader(path);
    if (!file.ok()) return file.status();
    return std::make_unique<Reader>(*std::move(file), path, this);
  }
  std::map<std::string, std::vector<FileRange>> planned;
  std::vector<std::string> heads;
  bool read_unplanned = false;
};

const char kNoQuotes[] =
    "data { format: CSV label { column: 'y' } csv { columns: ['y', 'n'] quote: '' } } features { "
    "name: 'n' numeric {} }";

class FarPiecesTest : public ::testing::Test {
 protected:
  FarPiecesTest() {
    std::string text;
    for (int i = 0; i < 50'000; ++i) absl::StrAppend(&text, i % 2, ",", i, "\n");
    path_ = folder_.Write("far.csv", text);
    other_ = folder_.Write("other.csv", text);
  }
  std::unique_ptr<DataSource> Source(const char* job) {
    const JobConfig config = JobForTest(job);
    schema_ = SchemaForTest(config);
    auto data = DataSource::Create(config.data(), schema_, &env_);
    EXPECT_TRUE(data.ok()) << data.status();
    return *std::move(data);
  }
  // The plan has the pieces, `before` bytes before each, and the rest of its last line.
  void ExpectPlanned(const std::vector<FileRange>& plan, uint64_t before) {
    ASSERT_EQ(plan.size(), pieces_.size());
    for (size_t p = 0; p < plan.size(); ++p) {
      EXPECT_EQ(plan[p].begin, std::max(pieces_[p].begin, before) - before);
      EXPECT_GE(plan[p].begin + plan[p].bytes, pieces_[p].end + 10);
    }
  }

  const TempFolder folder_;
  std::string path_, other_;
  FarEnv env_;
  std::shared_ptr<const FeatureSchema> schema_;
  const std::vector<TextRange> pieces_ = {{2000, 2050}, {100'000, 100'050}, {300'000, 300'050}};
};

TEST_F(FarPiecesTest, ArePlannedTogetherBeforeAnyIsRead) {
  // Cells in quotes may hold line ends: where a line starts, more of the text before it tells.
  for (const auto& [job, before] : {std::pair<const char*, uint64_t>(kNoQuotes, 1),
                                    {kNamed, RecordRule::kMostBytes + (4 << 10)}}) {
    const auto data = Source(job);
    env_.planned.clear();
    Batch batch = EmptyBatch(*schema_);
    BadLines bad;
    ASSERT_TRUE(data->ReadPieces(path_, pieces_, true, &batch, &bad).ok());
    EXPECT_GT(batch.n, 15u);
    ExpectPlanned(env_.planned[path_], before);
    EXPECT_FALSE(env_.read_unplanned);
  }
  env_.planned.clear();
  const auto data = Source(kNoQuotes);
  Batch batch = EmptyBatch(*schema_);
  BadLines bad;
  ASSERT_TRUE(data->ReadPiece(path_, 0, 100, true, &batch, &bad).ok());
  EXPECT_TRUE(env_.planned.empty());
}

TEST_F(FarPiecesTest, AreFetchedAheadForAllFiles) {
  const auto data = Source(kNoQuotes);
  data->FetchAhead({{path_, pieces_}, {folder_.Path("none"), pieces_}, {other_, pieces_}});
  EXPECT_THAT(env_.heads, testing::ElementsAre(path_, other_));
  EXPECT_EQ(env_.planned.size(), 2u);
  ExpectPlanned(env_.planned[path_], 1);
  ExpectPlanned(env_.planned[other_], 1);
  // Nobody knows where in a compressed file a piece of its text is.
  env_.planned.clear();
  const std::string packed = folder_.Write("packed.csv", Gzip("1,1\n0,0\n"));
  data->FetchAhead({{packed, {{0, 4}, {4, 8}}}});
  EXPECT_TRUE(env_.planned.empty());
}

}  // namespace
}  // namespace sluice
