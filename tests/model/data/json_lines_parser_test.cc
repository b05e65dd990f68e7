#include "model/data/json_lines_parser.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "model/data/data_check.h"
#include "model/data/data_source.h"
#include "model/data/file_columns.h"
#include "model/data/text_reader.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The cells of a line as text, "-" for a missing one, or the error.
std::vector<std::string> CellsOf(std::string line, const std::vector<std::string>& columns) {
  JsonLinesParser parser(columns);
  const absl::Status parsed = parser.Parse(line.data(), line.size());
  if (!parsed.ok()) return {std::string(parsed.message())};
  std::vector<std::string> cells;
  for (size_t c = 0; c < columns.size(); ++c) {
    const Cell& cell = parser.cells().typed[c];
    if (cell.kind() == Cell::Kind::kMissing) {
      cells.push_back("-");
    } else if (cell.kind() == Cell::Kind::kList) {
      cells.emplace_back();
      for (size_t i = 0; i < cell.size(); ++i) {
        NumberText memory;
        absl::StrAppend(&cells.back(), i == 0 ? "" : "|",
                        std::string(TextOf(cell.values()[i], &memory)));
      }
    } else {
      cells.push_back(parser.TextAt(c));
    }
  }
  return cells;
}

TEST(JsonLinesParserTest, ValuesKeepTheirTypes) {
  EXPECT_THAT(CellsOf(R"({"y":1,"n":0.25,"t":"a\"\u00e9","b":true,"x":null,"e":-3e2})",
                      {"y", "n", "t", "b", "x", "e", "z"}),
              ElementsAre("1", "0.25", "a\"\xC3\xA9", "1", "-", "-300", "-"));
  EXPECT_THAT(CellsOf(R"({"a":-9223372036854775808,"b":18446744073709551615,"c":9007199254740993,)"
                      R"("d":123456789012345678901234567890,"e":-0})",
                      {"a", "b", "c", "d", "e"}),
              ElementsAre("-9223372036854775808", "18446744073709551615", "9007199254740993",
                          "123456789012345678901234567890", "0"));
  EXPECT_THAT(CellsOf(R"({ "tags" : ["p", null, 7, true], "none": [] })", {"tags", "none"}),
              ElementsAre("p||7|1", "-"));
}

TEST(JsonLinesParserTest, ObjectsWithinObjectsAreColumnsWithDots) {
  EXPECT_THAT(CellsOf(R"({"u":{"id":5,"geo":{"city":"X","n":{"deep":1}}},"v.w":2})",
                      {"u.id", "u.geo.city", "v.w", "u.geo.none"}),
              ElementsAre("5", "X", "2", "-"));
  EXPECT_THAT(CellsOf(R"({"u":{"id":5}})", {"u"}), ElementsAre(HasSubstr("\"u.field\"")));
  EXPECT_THAT(CellsOf(R"({"u":[[1]]})", {"u"}), ElementsAre(HasSubstr("array of arrays")));
  EXPECT_THAT(CellsOf(R"({"u":[[1]],"y":1})", {"y"}), ElementsAre("1")) << "u is not needed";
}

TEST(JsonLinesParserTest, AnythingButOneObjectIsRefused) {
  for (const char* line : {"[1]",         "{",
                           "{\"y\":1",    "{\"y\":}",
                           "{\"y\" 1}",   "{\"y\":1} {\"y\":2}",
                           "{\"y\":1}x",  "{\"y\":01}",
                           "{\"y\":tru}", "{\"y\":nan}",
                           "{\"y\":1,}",  "{y:1}",
                           "1",           "\"a\"",
                           "{\"y\":[1}",  "{\"y\":\"a}",
                           "{\"y\":-}",   "{\"y\":1e}",
                           "\xff",        "{\"y\":\"\xff\"}"}) {
    EXPECT_EQ(CellsOf(line, {"y"}).size(), 1u);
    EXPECT_THAT(CellsOf(line, {"y"})[0], HasSubstr("line")) << line;
  }
  EXPECT_THAT(CellsOf(R"({"y":1,"y":2})", {"y"}), ElementsAre(HasSubstr("twice")));
}

TEST(JsonLinesParserTest, ColumnsAreFoundInTheirOrder) {
  std::vector<std::string> found;
  ASSERT_TRUE(
      JsonLinesParser::FindColumns(R"({"b":1,"a":{"y":2,"x":[1]},"c":null})",
                                   [&found](const std::string& name) { found.push_back(name); })
          .ok());
  EXPECT_THAT(found, ElementsAre("b", "a.y", "a.x", "c"));
}

constexpr char kJob[] =
    "data { format: JSON_LINES label { column: 'y' } } "
    "features { name: 'n' numeric { column: 'u.n' } } "
    "features { name: 'tags' categorical { pooling: MEAN } } features { name: 'id' categorical {} "
    "}";

struct JsonSource {
  JobConfig job;
  std::shared_ptr<const FeatureSchema> schema;
  std::unique_ptr<DataSource> data;
};

JsonSource SourceOfJson(const std::string& text = kJob) {
  JsonSource source{JobForTest(text), nullptr, nullptr};
  source.schema = SchemaForTest(source.job);
  auto data = DataSource::Create(source.job.data(), source.schema, Env::Real());
  EXPECT_TRUE(data.ok()) << data.status();
  if (data.ok()) source.data = std::move(*data);
  return source;
}

