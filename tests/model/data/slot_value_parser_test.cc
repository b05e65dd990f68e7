#include "model/data/slot_value_parser.h"

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
using ::testing::IsEmpty;

constexpr char kSlotValueJob[] =
    "data { format: SLOT_VALUE label { column: 'click' } slots { name: 'click' } "
    "slots { name: 'dense' type: FLOAT dim: 2 } slots { name: '6' } slots { name: 'unused' } } "
    "features { name: 'n' numeric { column: 'dense.1' default_value: -1 } } "
    "features { name: 'six' categorical { column: '6' } }";

struct SlotsRead {
  Batch batch;
  BadLines bad;
};

SlotsRead ReadSlots(const std::string& text) {
  const TempFolder folder;
  const JobConfig job = JobForTest(kSlotValueJob);
  const auto schema = SchemaForTest(job);
  const auto data = DataSource::Create(job.data(), schema, Env::Real());
  EXPECT_TRUE(data.ok()) << data.status();
  SlotsRead read{EmptyBatch(*schema), {}};
  EXPECT_TRUE((*data)
                  ->ReadPiece(folder.Write("a", text), 0, UINT64_MAX, true, &read.batch, &read.bad)
                  .ok());
  return read;
}

TEST(SlotValueParserTest, WordsOfASlotAreItsValuesInAnyOrder) {
  const SlotsRead read = ReadSlots(
      "click:1 dense:0.5 dense:-2 6:17 6:4 unused:3 other:text\n"
      "6:4 click:0 6:017\n"
      "click:1\n");
  EXPECT_EQ(read.bad.count, 0u) << read.bad.Describe();
  EXPECT_THAT(read.batch.label, ElementsAre(1, 0, 1));
  EXPECT_THAT(read.batch.numeric, ElementsAre(-2, -1, -1));
  const std::vector<uint64_t> first = KeysOf(read.batch, 0, 0);
  EXPECT_EQ(first.size(), 2u);
  EXPECT_THAT(KeysOf(read.batch, 1, 0), ElementsAre(first[1], first[0])) << "017 is 17";
  EXPECT_THAT(KeysOf(read.batch, 2, 0), IsEmpty());
}

TEST(SlotValueParserTest, WrongWordsAreNamed) {
  const auto error = [](const std::string& line) {
    const SlotsRead read = ReadSlots(line + "\n");
    EXPECT_EQ(read.bad.count, 1u) << line;
    EXPECT_EQ(read.batch.n, 0u);
    return read.bad.Describe();
  };
  EXPECT_THAT(error("1 1 2 0.5 -2"), AllOf(HasSubstr("slot:value"), HasSubstr("MULTI_SLOT")));
  EXPECT_THAT(error("click:1 dense:0.5"), AllOf(HasSubstr("\"dense\""), HasSubstr("dim is 2")));
  EXPECT_THAT(error("click:1 6:a"), AllOf(HasSubstr("\"6\""), HasSubstr("UINT64")));
  EXPECT_THAT(error("click:1 6:-1"), HasSubstr("UINT64"));
  EXPECT_THAT(error("click:1 6:18446744073709551616"), HasSubstr("UINT64"));
  EXPECT_THAT(error("click:1 6:"), HasSubstr("UINT64"));
  EXPECT_THAT(error("click:1 click:0"), HasSubstr("label"));
  EXPECT_THAT(error("6:1"), AllOf(HasSubstr("label"), HasSubstr("missing")));
}

}  // namespace
}  // namespace sluice
