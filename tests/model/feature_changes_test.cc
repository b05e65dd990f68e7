#include "model/feature_changes.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/config/job_config.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kChangedJob[] = R"(
  data {
    format: CSV train_files: "/d/train" csv { header: true } label { column: "label" }
  }
  features { name: "age" numeric {} }
  features { name: "hours" numeric {} }
  features { name: "job" categorical {} }
  features { name: "city" categorical {} }
  features { name: "tags" categorical {} in_wide: false }
  model { wide_deep { hidden_units: [16, 4] embedding_dim: 8 } }
)";

JobConfig EffectiveForChanges(const std::string& text) {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  const auto effective = EffectiveJobConfig(job, "/", BuiltInSpecs());
  EXPECT_TRUE(effective.ok()) << effective.status();
  return effective.ok() ? *effective : job;
}

using TextEdits = std::vector<std::pair<std::string, std::string>>;

std::string EditedText(std::string text, const TextEdits& edits) {
  for (const auto& [from, to] : edits) {
    EXPECT_TRUE(absl::StrContains(text, from)) << from;
    text = absl::StrReplaceAll(text, {{from, to}});
  }
  return text;
}

// What a job makes of the model of another one.
class FeatureChangesTest : public testing::Test {
 protected:
  FeatureChanges Follow(const std::string& saved_text, const std::string& text) {
    const JobConfig saved = EffectiveForChanges(saved_text), job = EffectiveForChanges(text);
    const auto from = ModelSpec::Create(saved, BuiltInSpecs());
    const auto to = ModelSpec::Create(job, BuiltInSpecs());
    EXPECT_TRUE(from.ok()) << from.status();
    EXPECT_TRUE(to.ok()) << to.status();
    Manifest manifest;
    for (const TableConfig& table : (*from)->tables()) *manifest.add_tables() = table;
    ResolveShards(1, manifest.mutable_tables());
    tables_ = (*to)->tables();
    EXPECT_TRUE(CanFollowFeatures(**from, **to));
    return FollowFeatures({&saved, from->get()}, {&job, to->get()}, manifest, &tables_);
  }
  FeatureChanges Follow(const TextEdits& edits) {
    return Follow(kChangedJob, EditedText(kChangedJob, edits));
  }

  // "SAVED: FROM>TO+COUNT ..." of a table; "" without start.
  std::string StartText(const std::string& name) const {
    for (const TableConfig& table : tables_) {
      if (table.name() != name) continue;
      if (!table.has_start()) return "";
      std::string text = table.start().table() + ":";
      for (const TableStart::Run& run : table.start().rows())
        absl::StrAppend(&text, " ", run.from(), ">", run.to(), "+", run.count());
      return text;
    }
    return "no such table";
  }

  std::vector<TableConfig> tables_;
};

TEST_F(FeatureChangesTest, TheSameFeaturesNeedNoStart) {
  const FeatureChanges changes = Follow(TextEdits{});
  EXPECT_THAT(changes.refused, IsEmpty());
  EXPECT_THAT(changes.notes, IsEmpty());
  for (const TableConfig& table : tables_) EXPECT_FALSE(table.has_start()) << table.name();
}

TEST_F(FeatureChangesTest, RowsFollowFeaturesThatComeGoAndMove) {
  // Before: job 0-7, city 8-15, tags 16-23, age 24, hours 25. Now: city, size, job, hours, rain.
  const FeatureChanges changes = Follow(
      {{"features { name: \"tags\" categorical {} in_wide: false }", ""},
       {"features { name: \"age\" numeric {} }", ""},
       {"features { name: \"job\" categorical {} }", ""},
       {"features { name: \"city\" categorical {} }",
        "features { name: \"city\" categorical {} } features { name: \"size\" categorical {} } "
        "features { name: \"job\" categorical {} } features { name: \"rain\" numeric {} }"}});
  EXPECT_THAT(changes.refused, IsEmpty());
  EXPECT_EQ(StartText("deep/0/weight"), "deep/0/weight: 8>0+8 0>16+8 25>24+1");
  EXPECT_EQ(StartText("wide/weight"), "wide/weight: 1>0+1");
  EXPECT_EQ(StartText("embedding"), "");
  EXPECT_EQ(StartText("deep/1/weight"), "");
  EXPECT_EQ(StartText("deep/0/bias"), "");
  EXPECT_THAT(
      changes.notes,
      ElementsAre(
          "features added: \"size\", \"rain\"; removed: \"age\", \"tags\"; moved: \"city\"",
          AllOf(HasSubstr("'deep/0/weight'"), HasSubstr("17 rows kept, 9 initialized, 9 dropped")),
          AllOf(HasSubstr("'wide/weight'"), HasSubstr("1 rows kept, 1 initialized, 1 dropped"))));
}

