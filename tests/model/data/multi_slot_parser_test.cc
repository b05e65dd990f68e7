#include "model/data/multi_slot_parser.h"

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
using ::testing::SizeIs;

constexpr char kSlots[] =
    "data { format: MULTI_SLOT label { column: 'click' } slots { name: 'click' dim: 1 } "
    "slots { name: 'words' } slots { name: 'dense' type: FLOAT dim: 2 } slots { name: 'unused' } "
    "slots { name: 'user' dim: 1 } } ";
constexpr char kFeatures[] =
    "features { name: 'words' categorical { pooling: MEAN } } features { name: 'n' numeric { "
    "column: 'dense.1' } } "
    "features { name: 'user' categorical {} }";

struct Parsed {
  Batch batch;
  BadLines bad;
};

Parsed Read(const std::string& text, const std::string& missing = "") {
  const TempFolder folder;
  JobConfig job = JobForTest(absl::StrCat(kSlots, kFeatures));
  if (!missing.empty()) job.mutable_data()->mutable_csv()->add_missing(missing);
  const auto schema = SchemaForTest(job);
  const auto data = DataSource::Create(job.data(), schema, Env::Real());
  EXPECT_TRUE(data.ok()) << data.status();
  Parsed parsed;
  parsed.batch = EmptyBatch(*schema);
  const std::string path = folder.Write("part-0", text);
  EXPECT_TRUE((*data)->ReadPiece(path, 0, UINT64_MAX, true, &parsed.batch, &parsed.bad).ok());
  return parsed;
}

// The keys of the same values in a comma-separated file.
Batch FromCells(const std::string& words, const std::string& user) {
  const auto schema =
      SchemaForTest(FeaturesForTest("features { name: 'words' categorical { multi_value_delimiter: "
                                    "' ' } } features { name: 'user' categorical {} }"));
  return ExampleForTest(*schema, {{"words", words}, {"user", user}});
}

TEST(MultiSlotParserTest, SlotsBecomeNumbersAndKeys) {
  const Parsed parsed = Read("1 1 3 17 4 99 2 0.5 -2.5 1 7 1 1234\n1 0 0 2 1 1e2 0 1 5\n\n");
  EXPECT_EQ(parsed.bad.count, 0) << parsed.bad.Describe();
  ASSERT_EQ(parsed.batch.n, 2);
  EXPECT_THAT(parsed.batch.label, ElementsAre(1, 0));
  EXPECT_THAT(parsed.batch.numeric, ElementsAre(-2.5, 100));
  const Batch first = FromCells("17 4 99", "1234");
  EXPECT_EQ(KeysOf(parsed.batch, 0, 0), KeysOf(first, 0, 0));
  EXPECT_THAT(KeysOf(parsed.batch, 0, 0), SizeIs(3));
  EXPECT_EQ(KeysOf(parsed.batch, 0, 1), KeysOf(first, 0, 1));
  EXPECT_THAT(KeysOf(parsed.batch, 1, 0), SizeIs(0));
}

TEST(MultiSlotParserTest, ValuesThatMeanMissingAreThoseOfFeatures) {
  const Parsed parsed = Read("1 0 1 17 2 0.5 0 1 7 1 0\n", "0");
  EXPECT_EQ(parsed.bad.count, 0) << parsed.bad.Describe();
  ASSERT_EQ(parsed.batch.n, 1);
  EXPECT_THAT(parsed.batch.label, ElementsAre(0));
  EXPECT_THAT(KeysOf(parsed.batch, 0, 0), SizeIs(1));
  EXPECT_THAT(KeysOf(parsed.batch, 0, 1), SizeIs(0));
}

TEST(MultiSlotParserTest, ErrorsDescribeMalformedLines) {
  const std::pair<const char*, const char*> cases[] = {
      {"1 1 3 17 4", "2 of its 3 values"},
      {"1 1", "\"words\""},
      {"1 1 x 17", "\"x\""},
      {"1 1 -1 17", "\"-1\""},
      {"2 1 0 0 2 1 1 0 1 5", "slot \"click\" has 2 values"},
      {"1 1 1 a7 2 1 1 0 1 5", "UINT64"},
      {"1 1 0 2 1 x 0 1 5", "\"x\""},
      {"1 1 0 2 1 1 0 1 5 6", "\"6\""},
      {"1 7 0 2 1 1 0 1 5", "0 or 1"},
      {"1 1 0 2 1 1 0 1\t5", "\"1\\t5\""},
      {"1 1 0 2 1 1 0 1 18446744073709551616", "too large"},
  };
  for (const auto& [line, problem] : cases) {
    const Parsed parsed = Read(std::string(line) + "\n1 0 0 2 1 1 0 1 5\n");
    EXPECT_EQ(parsed.batch.n, 1) << line;
    ASSERT_EQ(parsed.bad.count, 1) << line;
    EXPECT_THAT(parsed.bad.first[0], HasSubstr(problem));
  }
}

TEST(MultiSlotParserTest, ConfigurationsThatDoNotMatchAreRefused) {
  const auto error = [](const std::string& features) {
    return CreateError(JobForTest(kSlots + features));
  };
  EXPECT_THAT(error("features { name: 'words' categorical { multi_value_delimiter: '|' } }"),
              HasSubstr("multi_value_delimiter"));
  EXPECT_THAT(
      error("features { name: 'words' categorical {} } features { name: 'user' categorical {} } "
            "features { name: 'c' cross { features: ['words', 'user'] } }"),
      HasSubstr("dim: 1"));
  const JobConfig job =
      JobForTest(absl::StrCat(kSlots, "features { name: 'absent' categorical {} }"));
  EXPECT_THAT(
      std::string(
          DataSource::Create(job.data(), SchemaForTest(job), Env::Real()).status().message()),
      AllOf(HasSubstr("data.slots"), HasSubstr("\"absent\"")));
}

TEST(MultiSlotParserTest, TheLargestUint64IsAValue) {
  EXPECT_EQ(Read("1 1 0 2 1 1 0 1 18446744073709551615\n").batch.n, 1);
  EXPECT_EQ(Read("1 1 0 2 1 1 0 1 00018446744073709551615\n").batch.n, 1);
}

}  // namespace
}  // namespace sluice
