
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "model/data/data_source.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCsv[] =
    "data { format: CSV label { column: 'y' } csv { header: true comment_prefix: '#' } }"
    "features { name: 'n' numeric {} }";

struct ExampleStreamLines {
  absl::Status status;
  std::vector<float> numbers;
  std::vector<std::string> ids;
  BadLines bad;
};

ExampleStreamLines ReadAll(const std::string& job_text, const ExampleStream::Options& options,
                           uint64_t piece_bytes = 7) {
  const JobConfig job = JobForTest(job_text);
  const auto data = DataSource::Create(job.data(), SchemaForTest(job), Env::Real());
  EXPECT_TRUE(data.ok()) << data.status();
  ExampleStreamLines lines;
  auto stream = (*data)->OpenStream(options);
  lines.status = stream.status();
  while (lines.status.ok()) {
    ExampleStream::Text text;
    const auto more = (*stream)->Read(piece_bytes, &text);
    lines.status = more.status();
    if (!more.ok() || !*more) break;
    ExampleStream::Piece piece;
    lines.status = (*stream)->NewParser()->Parse(&text, &piece, &lines.bad);
    lines.numbers.insert(lines.numbers.end(), piece.examples.numeric.begin(),
                         piece.examples.numeric.end());
    lines.ids.insert(lines.ids.end(), piece.ids.begin(), piece.ids.end());
    EXPECT_EQ(piece.ids.size(),
              options.id_column.empty() ? 0 : piece.examples.n + piece.bad_positions.size());
  }
  return lines;
}

// Runs `read` with the bytes that `write` puts into a pipe as its standard input.
template <typename F>
void WithInput(const std::string& text, F read) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  std::thread writer([&] {
    for (size_t i = 0; i < text.size(); i += 3)
      EXPECT_GT(write(fds[1], text.data() + i, std::min<size_t>(3, text.size() - i)), 0);
    close(fds[1]);
  });
  const int saved = dup(STDIN_FILENO);
  dup2(fds[0], STDIN_FILENO);
  close(fds[0]);
  read();
  dup2(saved, STDIN_FILENO);
  close(saved);
  writer.join();
}

TEST(ExampleStreamTest, PiecesOfAnySizeGiveEachLineOnce) {
  const TempFolder folder;
  const std::string text = "\xEF\xBB\xBF# c\nn,y,id\n1,0,a\r\nx,1,b\n\n3,0,c\n4";
  ExampleStream::Options options;
  options.id_column = "id";
  for (const std::string& bytes : {text, Gzip(text), Zstd(text)}) {
    options.path = folder.Write("f", bytes);
    for (uint64_t piece_bytes = 1; piece_bytes <= text.size(); ++piece_bytes) {
      const ExampleStreamLines lines = ReadAll(kCsv, options, piece_bytes);
      EXPECT_TRUE(lines.status.ok()) << lines.status;
      EXPECT_THAT(lines.numbers, ElementsAre(1, 3)) << piece_bytes;
      EXPECT_THAT(lines.ids, ElementsAre("a", "b", "c", "")) << piece_bytes;
      ASSERT_EQ(lines.bad.first.size(), 2u);
      EXPECT_THAT(lines.bad.first[0], HasSubstr("f:4: "));
      EXPECT_THAT(lines.bad.first[1], HasSubstr("f:7: "));
    }
  }
}

TEST(ExampleStreamTest, LineThatIsTooLongIsBad) {
  const TempFolder folder;
  ExampleStream::Options options;
  options.path = folder.Write("f", "n,y\n1,0\n" + std::string(3 << 20, '1') + ",0\n2,0\n");
  const ExampleStreamLines lines = ReadAll(kCsv, options);
  EXPECT_THAT(lines.numbers, ElementsAre(1, 2));
  ASSERT_EQ(lines.bad.first.size(), 1u);
  EXPECT_THAT(lines.bad.first[0], HasSubstr("f:3: "));
}

// The lines of later pieces do not depend on whether earlier pieces are parsed, or when.
TEST(ExampleStreamTest, PiecesAreParsedInAnyOrder) {
  const TempFolder folder;
  const JobConfig job = JobForTest(kCsv);
  const auto data = DataSource::Create(job.data(), SchemaForTest(job), Env::Real());
  ASSERT_TRUE(data.ok()) << data.status();
  ExampleStream::Options options;
  options.path = folder.Write("f", "n,y\n1,0\nx,0\n2,0\n");
  const auto stream = (*data)->OpenStream(options);
  ASSERT_TRUE(stream.ok()) << stream.status();
  ExampleStream::Text texts[3];
  for (ExampleStream::Text& text : texts) ASSERT_TRUE((*stream)->Read(1, &text).value_or(false));
  const auto first = (*stream)->NewParser(), second = (*stream)->NewParser();
  ExampleStream::Piece piece;
  BadLines bad;
  ASSERT_TRUE(first->Parse(&texts[2], &piece, &bad).ok());
  EXPECT_THAT(piece.examples.numeric, ElementsAre(2));
  ASSERT_TRUE(second->Parse(&texts[1], &piece, &bad).ok());
  EXPECT_THAT(piece.bad_positions, ElementsAre(0));
  EXPECT_THAT(bad.first, ElementsAre(HasSubstr("f:3: ")));
  ASSERT_TRUE(second->Parse(&texts[0], &piece, &bad).ok());
  EXPECT_THAT(piece.examples.numeric, ElementsAre(1));
}