TEST_F(FeatureChangesTest, AWiderEmbeddingKeepsItsColumnsAndTheirRows) {
  const FeatureChanges changes = Follow({{"embedding_dim: 8", "embedding_dim: 10"}});
  EXPECT_THAT(changes.refused, IsEmpty());
  EXPECT_EQ(StartText("embedding"), "embedding:");
  EXPECT_EQ(StartText("deep/0/weight"), "deep/0/weight: 0>0+8 8>10+8 16>20+8 24>30+2");
  EXPECT_THAT(changes.notes, Contains(AllOf(HasSubstr("widened: "), HasSubstr("\"city\" (8 to 10)"),
                                            HasSubstr("\"tags\" (8 to 10)"))));
  EXPECT_THAT(changes.notes, Contains(AllOf(HasSubstr("'embedding': 9 columns kept, 2 init"),
                                            HasSubstr("rows stay"))));
}

TEST_F(FeatureChangesTest, ALongerVectorKeepsTheWeightsOfItsNumbers) {
  const TextEdits vector = {
      {"\"age\" numeric {}", "\"age\" numeric { dim: 2 multi_value_delimiter: \"|\" }"}};
  const std::string two = EditedText(kChangedJob, vector);
  const FeatureChanges changes = Follow(two, EditedText(two, {{"dim: 2", "dim: 4"}}));
  EXPECT_THAT(changes.refused, IsEmpty());
  EXPECT_EQ(StartText("deep/0/weight"), "deep/0/weight: 0>0+26 26>28+1");
  EXPECT_EQ(StartText("wide/weight"), "wide/weight: 0>0+2 2>4+1");
  EXPECT_THAT(changes.notes, Contains("features widened: \"age\" (2 to 4)"));
  EXPECT_THAT(Follow(EditedText(two, {{"dim: 2", "dim: 4"}}), two).refused,
              Contains(AllOf(HasSubstr("\"age\""), HasSubstr("narrowed"))));
}

TEST_F(FeatureChangesTest, ANarrowerEmbeddingIsRefusedByFeature) {
  EXPECT_THAT(
      Follow({{"embedding_dim: 8", "embedding_dim: 6"}}).refused,
      Contains(AllOf(HasSubstr("\"job\""), HasSubstr("8"), HasSubstr("6"), HasSubstr("narrowed"))));
}

TEST_F(FeatureChangesTest, OneFeatureOfASharedTableCannotBeWidened) {
  // A table of two widths becomes two tables.
  EXPECT_THAT(
      Follow({{"name: \"tags\"", "name: \"tags\" embedding_dim: 16"}}).refused,
      Contains(AllOf(HasSubstr("\"embedding\""), HasSubstr("\"tags\" in \"embedding_16\""),
                     HasSubstr("\"city\" (and 1 more) in \"embedding_8\""), HasSubstr("`table`"))));
  EXPECT_THAT(Follow({{"name: \"tags\"", "name: \"tags\" table: \"t\""}}).refused,
              Contains(AllOf(HasSubstr("\"tags\" in \"t\""), HasSubstr("`table`"))));
}

TEST_F(FeatureChangesTest, ATableIsTheOneOfItsFeaturesWhateverItsName) {
  // The width is part of the name once there are two.
  const TextEdits more = {{"name: \"tags\"",
                           "name: \"user\" embedding_dim: 4 categorical {} } "
                           "features { name: \"tags\""}};
  const FeatureChanges changes = Follow(more);
  EXPECT_THAT(changes.refused, IsEmpty());
  EXPECT_EQ(StartText("embedding_8"), "embedding:");
  EXPECT_EQ(StartText("embedding_4"), ":");  // all of it is new
  EXPECT_THAT(changes.notes, Contains(HasSubstr("'embedding_8' (was 'embedding'): 9 columns")));
  // One of them is widened, and the others are gone.
  const FeatureChanges back =
      Follow(EditedText(kChangedJob, more),
             EditedText(EditedText(kChangedJob, more), {{"embedding_dim: 8", "embedding_dim: 12"},
                                                        {"embedding_dim: 4", "embedding_dim: 8"}}));
  EXPECT_THAT(back.refused, IsEmpty());
  EXPECT_EQ(StartText("embedding_12"), "embedding_8:");
  EXPECT_EQ(StartText("embedding_8"), "embedding_4:");
}

TEST_F(FeatureChangesTest, ATableWhoseFeaturesAreGoneIsDropped) {
  const std::string with = EditedText(
      kChangedJob,
      {{"model {", "features { name: \"user\" categorical {} table: \"users\" } model {"}});
  const FeatureChanges changes = Follow(with, kChangedJob);
  EXPECT_THAT(changes.refused, IsEmpty());
  EXPECT_THAT(changes.notes, Contains(HasSubstr("table 'users' is dropped")));
  // Another feature takes the table over: the keys of the two differ.
  Follow(with, EditedText(with, {{"name: \"user\"", "name: \"guest\""}}));
  EXPECT_EQ(StartText("users"), "");
}

TEST_F(FeatureChangesTest, RowsOfSeveralTablesAreNotMerged) {
  const std::string two =
      EditedText(kChangedJob, {{"name: \"tags\"", "name: \"tags\" embedding_dim: 4"}});
  EXPECT_THAT(Follow(two, kChangedJob).refused,
              Contains(AllOf(HasSubstr("\"tags\""), HasSubstr("\"embedding_4\""),
                             HasSubstr("\"embedding\""))));
}

