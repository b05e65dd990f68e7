
#include <unistd.h>

#include <thread>

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

struct Lines {
  absl::Status status;
  std::vector<float> numbers;
  std::vector<std::string> ids;
  BadLines bad;
};

Lines ReadAll(const std::string& job_text, const ExampleStream::Options& options,
              uint64_t piece_bytes = 7) {
  const JobConfig job = JobForTest(job_text);
  const auto data = DataSource::Create(job.data(), SchemaForTest(job));
  EXPECT_TRUE(data.ok()) << data.status();
  Lines lines;
  auto stream = (*data)->OpenStream(options);
  lines.status = stream.status();
  while (lines.status.ok()) {
    ExampleStream::Piece piece;
    const auto more = (*stream)->Next(piece_bytes, &piece, &lines.bad);
    lines.status = more.status();
    if (!more.ok() || !*more) break;
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

TEST(ExampleStreamTest, EverySplitOfAFileGivesEachLineOnce) {
  const TempFolder folder;
  const std::string text = "# c\nn,y,id\n1,0,a\n2,1,b\n\n3,0,c\n";
  ExampleStream::Options options;
  options.path = folder.Write("f", text);
  options.id_column = "id";
  for (uint64_t cut = 0; cut <= text.size(); ++cut) {
    options.begin = 0, options.end = cut;
    Lines lines = ReadAll(kCsv, options);
    options.begin = cut, options.end = UINT64_MAX;
    const Lines rest = ReadAll(kCsv, options);
    lines.numbers.insert(lines.numbers.end(), rest.numbers.begin(), rest.numbers.end());
    lines.ids.insert(lines.ids.end(), rest.ids.begin(), rest.ids.end());
    EXPECT_THAT(lines.numbers, ElementsAre(1, 2, 3)) << cut;
    EXPECT_THAT(lines.ids, ElementsAre("a", "b", "c")) << cut;
  }
}

TEST(ExampleStreamTest, StandardInputIsReadPlainAndCompressed) {
  const std::string text = "# c\nn,id\n1,a\nx,b\n3,c\n4\n";
  ExampleStream::Options options;
  options.id_column = "id";
  for (const std::string& bytes : {text, Gzip(text), Zstd(text)}) {
    WithInput(bytes, [&] {
      const Lines lines = ReadAll(kCsv, options);
      EXPECT_TRUE(lines.status.ok()) << lines.status;
      EXPECT_THAT(lines.numbers, ElementsAre(1, 3));
      EXPECT_THAT(lines.ids, ElementsAre("a", "b", "c", ""));
      ASSERT_EQ(lines.bad.first.size(), 2u);
      EXPECT_THAT(lines.bad.first[0], HasSubstr("standard input:4: "));
      EXPECT_THAT(lines.bad.first[1], HasSubstr("standard input:6: "));
    });
  }
  WithInput("", [&] {
    const Lines lines = ReadAll(kCsv, options);
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
    const auto data = DataSource::Create(job.data(), SchemaForTest(job));
    ASSERT_TRUE(data.ok()) << data.status();
    (*data)->Expect(*DataFiles::SeeForPrediction({path}));
    ExampleStream::Options options;
    options.path = path;
    if (!opened) folder.Write("f", text + text);
    const auto stream = (*data)->OpenStream(options);
    if (!opened) {
      EXPECT_EQ(stream.status().code(), absl::StatusCode::kFailedPrecondition);
      continue;
    }
    folder.Write("f", "n,y\n1,0\n");
    ExampleStream::Piece piece;
    BadLines bad;
    const auto more = (*stream)->Next(1 << 20, &piece, &bad);
    EXPECT_EQ(more.status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(ExampleStreamTest, ErrorOfALineWithoutLabelNamesTheSourceOfColumns) {
  const TempFolder folder;
  ExampleStream::Options options;
  options.path = folder.Write("f", "1,2\n1\n1,2,0\n");
  const Lines lines = ReadAll(
      "data { format: CSV label { column: 'y' } csv { columns: ['n', 'm', 'y'] } }"
      "features { name: 'n' numeric {} }",
      options);
  EXPECT_THAT(lines.numbers, ElementsAre(1));
  ASSERT_EQ(lines.bad.first.size(), 2u);
  EXPECT_THAT(lines.bad.first[0], AllOf(HasSubstr("data.csv.columns"), HasSubstr("\"y\"")));
  EXPECT_THAT(lines.bad.first[1], AllOf(HasSubstr("data.csv.columns"), Not(HasSubstr("\"y\""))));
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