TEST(ExampleStreamTest, StandardInputIsReadPlainAndCompressed) {
  const std::string text = "# c\nn,id\n1,a\nx,b\n3,c\n4\n";
  ExampleStream::Options options;
  options.id_column = "id";
  for (const std::string& bytes : {text, Gzip(text), Zstd(text)}) {
    WithInput(bytes, [&] {
      const ExampleStreamLines lines = ReadAll(kCsv, options);
      EXPECT_TRUE(lines.status.ok()) << lines.status;
      EXPECT_THAT(lines.numbers, ElementsAre(1, 3));
      EXPECT_THAT(lines.ids, ElementsAre("a", "b", "c", ""));
      ASSERT_EQ(lines.bad.first.size(), 2u);
      EXPECT_THAT(lines.bad.first[0], HasSubstr("standard input:4: "));
      EXPECT_THAT(lines.bad.first[1], HasSubstr("standard input:6: "));
    });
  }
  WithInput("", [&] {
    const ExampleStreamLines lines = ReadAll(kCsv, options);
    EXPECT_TRUE(lines.status.ok()) << lines.status;
    EXPECT_TRUE(lines.numbers.empty());
  });
}

TEST(ExampleStreamTest, IdCanBeAFeatureOrTheLabelInEveryFormat) {
  const TempFolder folder;
  ExampleStream::Options options;
  options.path = folder.Write("csv", "n,y\n1,0\n2,1\n");
  options.id_column = "n";
  EXPECT_THAT(ReadAll(kCsv, options).ids, ElementsAre("1", "2"));
  options.id_column = "y";
  EXPECT_THAT(ReadAll(kCsv, options).ids, ElementsAre("0", "1"));
  options.path = folder.Write("svm", "1 qid:7 3:5\n0 3:6 qid:8\n");
  options.id_column = "qid";
  EXPECT_THAT(ReadAll("data { format: LIBSVM } features { name: '3' numeric {} }", options).ids,
              ElementsAre("7", "8"));
  options.path = folder.Write("slots", "1 5 1 1 2 8 9\n1 6 1 0 1 3\n");
  options.id_column = "u";
  EXPECT_THAT(ReadAll("data { format: MULTI_SLOT label { column: 'y' } slots { name: 'n' } "
                      "slots { name: 'y' dim: 1 } slots { name: 'u' } }"
                      "features { name: 'n' categorical {} }",
                      options)
                  .ids,
              ElementsAre("8 9", "3"));
}

