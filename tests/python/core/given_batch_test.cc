#include "python/core/given_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/config/job_config.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/features/feature_schema.h"
#include "model/program/program_rules.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;

constexpr char kGiven[] = R"(
  name: "job"
  features { name: "age" numeric { log: true z_score { mean: 1 stddev: 2 } } }
  features { name: "user" categorical {} }
  features { name: "item" key: RAW categorical {} }
  features { name: "bought" embedding: "item" key: RAW categorical {} }
  features { name: "site" categorical { hash_buckets: 10 } }
  model { program {
    collections { name: "emb" dim: 4 features: ["user", "item", "bought", "site"] }
  } }
)";

JobConfig Given() {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kGiven, &job));
  const auto effective = EffectiveJobConfig(job, "/base", BuiltInSpecs());
  EXPECT_TRUE(effective.ok()) << effective.status();
  return effective.value_or(job);
}

// Two examples: bought has no value, and 8 and 9.
GivenBatch TwoExamples() {
  GivenBatch given;
  given.n = 2;
  given.label = {1, 0};
  given.numbers = {{0, 3}};
  given.values = {{{12, -3}, {}}, {{5, -1}, {}}, {{8, 9}, {0, 0, 2}}, {{7, 7}, {}}};
  given.given_as = 41;
  return given;
}

absl::Status Fill(const GivenBatch& given, Batch* batch) {
  return (*GivenFeatures::Create(Given()))->Fill(given, batch);
}

TEST(GivenBatchTest, KeysAndNumbersAreThoseOfTheNativeReaders) {
  Batch batch;
  ASSERT_TRUE(Fill(TwoExamples(), &batch).ok());
  // The same values as text, through the features of a job with files.
  const JobConfig job = Given();
  const auto schema = FeatureSchema::Create(job, ProgramUseOf(job));
  ASSERT_TRUE(schema.ok()) << schema.status();
  ASSERT_THAT((*schema)->columns(),
              ElementsAre("label", "", "age", "user", "item", "bought", "site"));
  Batch native;
  native.Reset(1, 4);
  const std::string_view first[] = {"1", "", "0", "12", "5", "", "7"};
  const std::string_view second[] = {"0", "", "3", "-3", "-1", "9", "7"};
  const bool no_bought[] = {false, true, false, false, false, true, false};
  const bool none[] = {false, true, false, false, false, false, false};
  ASSERT_TRUE((*schema)->AppendExample(first, no_bought, true, &native).ok());
  ASSERT_TRUE((*schema)->AppendExample(second, none, true, &native).ok());
  EXPECT_EQ(batch.n, 2u);
  EXPECT_EQ(batch.label, native.label);
  EXPECT_THAT(batch.weight, ElementsAre(1, 1));
  EXPECT_EQ(batch.numeric, native.numeric);
  EXPECT_THAT(batch.key_offsets, ElementsAre(0, 1, 2, 2, 3, 4, 5, 7, 8));
  const std::vector<uint64_t> of_native = native.keys;  // without the 8
  EXPECT_THAT(batch.keys, ElementsAre(of_native[0], 5, of_native[2], of_native[3],
                                      static_cast<uint64_t>(-1), 8, 9, of_native[6]));
  EXPECT_THAT(batch.example_id, ElementsAre(41, 41));
}