TEST(JsonLinesTest, ExamplesAreThoseOfTheSameValuesInCsv) {
  const TempFolder folder;
  const JsonSource source = SourceOfJson();
  const std::string text =
      "{\"y\":1,\"u\":{\"n\":2.5},\"tags\":[\"a\",\"b\"],\"id\":12}\n\n"
      "{\"id\":\"12\",\"y\":false,\"u\":{\"n\":3}}\nnot json\n";
  for (const std::string& path :
       {folder.Write("a.jsonl", text), folder.Write("a.jsonl.gz", Gzip(text))}) {
    Batch batch = EmptyBatch(*source.schema);
    BadLines bad;
    ASSERT_TRUE(source.data->CheckColumns(path, true).ok());
    ASSERT_TRUE(source.data->ReadPiece(path, 0, UINT64_MAX, true, &batch, &bad).ok());
    EXPECT_EQ(bad.count, 1u);
    EXPECT_THAT(bad.Describe(), HasSubstr(path + ":4"));
    EXPECT_THAT(batch.label, ElementsAre(1, 0));
    EXPECT_THAT(batch.numeric, ElementsAre(2.5, 3));
    const auto csv = SchemaForTest(
        FeaturesForTest("features { name: 'tags' categorical { multi_value_delimiter: '|' } } "
                        "features { name: 'id' categorical {} }"));
    const Batch first = ExampleForTest(*csv, {{"tags", "a|b"}, {"id", "12"}});
    EXPECT_EQ(KeysOf(batch, 0, 0), KeysOf(first, 0, 0));
    EXPECT_EQ(KeysOf(batch, 0, 1), KeysOf(first, 0, 1));
    EXPECT_THAT(KeysOf(batch, 1, 0), IsEmpty());
    EXPECT_EQ(KeysOf(batch, 1, 1), KeysOf(first, 0, 1)) << "the number 12 and the text 12 are one";
  }
}

TEST(JsonLinesTest, OtherFormatsNameJsonLinesForJson) {
  const TempFolder folder;
  const std::string path = folder.Write("a", "{\"y\":1}\n{\"y\":0}\n");
  EXPECT_THAT(std::string(TextReader::Open(path, Env::Real()).status().message()),
              HasSubstr("JSON_LINES"));
  EXPECT_TRUE(TextReader::Open(path, Env::Real(), /*json=*/true).ok());
}

TEST(JsonLinesTest, PredictionTakesLinesWithoutALabelAndKeepsTheirIds) {
  const TempFolder folder;
  const JsonSource source = SourceOfJson();
  const std::string path = folder.Write("a", "{\"id\":7,\"row\":\"r1\"}\n{\"row\":2.5,\"y\":1}\n");
  auto stream = source.data->OpenStream({path, "row"});
  ASSERT_TRUE(stream.ok()) << stream.status();
  ExampleStream::Text text;
  ExampleStream::Piece piece;
  BadLines bad;
  ASSERT_TRUE((*stream)->Read(1 << 20, &text).value_or(false));
  ASSERT_TRUE((*stream)->NewParser()->Parse(&text, &piece, &bad).ok());
  EXPECT_EQ(bad.count, 0u) << bad.Describe();
  EXPECT_THAT(piece.ids, ElementsAre("r1", "2.5"));
  EXPECT_THAT(piece.examples.label, ElementsAre(0, 1));
}

TEST(JsonLinesTest, TheDryRunNamesAColumnThatNoLineHas) {
  const TempFolder folder;
  JobConfig job = JobForTest(kJob);
  job.mutable_data()->add_train_files(
      folder.Write("a",
                   "{\"y\":1,\"u\":{\"n\":1},\"tag\":[\"a\"],\"id\":1}\n"
                   "{\"y\":0,\"tag\":[\"a\"],\"id\":1}\n"));
  const DataCheckReport report = CheckData(job, SchemaForTest(job), Env::Real(), Clock::Real());
  EXPECT_THAT(report.errors,
              ElementsAre(AllOf(HasSubstr("\"tags\""), HasSubstr("did you mean 'tag'?"))));
  EXPECT_THAT(*ColumnsOfData(job.data()), ElementsAre("y", "u.n", "tag", "id"));
}

TEST(JsonLinesTest, TheDryRunOnlyWarnsOfARareColumn) {
  const TempFolder folder;
  JobConfig job = JobForTest(
      "data { format: JSON_LINES label { column: 'y' } } features { name: 'rare' categorical {} } "
      "features { name: 'none' categorical {} } features { name: 'taq' categorical {} }");
  std::string text;
  for (int i = 0; i < 20; ++i)
    absl::StrAppend(&text, "{\"y\":", i % 2, ",\"tag\":1,\"none\":null",
                    i == 19 ? ",\"rare\":1,\"none\":1,\"taq\":2}\n" : "}\n");
  // Twice the same key makes a bad line, so the last one names it once.
  text.replace(text.rfind(",\"none\":null"), 12, "");
  job.mutable_data()->add_train_files(folder.Write("a", text));
  DataCheckOptions options;
  options.lines = 10;
  const DataCheckReport some =
      CheckData(job, SchemaForTest(job), Env::Real(), Clock::Real(), options);
  // The names are those of the first thousand lines, so 'taq' is no misspelling.
  EXPECT_THAT(some.errors, IsEmpty());
  EXPECT_THAT(some.warnings,
              ElementsAre(AllOf(HasSubstr("a value of \"rare\""), HasSubstr("2 other columns"))));
  EXPECT_THAT(CheckData(job, SchemaForTest(job), Env::Real(), Clock::Real()).warnings, IsEmpty());
}

}  // namespace
}  // namespace sluice