TEST_F(FeatureChangesTest, PartsMayComeAndGo) {
  // The first number brings the wide weights of numbers.
  const std::string none =
      EditedText(kChangedJob, {{"features { name: \"age\" numeric {} }", ""},
                               {"features { name: \"hours\" numeric {} }", ""}});
  EXPECT_THAT(Follow(none, kChangedJob).refused, IsEmpty());
  EXPECT_EQ(StartText("wide/weight"), ":");
  EXPECT_EQ(StartText("deep/0/weight"), "deep/0/weight: 0>0+24");
  EXPECT_THAT(Follow(kChangedJob, none).notes, Contains(HasSubstr("'wide/weight' is dropped")));
  // A group of columns that no feature uses is gone.
  const FeatureChanges narrow = Follow({{"name: \"job\"", "name: \"job\" in_wide: false"},
                                        {"name: \"city\"", "name: \"city\" in_wide: false"}});
  EXPECT_THAT(narrow.refused, IsEmpty());
  EXPECT_EQ(StartText("embedding"), "embedding:");
  EXPECT_THAT(narrow.notes, Contains(HasSubstr("8 columns kept, 0 initialized, 1 dropped")));
}

TEST_F(FeatureChangesTest, RowsOfDenseFeaturesFollowToo) {
  const std::string dense =
      EditedText(kChangedJob, {{"categorical {}", "categorical { hash_buckets: 10 dense: true }"}});
  const FeatureChanges changes =
      Follow(dense, EditedText(dense, {{"name: \"job\"", "name: \"new\""},
                                       {"embedding_dim: 8", "embedding_dim: 9"}}));
  EXPECT_THAT(changes.refused, IsEmpty());
  // The rows of "tags", of the deep part alone, come first.
  EXPECT_EQ(StartText("embedding"), "embedding: 0>0+10 20>20+10");
  EXPECT_EQ(StartText("wide/embedding"), "wide/embedding: 10>10+10");
  EXPECT_EQ(StartText("deep/0/weight"), "deep/0/weight: 8>9+8 16>18+8 24>27+2");
  const FeatureChanges larger =
      Follow(dense, EditedText(dense, {{"hash_buckets: 10", "hash_buckets: 9"}}));
  EXPECT_THAT(larger.refused, Contains(HasSubstr("narrowed")));
}

TEST_F(FeatureChangesTest, RowsOfSparseAndDenseTablesAreNotExchanged) {
  const std::string dense =
      EditedText(kChangedJob, {{"categorical {}", "categorical { hash_buckets: 10 dense: true }"}});
  Follow(kChangedJob, dense);
  EXPECT_EQ(StartText("embedding"), "");
  EXPECT_EQ(StartText("wide/embedding"), ":");
  Follow(dense, kChangedJob);
  EXPECT_EQ(StartText("embedding"), "embedding:");  // refused with the tables
}

TEST_F(FeatureChangesTest, OtherShapesAreLeftToTheComparisonOfTables) {
  EXPECT_THAT(
      Follow({{"[16, 4]", "[15, 4]"}, {"features { name: \"age\" numeric {} }", ""}}).refused,
      IsEmpty());
  EXPECT_EQ(StartText("deep/0/weight"), "");
}

TEST_F(FeatureChangesTest, AModelWithoutACommonFeatureIsTheWrongOne) {
  const FeatureChanges changes = Follow({{"\"age\"", "\"a\""},
                                         {"\"hours\"", "\"b\""},
                                         {"\"job\"", "\"c\""},
                                         {"\"city\"", "\"d\""},
                                         {"\"tags\"", "\"e\""}});
  EXPECT_THAT(changes.refused, ElementsAre(HasSubstr("no feature")));
}

TEST_F(FeatureChangesTest, OnlyFeaturesThatHaveMovedAreNamed) {
  const auto notes = [&](const std::string& order) {
    std::string features;
    for (const char name : order)
      absl::StrAppend(&features, "features { name: \"", std::string(1, name), "\" numeric {} } ");
    const auto job = [](const std::string& of) {
      return absl::StrCat(
          "data { format: CSV train_files: \"/d\" csv { header: true } label { "
          "column: \"y\" } } model { wide_deep { hidden_units: 2 } } ",
          of);
    };
    std::string saved;
    for (const char name : std::string("abcdef"))
      absl::StrAppend(&saved, "features { name: \"", std::string(1, name), "\" numeric {} } ");
    const FeatureChanges changes = Follow(job(saved), job(features));
    return changes.notes.empty() ? "" : changes.notes[0];
  };
  EXPECT_EQ(notes("abcdef"), "");
  EXPECT_EQ(notes("bcdefa"), "features moved: \"a\"");
  EXPECT_EQ(notes("fabcde"), "features moved: \"f\"");
  EXPECT_EQ(notes("abdcef").size(), std::string("features moved: \"c\"").size());
  EXPECT_EQ(notes("bdf"), "features removed: \"a\", \"c\", \"e\"");
}

}  // namespace
}  // namespace sluice