TEST(GivenBatchTest, OffsetsOfOneValueEachChangeNothing) {
  GivenBatch given = TwoExamples();
  given.values[2] = {{8, 9}, {}};
  Batch without, with;
  ASSERT_TRUE(Fill(given, &without).ok());
  given.values[1].offsets = {0, 1, 2};
  ASSERT_TRUE(Fill(given, &with).ok());
  EXPECT_THAT(without.key_offsets, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(without.key_offsets, with.key_offsets);
  EXPECT_EQ(without.keys, with.keys);
}

TEST(GivenBatchTest, ABatchThatIsMadeAlreadyIsTakenAsItIs) {
  auto made = std::make_shared<Batch>();
  ASSERT_TRUE(Fill(TwoExamples(), made.get()).ok());
  GivenBatch given;
  given.n = 2;
  given.given_as = 7;
  given.examples = made;
  Batch batch;
  ASSERT_TRUE(Fill(given, &batch).ok());
  EXPECT_EQ(batch.n, 2u);
  EXPECT_EQ(batch.keys, made->keys);
  EXPECT_EQ(batch.key_offsets, made->key_offsets);
  EXPECT_EQ(batch.numeric, made->numeric);
  EXPECT_EQ(batch.label, made->label);
  EXPECT_THAT(batch.example_id, ElementsAre(7, 7));
}

TEST(GivenBatchTest, WhatNeedsColumnsIsNotGiven) {
  EXPECT_TRUE(FindNotGiven(Given()).empty());
  EXPECT_TRUE(FindOfColumns(Given()).empty());
  const auto not_given = [](const std::function<void(JobConfig*)>& change) {
    JobConfig job = Given();
    change(&job);
    const std::vector<ConfigProblem> problems = FindNotGiven(job);
    EXPECT_EQ(problems.size(), 1u);
    Batch batch;
    EXPECT_EQ((*GivenFeatures::Create(job))->Fill(TwoExamples(), &batch).code(),
              absl::StatusCode::kInvalidArgument);
    return problems.empty() ? "" : problems[0].path + ": " + problems[0].text;
  };
  JobConfig of_columns = Given();
  of_columns.mutable_data()->mutable_label()->add_positive("y");
  of_columns.mutable_data()->set_weight_column("w");
  const std::vector<ConfigProblem> problems = FindOfColumns(of_columns);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].path, "data.label");
  EXPECT_EQ(problems[1].path, "data.weight_column");
  // Beside a table, batches of values are not of these columns.
  Batch batch;
  EXPECT_TRUE((*GivenFeatures::Create(of_columns))->Fill(TwoExamples(), &batch).ok());
  EXPECT_THAT(not_given([](JobConfig* job) {
                job->mutable_features(1)->mutable_categorical()->add_vocabulary("a");
              }),
              AllOf(HasSubstr("features[1]"), HasSubstr("'user'"), HasSubstr("vocabulary")));
  EXPECT_THAT(not_given([](JobConfig* job) {
                job->mutable_features(4)->mutable_categorical()->set_missing_is_value(true);
              }),
              AllOf(HasSubstr("'site'"), HasSubstr("missing_is_value")));
}

TEST(GivenBatchTest, AVectorHasItsNumbersForEachExample) {
  JobConfig job = Given();
  job.mutable_features(0)->mutable_numeric()->set_dim(2);
  const auto features = GivenFeatures::Create(job);
  ASSERT_TRUE(features.ok()) << features.status();
  GivenBatch given = TwoExamples();
  given.numbers = {{0, 3, 7, 0}};
  Batch batch;
  ASSERT_TRUE((*features)->Fill(given, &batch).ok());
  const auto normalized = [](double value) {
    return static_cast<float>((std::log1p(value) - 1) * 0.5);
  };
  EXPECT_THAT(batch.numeric,
              ElementsAre(normalized(0), normalized(3), normalized(7), normalized(0)));
  given.numbers = {{0, 3}};
  const absl::Status status = (*features)->Fill(given, &batch);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("\"age\""), HasSubstr("dim is 2")));
}

TEST(GivenBatchTest, NumbersAreRoundedOnceAfterNormalization) {
  JobConfig job = Given();
  NumericFeature* const age = job.mutable_features(0)->mutable_numeric();
  age->set_log(false);
  age->mutable_z_score()->set_mean(16'777'216);
  GivenBatch given = TwoExamples();
  given.numbers = {{16'777'217, 16'777'219}};  // no floats
  Batch batch;
  ASSERT_TRUE((*GivenFeatures::Create(job))->Fill(given, &batch).ok());
  EXPECT_THAT(batch.numeric, ElementsAre(0.5F, 1.5F));
}

TEST(GivenBatchTest, WhatIsWrongIsNamed) {
  Batch batch;
  const auto refused = [&](const std::function<void(GivenBatch*)>& change) {
    GivenBatch given = TwoExamples();
    change(&given);
    const absl::Status status = Fill(given, &batch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](GivenBatch* g) { g->numbers[0].pop_back(); }), HasSubstr("\"age\""));
  EXPECT_THAT(refused([](GivenBatch* g) { g->values[0].values.push_back(1); }),
              HasSubstr("\"user\""));
  EXPECT_THAT(refused([](GivenBatch* g) {
                g->values[2].offsets = {0, 3, 2};
              }),
              HasSubstr("\"bought\""));
  EXPECT_THAT(refused([](GivenBatch* g) {
                g->values[2].offsets = {0, 1, 3};
              }),
              HasSubstr("\"bought\""));
  EXPECT_THAT(refused([](GivenBatch* g) { g->values.pop_back(); }), HasSubstr("categorical"));
  EXPECT_THAT(refused([](GivenBatch* g) { g->label.push_back(1); }), HasSubstr("\"label\""));
  EXPECT_THAT(refused([](GivenBatch* g) {
                g->weight = {1, std::numeric_limits<float>::quiet_NaN()};
              }),
              AllOf(HasSubstr("\"weight\""), HasSubstr("example 1")));
  EXPECT_THAT(
      refused([](GivenBatch* g) { g->numbers[0][1] = std::numeric_limits<float>::infinity(); }),
      AllOf(HasSubstr("\"age\""), HasSubstr("example 1")));
}

}  // namespace
}  // namespace sluice
