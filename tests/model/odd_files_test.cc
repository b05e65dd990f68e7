// Reads small files in the shapes in which people meet them (tests/data/files), whole and cut into
// many pieces. Runs in the root of the tree.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/config/job_config.h"
#include "gmock/gmock.h"
#include "model/built_in_models.h"
#include "model/data/data_source.h"
#include "model/data/expand_files.h"
#include "model/data/file_columns.h"
#include "model/features/data_summary.h"
#include "model/model_spec.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFolder[] = "tests/data/files/";

// The outcome of reading a job's training data: an error, or examples.
struct OddOutcome {
  std::string error;
  Batch batch;
  std::vector<std::string> warnings;
  std::shared_ptr<const FeatureSchema> schema;
};

using Options = std::vector<std::pair<std::string, std::string>>;

// Reads a file in pieces of `piece_bytes`, which changes nothing. The first malformed line is an
// error.
absl::Status ReadOddFile(const DataSource& data, const FeatureSchema& schema,
                         const std::string& path, uint64_t piece_bytes, Batch* all,
                         DataCounts* counts) {
  absl::Status status = data.CheckColumns(path, /*need_label=*/true);
  if (!status.ok()) return status;
  const auto bytes = data.TextBytes(path);
  if (!bytes.ok()) return bytes.status();
  const auto lines = data.CountLines(path, 0, *bytes, piece_bytes);
  if (!lines.ok()) return lines.status();
  for (uint64_t begin = 0, piece = 0; begin < *bytes; begin += piece_bytes, ++piece) {
    Batch batch;
    batch.Reset(schema.numerics().size(), schema.slots().size());
    batch.counts = counts;
    BadLines bad;
    status = data.ReadPiece(path, begin, std::min(begin + piece_bytes, *bytes), true, &batch, &bad);
    if (!status.ok()) return status;
    if (bad.count > 0) return absl::InvalidArgumentError(bad.Describe());
    EXPECT_EQ(batch.n, piece < lines->size() ? (*lines)[piece] : 0) << path << " at " << begin;
    for (size_t i = 0; i < batch.n; ++i) {
      status = all->Append(batch, i, 0);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

OddOutcome ReadOddJob(const std::string& file, const Options& options, uint64_t piece_bytes) {
  OddOutcome outcome;
  std::vector<ConfigOverride> overrides;
  for (const auto& [path, value] : options) overrides.push_back({path, value, "--set"});
  const auto fail = [&](const absl::Status& status) {
    outcome.error = std::string(status.message());
    return std::move(outcome);
  };
  const auto job = LoadJobConfig(file, overrides, BuiltInSpecs(), nullptr, &ColumnsOfData);
  if (!job.ok()) return fail(job.status());
  const auto model = ModelSpec::Create(*job, BuiltInSpecs());
  if (!model.ok()) return fail(model.status());
  outcome.schema = (*model)->schema();
  const auto data = DataSource::Create(job->data(), outcome.schema, Env::Real());
  if (!data.ok()) return fail(data.status());
  const auto files = ExpandFiles(job->data().train_files(), Env::Real());
  if (!files.ok()) return fail(files.status());
  DataCounts counts;
  outcome.batch.Reset(outcome.schema->numerics().size(), outcome.schema->slots().size());
  for (const std::string& path : *files) {
    const absl::Status read =
        ReadOddFile(**data, *outcome.schema, path, piece_bytes, &outcome.batch, &counts);
    if (!read.ok()) return fail(read);
  }
  outcome.warnings = WarningsOfTraining(*job, outcome.schema->Summarize(counts));
  return outcome;
}

// The examples of a job of tests/data/files. However the text is cut, they are the same.
OddOutcome ReadOdd(const std::string& job, const Options& options = {}) {
  const std::string file = absl::StrCat(kFolder, job, ".textproto");
  OddOutcome whole = ReadOddJob(file, options, uint64_t{1} << 40);
  for (const uint64_t piece_bytes : {1, 7, 1000}) {
    // Each byte of a large file as a piece would only take time.
    if (piece_bytes == 1 && whole.batch.n > 100) continue;
    const OddOutcome cut = ReadOddJob(file, options, piece_bytes);
    EXPECT_EQ(cut.error.empty(), whole.error.empty()) << job << " " << cut.error;
    // How much has been read before an error depends on the pieces.
    if (!whole.error.empty()) continue;
    EXPECT_EQ(cut.batch.label, whole.batch.label) << job << " in pieces of " << piece_bytes;
    EXPECT_EQ(cut.batch.keys, whole.batch.keys) << job << " in pieces of " << piece_bytes;
    EXPECT_EQ(cut.batch.numeric, whole.batch.numeric) << job << " in pieces of " << piece_bytes;
  }
  return whole;
}

std::string OddError(const std::string& job, const Options& options = {}) {
  const OddOutcome outcome = ReadOdd(job, options);
  EXPECT_NE(outcome.error, "") << job;
  return outcome.error;
}

// The batch of a job that must be read, with this number of examples.
OddOutcome OddExamples(const std::string& job, size_t n, const Options& options = {}) {
  OddOutcome outcome = ReadOdd(job, options);
  EXPECT_EQ(outcome.error, "") << job;
  EXPECT_EQ(outcome.batch.n, n) << job;
  return outcome;
}

// The same job on its data after a change.
OddOutcome OddChanged(const std::string& job, const std::string& data, const std::string& name,
                      const std::function<std::string(const std::string&)>& change,
                      const Options& options = {}) {
  const TempFolder folder;
  const std::string from = kFolder + job.substr(0, job.rfind('/') + 1);
  std::stringstream text;
  text << std::ifstream(from + data, std::ios::binary).rdbuf();
  folder.Write(name, change(text.str()));
  Options all = options;
  all.emplace_back("data.train_files", folder.Path(name));
  return ReadOddJob(absl::StrCat(kFolder, job, ".textproto"), all, uint64_t{1} << 40);
}

// Changes text by replacing.
std::function<std::string(const std::string&)> Replacing(const std::string& from,
                                                         const std::string& to) {
  return [from, to](const std::string& text) { return absl::StrReplaceAll(text, {{from, to}}); };
}

void ExpectSameExamples(const OddOutcome& a, const OddOutcome& b) {
  EXPECT_EQ(a.error, b.error);
  EXPECT_EQ(a.batch.label, b.batch.label);
  EXPECT_EQ(a.batch.weight, b.batch.weight);
  EXPECT_EQ(a.batch.numeric, b.batch.numeric);
  EXPECT_EQ(a.batch.key_offsets, b.batch.key_offsets);
  EXPECT_EQ(a.batch.keys, b.batch.keys);
}

double SumOf(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

TEST(OddFilesTest, RepeatedHeadersAndByteOrderMarksAreNoData) {
  EXPECT_THAT(OddExamples("01_header/j_middle_pos", 60).warnings,
              ElementsAre(HasSubstr("header lines in the middle of files")));
  ExpectSameExamples(
      OddExamples("02_bom/j_bom_mid", 60),
      OddChanged("02_bom/j_bom_mid", "cc.csv", "a.csv", Replacing("\xEF\xBB\xBF", "")));
  EXPECT_THAT(OddError("02_bom/j_utf16"), AllOf(HasSubstr("UTF-16"), HasSubstr("iconv")));
  EXPECT_THAT(OddError("03_eol/j_cr"), AllOf(HasSubstr("CR alone"), HasSubstr("tr '\\r' '\\n'")));
}

TEST(OddFilesTest, QuotedCellsMayHoldLineEndsAndDelimiters) {
  const OddOutcome lines = OddExamples("04_quoted/j_nl", 60);
  const OddOutcome blanks =
      OddChanged("04_quoted/j_nl", "nl.csv", "a.csv", Replacing("line1\n", "line1 "));
  EXPECT_EQ(lines.batch.label, blanks.batch.label);
  EXPECT_EQ(lines.batch.numeric, blanks.batch.numeric);
  EXPECT_EQ(lines.batch.key_offsets, blanks.batch.key_offsets);
  OddExamples("30_extra/quoted_nl_delim", 60);
}

TEST(OddFilesTest, OtherQuotesAreReadByOptionsThatTheErrorNames) {
  const auto unquoted = [](const char* job, const char* data) {
    return OddChanged(job, data, "a.csv", [](const std::string& text) {
      return absl::StrReplaceAll(text, {{"x\\, y", "\"x, y"}, {"'x, y", "\"x, y"}, {"',", "\","}});
    });
  };
  EXPECT_THAT(OddError("04_quoted/j_backslash"), HasSubstr("data.csv.escape"));
  const OddOutcome escaped = OddExamples("04_quoted/j_backslash", 60, {{"data.csv.escape", "\\"}});
  EXPECT_THAT(OddError("04_quoted/j_singlequote"), HasSubstr("data.csv.quote"));
  const OddOutcome single = OddExamples("04_quoted/j_singlequote", 60, {{"data.csv.quote", "'"}});
  ExpectSameExamples(single, unquoted("04_quoted/j_singlequote", "sq.csv"));
  ExpectSameExamples(single, escaped);
  EXPECT_THAT(OddError("04_quoted/j_tsv_lonequote"), HasSubstr("data.csv.quote: \"\""));
  OddExamples("04_quoted/j_tsv_lonequote", 60, {{"data.csv.quote", ""}});
}

TEST(OddFilesTest, NumbersAreReadOrTheirOptionIsNamed) {
  EXPECT_THAT(OddError("06_numbers/j_NA"), HasSubstr("data.csv.missing: \"NA\""));
  OddExamples("06_numbers/j_NA", 60, {{"data.csv.missing", "NA"}});
  ExpectSameExamples(
      OddExamples("06_numbers/j_1e-400", 60),
      OddChanged("06_numbers/j_1e-400", "v_1e-400.csv", "a.csv", Replacing("1e-400", "0")));
  EXPECT_THAT(OddError("06_numbers/j_deccomma"), HasSubstr("data.csv.decimal_mark"));
  ExpectSameExamples(
      OddExamples("06_numbers/j_deccomma", 60, {{"data.csv.decimal_mark", ","}}),
      OddChanged("06_numbers/j_deccomma", "v_deccomma.csv", "a.csv", Replacing("\"0,5\"", "0.5")));
  OddExamples("06_numbers/j_1e38", 60);
}

TEST(OddFilesTest, LibsvmIsReadAsOthersReadIt) {
  const OddOutcome weighted = OddExamples("08_libsvm/j_weight", 40);
  EXPECT_THAT(std::vector<float>(weighted.batch.weight.begin(), weighted.batch.weight.begin() + 5),
              ElementsAre(2, 2, 2, 2, 0.5));
  const OddOutcome zeros = OddExamples("08_libsvm/j_lead0", 40);
  ExpectSameExamples(zeros,
                     OddChanged("08_libsvm/j_lead0", "lead0.svm", "a.svm", Replacing(" 0", " ")));
  EXPECT_GT(SumOf(zeros.batch.numeric), 1);
  EXPECT_THAT(OddError("08_libsvm/j_name"), AllOf(HasSubstr("\"f1\""), HasSubstr("no index")));
  EXPECT_THAT(OddError("08_libsvm/j_neg"), HasSubstr("negative index"));
  const OddOutcome signs = OddExamples("08_libsvm/k_pmpos", 40);
  EXPECT_GT(SumOf(signs.batch.label), 1);
  EXPECT_LT(SumOf(signs.batch.label), 40);
  EXPECT_THAT(OddError("08_libsvm/k_nanmissing", {{"data.csv.missing", "?"}}), HasSubstr("nan"));
  OddExamples("08_libsvm/k_nanmissing", 40);
}

TEST(OddFilesTest, CompressedFilesAreReadOrNamed) {
  ExpectSameExamples(OddExamples("09_compressed/j_skip.csv.zst", 60),
                     OddExamples("09_compressed/j_zeros.csv.gz", 60));
  EXPECT_THAT(OddError("09_compressed/j_a.csv.xz"), HasSubstr("compressed with xz"));
  EXPECT_THAT(OddError("09_compressed/j_a.csv.zip"), HasSubstr("zip archive"));
  EXPECT_THAT(OddError("09_compressed/j_a.tar.gz"), HasSubstr("tar archive"));
}

TEST(OddFilesTest, CellsOfSeveralValuesAreCutAsPeopleWriteThem) {
  const OddOutcome weights =
      OddExamples("11_separator/j_kv", 60, {{"features[3].categorical.weight_delimiter", ":"}});
  const auto value_of = [](const std::string& text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ':') {
        i += 3;  // ":0.1"
      } else {
        plain += text[i];
      }
    }
    return plain;
  };
  const OddOutcome plain = OddChanged("11_separator/j_kv", "kv.csv", "a.csv", value_of,
                                      {{"features[3].categorical.weight_delimiter", ":"}});
  EXPECT_EQ(weights.batch.keys, plain.batch.keys);
  EXPECT_EQ(weights.batch.key_weights.size(), weights.batch.keys.size());
  EXPECT_FLOAT_EQ(weights.batch.key_weights[2], 0.1f);

  ExpectSameExamples(
      OddExamples("11_separator/j_spparts", 60),
      OddChanged("11_separator/j_spparts", "spparts.csv", "a.csv", Replacing(" | ", "|")));
  ExpectSameExamples(
      OddExamples("11_separator/j_pylist", 60),
      OddChanged("11_separator/j_pylist", "pylist.csv", "a.csv", [](const std::string& text) {
        return absl::StrReplaceAll(text, {{"['", ""}, {"']", ""}, {"', '", ","}});
      }));
  EXPECT_THAT(OddError("11_separator/j_multispace"), HasSubstr("data.csv.merge_delimiters"));
  OddExamples("11_separator/j_multispace", 60, {{"data.csv.merge_delimiters", "true"}});
  ExpectSameExamples(OddExamples("13_multivalue_blanks/j_b_commaspace", 60),
                     OddChanged("13_multivalue_blanks/j_b_commaspace", "b_commaspace.tsv", "a.tsv",
                                Replacing(", ", ",")));
  ExpectSameExamples(OddExamples("13_multivalue_blanks/m", 60),
                     OddChanged("13_multivalue_blanks/m", "m.csv", "a.csv", Replacing("|?", "")));
}

TEST(OddFilesTest, LabelsWeightsAndIdsAreComparedByValue) {
  const OddOutcome labels = OddExamples("14_labels/j_pos_float", 60);
  EXPECT_GT(SumOf(labels.batch.label), 1);
  OddExamples("15_weights/j_allzero", 60);  // the job then fails: nothing was learned
  const OddOutcome ids = OddExamples("17_ids/j_ms_lead0", 20);
  EXPECT_THAT(ids.batch.keys, Each(ids.batch.keys[0]));
}

TEST(OddFilesTest, DatesAreReadInTheFormOfTheUser) {
  EXPECT_THAT(OddError("shapes/avazu/job1"),
              AllOf(HasSubstr("date_format"), HasSubstr("%y%m%d%H")));
  OddExamples("shapes/avazu/job1", 300, {{"features[0].categorical.date_format", "%y%m%d%H"}});
  EXPECT_THAT(OddError("shapes/movielens/job3"),
              AllOf(HasSubstr("date_format"), HasSubstr("EPOCH_S")));
  OddExamples("shapes/movielens/job3", 300, {{"features[3].categorical.date_format", "EPOCH_S"}});
}

TEST(OddFilesTest, DelimitersMayHaveSeveralCharacters) {
  ExpectSameExamples(OddExamples("shapes/movielens/job1", 300),
                     OddChanged("shapes/movielens/job1", "ratings.dat", "a.csv",
                                Replacing("::", ","), {{"data.csv.delimiter", ","}}));
}

TEST(OddFilesTest, PlacesAndFormsThatCannotBeReadAreNamed) {
  EXPECT_THAT(OddError("30_extra/url_s3"),
              AllOf(HasSubstr("s3://bucket/a.csv"), HasSubstr("places with URLs")));
  OddExamples("30_extra/order", 60);
  EXPECT_THAT(OddError("30_extra/order", {{"output_dir", "gs://bucket/out"}}),
              HasSubstr("output_dir: 'gs://bucket/out' is a URL"));
  EXPECT_THAT(OddError("30_extra/parquet"),
              AllOf(HasSubstr("Parquet"), HasSubstr("data.format: PARQUET")));
  EXPECT_THAT(OddError("30_extra/lackcol"), AllOf(HasSubstr("w3.csv"), HasSubstr("\"tags\"")));
  OddExamples("20_paths/g[1]/g", 60);
}

TEST(OddFilesTest, OtherFormatsAreNamedAndRead) {
  EXPECT_THAT(OddError("08_libsvm/j_ffm"), HasSubstr("data.format: LIBFFM"));
  for (const char* job : {"08_libsvm/k_ffmcat", "shapes/ffm/j4"}) {
    EXPECT_THAT(OddError(job), HasSubstr("data.format: LIBFFM"));
    const OddOutcome fields =
        OddExamples(job, job[0] == '0' ? 40 : 200, {{"data.format", "LIBFFM"}});
    EXPECT_EQ(fields.batch.keys.size(), fields.batch.n * fields.schema->slots().size());
    EXPECT_EQ(fields.batch.key_weights.size(), fields.batch.keys.size());
    EXPECT_GT(SumOf(fields.batch.label), 1);
  }
  const OddOutcome fields = OddExamples("08_libsvm/k_ffmcat", 40, {{"data.format", "LIBFFM"}});
  EXPECT_THAT(
      std::vector<float>(fields.batch.key_weights.begin(), fields.batch.key_weights.begin() + 4),
      ElementsAre(1, 0.5f, 1, 0.2f));
  EXPECT_EQ(fields.batch.keys[0], fields.batch.keys[4]) << "lines alternate";
  const Options indices = {{"features", "[{name: 'indices' categorical {}}]"}};
  EXPECT_THAT(OddError("08_libsvm/k_million"), HasSubstr("name: \"indices\""));
  EXPECT_EQ(OddExamples("08_libsvm/k_million", 60, indices).batch.keys.size(), 60u * 15);
  EXPECT_THAT(OddError("shapes/kdd12/j2"), HasSubstr("name: \"indices\""));
  EXPECT_EQ(OddExamples("shapes/kdd12/j2", 200, indices).batch.keys.size(), 200u * 11);
  EXPECT_THAT(OddError("shapes/multislot/job2"), HasSubstr("data.format: SLOT_VALUE"));
  const OddOutcome slots = OddExamples("shapes/multislot/job2", 50,
                                       {{"data.format", "SLOT_VALUE"},
                                        {"data.slots[1].name", "dense_feature"},
                                        {"features[0].numeric.column", "dense_feature.{0..12}"}});
  EXPECT_EQ(slots.batch.keys.size(), 50u * 26);
  EXPECT_FLOAT_EQ(slots.batch.numeric[0], 0.9005f);
}

// Scores are of files as they are published: without the label.
TEST(OddFilesTest, LinesWithoutALabelAreReadForPrediction) {
  const auto job =
      LoadJobConfig("configs/criteo_wide_deep.textproto",
                    {{"data.train_files", "x", "--set"}, {"data.eval_files", "", "--set"}},
                    BuiltInSpecs(), nullptr, &ColumnsOfData);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto model = ModelSpec::Create(*job, BuiltInSpecs());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto data = DataSource::Create(job->data(), (*model)->schema(), Env::Real());
  ASSERT_TRUE(data.ok()) << data.status();
  const auto read = [&](const std::string& path) {
    ExampleStream::Piece piece;
    ExampleStream::Text text;
    BadLines bad;
    auto stream = (*data)->OpenStream({path, ""});
    EXPECT_TRUE(stream.ok()) << stream.status();
    EXPECT_TRUE((*stream)->Read(1 << 20, &text).value_or(false));
    EXPECT_TRUE((*stream)->NewParser()->Parse(&text, &piece, &bad).ok());
    EXPECT_EQ(bad.count, 0u) << bad.Describe();
    return piece;
  };
  const std::string published = absl::StrCat(kFolder, "shapes/criteo_test.txt");
  const ExampleStream::Piece scored = read(published);
  EXPECT_EQ(scored.examples.n, 40u);
  // The same lines with a label in front.
  const TempFolder folder;
  std::ifstream in(published);
  std::string labelled, line;
  while (std::getline(in, line)) labelled += "0\t" + line + "\n";
  const ExampleStream::Piece with_label = read(folder.Write("a.tsv", labelled));
  EXPECT_EQ(scored.examples.keys, with_label.examples.keys);
  EXPECT_EQ(scored.examples.numeric, with_label.examples.numeric);
}

}  // namespace
}  // namespace sluice