TEST(ExampleStreamTest, FileThatChangesWhileItIsReadIsAnError) {
  const TempFolder folder;
  const std::string text = "n,y\n1,0\n2,1\n";
  const JobConfig job = JobForTest(kCsv);
  for (const bool opened : {false, true}) {
    const std::string path = folder.Write("f", text);
    const auto data = DataSource::Create(job.data(), SchemaForTest(job), Env::Real());
    ASSERT_TRUE(data.ok()) << data.status();
    (*data)->Expect(*DataFiles::SeeForPrediction({path}, Env::Real()));
    ExampleStream::Options options;
    options.path = path;
    if (!opened) folder.Write("f", text + text);
    const auto stream = (*data)->OpenStream(options);
    if (!opened) {
      EXPECT_EQ(stream.status().code(), absl::StatusCode::kFailedPrecondition);
      continue;
    }
    folder.Write("f", "n,y\n1,0\n");
    ExampleStream::Text read;
    const auto more = (*stream)->Read(1 << 20, &read);
    EXPECT_EQ(more.status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(ExampleStreamTest, ErrorOfALineWithoutLabelNamesTheSourceOfColumns) {
  const TempFolder folder;
  ExampleStream::Options options;
  options.path = folder.Write("f", "1,2,0\n1,2\n1\n");
  const ExampleStreamLines lines = ReadAll(
      "data { format: CSV label { column: 'y' } csv { columns: ['n', 'm', 'y'] } }"
      "features { name: 'n' numeric {} }",
      options);
  EXPECT_THAT(lines.numbers, ElementsAre(1));
  ASSERT_EQ(lines.bad.first.size(), 2u);
  EXPECT_THAT(lines.bad.first[0], AllOf(HasSubstr("data.csv.columns"), HasSubstr("\"y\"")));
  EXPECT_THAT(lines.bad.first[1], AllOf(HasSubstr("data.csv.columns"), Not(HasSubstr("\"y\""))));
}

TEST(ExampleStreamTest, FilesMayLackTheirLabelsAsAWhole) {
  const TempFolder folder;
  ExampleStream::Options options;
  options.path = folder.Write("f", "\n1,2\n3,4\n5,6,0\n7,8\n");
  const ExampleStreamLines lines = ReadAll(
      "data { format: CSV label { column: 'y' } csv { columns: ['n', 'y', 'm'] } }"
      "features { name: 'm' numeric {} }",
      options);
  EXPECT_THAT(lines.numbers, ElementsAre(2, 4, 8));
  ASSERT_EQ(lines.bad.first.size(), 1u);
  EXPECT_THAT(lines.bad.first[0], AllOf(HasSubstr("f:4: "), HasSubstr("without the label")));
}

TEST(ExampleStreamTest, AFirstLineThatLacksACellDoesNotDecideForAll) {
  const TempFolder folder;
  ExampleStream::Options options;
  options.path = folder.Write("f", "1,2\n3,0,4\n5,1,6\n7,0,8\n");
  const std::string job =
      "data { format: CSV label { column: 'y' } csv { columns: ['n', 'y', 'm'] } }"
      "features { name: 'm' numeric {} }";
  const ExampleStreamLines lines = ReadAll(job, options, 1 << 20);
  EXPECT_THAT(lines.numbers, ElementsAre(4, 6, 8));
  ASSERT_EQ(lines.bad.first.size(), 1u);
  EXPECT_THAT(lines.bad.first[0], HasSubstr("f:1: "));
}

TEST(ExampleStreamTest, LabelsWithWeightsAreToldFromFeaturesByTheWholeFile) {
  const TempFolder folder;
  ExampleStream::Options options;
  const std::string job = "data { format: LIBSVM } features { name: '1' numeric {} }";
  // Label 1 is below the first index of the second line.
  options.path = folder.Write("labels", "1:0.5 1:3 2:4\n1:0.5 2:4\n0:2 1:5\n1:7\n");
  EXPECT_THAT(ReadAll(job, options, 1 << 20).numbers, ElementsAre(3, 0, 5, 0));
  options.path = folder.Write("some", "1 1:3 2:4\n1:0.5 2:4\n");
  EXPECT_THAT(ReadAll(job, options, 1 << 20).numbers, ElementsAre(3, 0));
  options.path = folder.Write("none", "1:3 2:4\n2:4 3:1\n1:5\n");
  EXPECT_THAT(ReadAll(job, options, 1 << 20).numbers, ElementsAre(3, 0, 5));
}

TEST(ExampleStreamTest, LinesAreNumberedPastLineEndsInQuotes) {
  const TempFolder folder;
  ExampleStream::Options options;
  options.path = folder.Write("f", "1,\"a\n\nb\",0\nx,c,0\n");
  const ExampleStreamLines lines = ReadAll(
      "data { format: CSV label { column: 'y' } csv { columns: ['n', 'c', 'y'] } }"
      "features { name: 'n' numeric {} }",
      options);
  EXPECT_THAT(lines.numbers, ElementsAre(1));
  ASSERT_EQ(lines.bad.first.size(), 1u);
  EXPECT_THAT(lines.bad.first[0], HasSubstr("f:4: "));
}

TEST(ExampleStreamTest, LoneQuotesSpoilTheirOwnLineWithAndWithoutLabels) {
  const TempFolder folder;
  for (const char* label : {"1,", ""}) {
    for (const char* second : {"tall\"", "\"inch"}) {
      std::string text;
      for (int i = 0; i < 300; ++i)
        absl::StrAppend(&text, label, i, ",x,",
                        i == 10    ? "\"wide"
                        : i == 200 ? second
                                   : "ok",
                        "\n");
      const ExampleStreamLines lines = ReadAll(
          "data { format: CSV label { column: 'y' } csv { columns: ['y', 'n', 'b', 'c'] } }"
          "features { name: 'n' numeric {} } features { name: 'c' categorical {} }",
          {folder.Write("a", text), ""}, 500);
      ASSERT_TRUE(lines.status.ok()) << lines.status;
      EXPECT_EQ(lines.bad.count, *second == 't' ? 1u : 2u);
      EXPECT_EQ(lines.numbers.size() + lines.bad.count, 300u);
    }
  }
}

TEST(ExampleStreamTest, MissingIdColumnIsNamed) {
  const TempFolder folder;
  ExampleStream::Options options;
  options.path = folder.Write("csv", "n,y\n1,0\n");
  options.id_column = "user";
  const absl::Status status = ReadAll(kCsv, options).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"user\""));
}

}  // namespace
}  // namespace sluice
