#include "python/core/arrow_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/arrow/parquet.h"
#include "common/config/job_config.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/data/data_source.h"
#include "model/features/feature_schema.h"
#include "model/program/program_rules.h"
#include "tests/common/arrow/arrow_columns.h"
#include "tests/model/data/arrow_arrays.h"
#include "tests/python/core/arrow_streams.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Ints = std::vector<std::optional<int64_t>>;
using Node = ArrowNode;

TestColumn Users(const Ints& values) { return TestColumn::Numbers<int64_t>("user", "l", values); }

// An effective job of a program that looks up `looked_up`, and has no data files but `parquet`.
JobConfig Job(const std::string& text, const std::string& looked_up,
              const std::string& parquet = "") {
  JobConfig job;
  const std::string program =
      "name: 'job' model { program { parameters { name: 'w' shape: 1 } " +
      (looked_up.empty() ? ""
                         : "collections { name: 'emb' dim: 4 features: [" + looked_up + "] }") +
      " } } ";
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(program + text, &job));
  if (!parquet.empty()) {
    job.mutable_data()->set_format(DataConfig::PARQUET);
    job.mutable_data()->add_train_files(parquet);
  }
  const auto effective = EffectiveJobConfig(job, "/base", BuiltInSpecs());
  EXPECT_TRUE(effective.ok()) << effective.status();
  return effective.value_or(job);
}

// Of one feature, whose kind is e.g. "numeric {}".
JobConfig JobOf(const std::string& name, const std::string& kind, const std::string& rest = "") {
  const bool number = kind.find("numeric") == 0 && kind.find("boundaries") == std::string::npos;
  return Job("features { name: '" + name + "' " + kind + " } " + rest,
             number ? "" : "'" + name + "'");
}

absl::StatusOr<std::unique_ptr<ArrowRows>> Rows(std::vector<TestColumns> batches,
                                                const JobConfig& job, const ArrowRows::Part& part) {
  ArrowArrayStream stream = TestStream::Of(std::move(batches));
  auto rows = ArrowRows::Create(&stream, job, part);
  EXPECT_EQ(stream.release, nullptr);
  return rows;
}

// The keys of all batches that are left.
std::vector<std::vector<uint64_t>> KeysOf(ArrowRows* rows) {
  std::vector<std::vector<uint64_t>> keys;
  while (true) {
    const auto batch = rows->Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || *batch == nullptr) return keys;
    EXPECT_EQ((*batch)->n, (*batch)->examples->n);
    keys.push_back((*batch)->examples->keys);
  }
}

TEST(ArrowRowsTest, BatchesAreDealtToTheRanksWhereverTheStreamsOwnEnd) {
  const JobConfig job = JobOf("user", "key: RAW categorical {}");
  const std::vector<TestColumns> batches = {
      {Users({0, 1, 2, 3, 4})}, {Users({5})}, {Users({})}, {Users({6, 7, 8, 9, 10, 11, 12})}};
  EXPECT_THAT(KeysOf((*Rows(batches, job, {3, 0, 1, 0, false})).get()),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(6, 7, 8),
                          ElementsAre(9, 10, 11), ElementsAre(12)));
  EXPECT_THAT(KeysOf((*Rows(batches, job, {3, 1, 2, 0, false})).get()),
              ElementsAre(ElementsAre(3, 4, 5), ElementsAre(9, 10, 11)));
  EXPECT_THAT(KeysOf((*Rows(batches, job, {3, 0, 2, 1, false})).get()),
              ElementsAre(ElementsAre(6, 7, 8), ElementsAre(12)));
  const auto late = *Rows(batches, job, {3, 0, 2, 9, false});
  EXPECT_THAT(KeysOf(late.get()), IsEmpty());
  EXPECT_EQ(late->rows(), 13);
}

// Rows with values of every kind. Each list has two values, or is null.
Node AllKinds(int64_t rows) {
  std::vector<std::optional<int32_t>> ages, sizes, days;
  std::vector<std::optional<int64_t>> times, users;
  std::vector<std::optional<double>> prices;
  std::vector<std::optional<std::string>> sites, tags, answers;
  std::vector<std::optional<float>> vectors, weights;
  std::vector<std::optional<int16_t>> items;
  for (int64_t r = 0; r < rows; ++r) {
    const auto or_null = [&](int64_t every, auto value) {
      return r % every == every - 1 ? std::nullopt : std::optional(value);
    };
    ages.push_back(or_null(7, static_cast<int32_t>(r % 90)));
    // Not a number of 32 bits: rounded before normalization it would be another one.
    times.push_back(or_null(11, 1'700'000'000'123 + r * 977));
    prices.push_back(or_null(5, r % 9 == 0 ? std::nan("") : 16'777'217.0 + r));
    users.push_back(or_null(13, r * r - 40));
    sites.push_back(or_null(6, r % 4 == 0 ? std::string("-") : "s" + std::to_string(r % 17)));
    tags.push_back(or_null(8, "t" + std::to_string(r % 3) + "|t" + std::to_string(r % 5)));
    answers.push_back(r % 3 == 0 ? "yes" : "no");
    days.push_back(or_null(9, static_cast<int32_t>(19'000 + r)));
    weights.push_back(static_cast<float>(r % 4) / 2);
    sizes.push_back(or_null(10, 2));
    for (int i = 0; i < 2; ++i) {
      vectors.push_back(r % 5 == 1 ? std::nullopt : std::optional(static_cast<float>(r) / 3));
      items.push_back(r % 5 == 2 ? std::nullopt : std::optional(static_cast<int16_t>(r + i)));
    }
  }
  return Node::Struct(
      "", rows,
      {Node::Of<int32_t>("i", "age", ages), Node::Of<int64_t>("tsm:UTC", "time", times),
       Node::Of<double>("g", "price", prices), Node::Of<int64_t>("l", "user", users),
       Node::Texts<int32_t>("u", "site", sites), Node::Texts<int32_t>("u", "tags", tags),
       Node::Texts<int32_t>("u", "answer", answers), Node::Of<int32_t>("tdD", "day", days),
       Node::Of<float>("f", "w", weights),
       Node::Lists<int32_t>("+l", "vector", sizes, Node::Of<float>("f", "item", vectors)),
       Node::Lists<int32_t>("+l", "items", sizes, Node::Of<int16_t>("s", "item", items))});
}

constexpr char kAllKinds[] = R"(
  data { label { column: 'answer' positive: 'yes' } weight_column: 'w' csv { missing: '-' } }
  features { name: 'age' numeric { log: true z_score { mean: 3 stddev: 0.7 } default_value: 2 } }
  features { name: 'since' numeric { column: 'time' z_score { mean: 1700000000 stddev: 0.5 } } }
  features { name: 'price' numeric { z_score { mean: 16777217 stddev: 3 } } }
  features { name: 'vector' numeric { dim: 2 default_value: 4 } }
  features { name: 'ages' numeric { column: 'age' boundaries: [10, 20, 50] } }
  features { name: 'user' key: RAW categorical {} }
  features { name: 'site' categorical { vocabulary: ['s1', 's2', 's3'] missing_is_value: true } }
  features { name: 'folded' categorical { column: 'site' hash_buckets: 5 } }
  features { name: 'tags' categorical { multi_value_delimiter: '|' } }
  features { name: 'items' categorical { pooling: MEAN } }
  features { name: 'hour' categorical { column: 'time' date_part: HOUR } }
  features { name: 'weekday' categorical { column: 'day' date_part: DAY_OF_WEEK } }
  features { name: 'both' cross { features: ['ages', 'site'] } }
)";
constexpr char kAllLookedUp[] =
    "'ages', 'user', 'site', 'folded', 'tags', 'items', 'hour', 'weekday', 'both'";

TEST(ArrowRowsTest, RowsAreThoseOfTheSameColumnsInParquet) {
  const absl::Status arrow = OpenArrow();
  if (!arrow.ok()) {
    std::fprintf(stderr, "SKIPPED, NOT PASSED: arrow_rows_test: %s\n",
                 std::string(arrow.message()).c_str());
    GTEST_SKIP() << arrow;
  }
  constexpr size_t kRows = 3000;  // more than are worked on at a time
  const Node table = AllKinds(kRows);
  const std::string path = ::testing::TempDir() + "/arrow_rows.parquet";
  const ArrowStructs of_file(table);
  auto file = Env::Real()->StartFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  auto writer = ParquetWriter::Create(*std::move(file), ArrowOwner<ArrowSchema>(of_file.schema),
                                      ParquetWriterOptions());
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Write(ArrowOwner<ArrowArray>(of_file.array)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());

  const JobConfig reads = Job(kAllKinds, kAllLookedUp, path);
  const auto schema = FeatureSchema::Create(reads, ProgramUseOf(reads));
  ASSERT_TRUE(schema.ok()) << schema.status();
  const auto source = DataSource::Create(reads.data(), *schema, Env::Real());
  ASSERT_TRUE(source.ok()) << source.status();
  Batch native;
  native.Reset((*schema)->numerics().size(), (*schema)->slots().size());
  BadLines bad;
  ASSERT_TRUE((*source)->ReadPiece(path, 0, UINT64_MAX, true, &native, &bad).ok());
  ASSERT_EQ(native.n, kRows) << bad.Describe();

  ArrowStructs structs(table);
  ArrowArrayStream stream = StreamOf(&structs);
  const auto rows = ArrowRows::Create(&stream, Job(kAllKinds, kAllLookedUp), {1400, 0, 1, 0});
  ASSERT_TRUE(rows.ok()) << rows.status();
  Batch all;
  all.Reset(native.num_numeric, native.num_slots);
  for (const size_t n : {1400, 1400, 200}) {
    const auto batch = (*rows)->Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_EQ((*batch)->n, n);
    for (size_t i = 0; i < n; ++i) ASSERT_TRUE(all.Append(*(*batch)->examples, i, 0).ok());
  }
  EXPECT_EQ(all.label, native.label);
  EXPECT_EQ(all.weight, native.weight);
  EXPECT_EQ(all.numeric, native.numeric);
  EXPECT_EQ(all.key_offsets, native.key_offsets);
  EXPECT_EQ(all.keys, native.keys);
}

// The only batch of the columns.
std::shared_ptr<const Batch> Only(const JobConfig& job, const TestColumns& columns,
                                  bool need_label = true) {
  const auto rows = Rows({columns}, job, {10, 0, 1, 0, need_label});
  EXPECT_TRUE(rows.ok()) << rows.status();
  if (!rows.ok()) return nullptr;
  const auto batch = (*rows)->Next();
  EXPECT_TRUE(batch.ok()) << batch.status();
  return batch.ok() && *batch != nullptr ? (*batch)->examples : nullptr;
}

TEST(ArrowRowsTest, LabelAndWeightHaveTheirUsualNamesUnlessTheJobNamesOthers) {
  const TestColumns columns = {TestColumn::Numbers<float>("label", "f", {0, 1, 2.5F}),
                               TestColumn::Numbers<int8_t>("weight", "c", {1, 0, 3}),
                               TestColumn::Texts("y", {"a", "b", "b"}), Users({1, 2, 3})};
  // Without a rule a label is any number.
  auto batch = Only(JobOf("user", "categorical {}"), columns);
  ASSERT_NE(batch, nullptr);
  EXPECT_THAT(batch->label, ElementsAre(0, 1, 2.5F));
  EXPECT_THAT(batch->weight, ElementsAre(1, 0, 3));
  batch = Only(JobOf("user", "categorical {}", "data { label { column: 'y' positive: 'b' } }"),
               columns);
  ASSERT_NE(batch, nullptr);
  EXPECT_THAT(batch->label, ElementsAre(0, 1, 1));
  batch = Only(JobOf("weight", "numeric {}"), columns);
  ASSERT_NE(batch, nullptr);
  EXPECT_THAT(batch->weight, ElementsAre(1, 1, 1));
  EXPECT_THAT(batch->numeric, ElementsAre(1, 0, 3));
  batch = Only(JobOf("user", "categorical {}"),
               {Users({1, 2}), TestColumn::Numbers<float>("label", "f", {0, 1})});
  ASSERT_NE(batch, nullptr);
  EXPECT_THAT(batch->label, ElementsAre(0, 1));
  EXPECT_THAT(batch->weight, ElementsAre(1, 1));
}

TEST(ArrowRowsTest, OnlyATableWithoutANeededLabelIsAdvisedToNameOne) {
  const auto why = [](const TestColumns& columns, bool need_label) {
    const JobConfig job = JobOf("user", "categorical {}");
    return std::string(Rows({columns}, job, {10, 0, 1, 0, need_label}).status().message());
  };
  const TestColumn label = TestColumn::Numbers<float>("label", "f", {0});
  const TestColumn other = TestColumn::Numbers<float>("age", "f", {0});
  const auto advice = HasSubstr("or add a column \"label\"");
  EXPECT_THAT(why({Users({1})}, true), AllOf(HasSubstr("no column \"label\""), advice));
  EXPECT_THAT(why({other, label}, true), AllOf(HasSubstr("no column \"user\""), Not(advice)));
  EXPECT_THAT(why({other}, false), AllOf(HasSubstr("no column \"user\""), Not(advice)));
  EXPECT_THAT(why({Users({1}), Users({2})}, false), AllOf(HasSubstr("twice"), Not(advice)));
}

TEST(ArrowRowsTest, NumbersAreRoundedOnceAfterNormalization) {
  const auto batch =
      Only(JobOf("n", "numeric { z_score { mean: 16777216 stddev: 2 } }"),
           {TestColumn::Numbers<int64_t>("n", "l", {16'777'217, 16'777'219, std::nullopt})}, false);
  ASSERT_NE(batch, nullptr);
  EXPECT_THAT(batch->numeric, ElementsAre(0.5F, 1.5F, -8388608));
}

TEST(ArrowRowsTest, TextsMayBeViews) {
  // Size, the first four bytes, and where the text stands; or a short text.
  const auto view = [](int32_t size, const char* begin, int32_t offset) {
    std::string bytes(16, '\0');
    std::memcpy(&bytes[0], &size, 4);
    std::memcpy(&bytes[4], begin, std::min<size_t>(std::strlen(begin), size <= 12 ? 12 : 4));
    if (size > 12) std::memcpy(&bytes[12], &offset, 4);  // in the first buffer
    return bytes;
  };
  TestColumn column{"site", "vu", 3};
  column.buffers = {"",
                    view(12, "twelve bytes", 0) + view(0, "", 0) + view(14, "fourteen bytes", 2),
                    "..fourteen bytes", std::string(8, '\0')};
  const JobConfig job = JobOf("site", "categorical {}");
  const auto views = Only(job, {column}, false);
  const auto plain =
      Only(job, {TestColumn::Texts("site", {"twelve bytes", "", "fourteen bytes"})}, false);
  ASSERT_TRUE(views != nullptr && plain != nullptr);
  EXPECT_EQ(views->keys, plain->keys);
  EXPECT_THAT(views->key_offsets, ElementsAre(0, 1, 1, 2));
}

TEST(ArrowRowsTest, WhatCannotBeReadIsRefusedByName) {
  const auto refusal = [](const JobConfig& job, const TestColumns& columns) {
    const auto rows = Rows({columns}, job, {10, 0, 1, 0});
    const absl::Status status = rows.ok() ? (*rows)->Next().status() : rows.status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  const TestColumns columns = {Users({1, 2}), TestColumn::Numbers<float>("age", "f", {1, 2.5F}),
                               TestColumn::Numbers<float>("label", "f", {1, std::nullopt}),
                               TestColumn::Numbers<float>("weight", "f", {1, -1})};
  const TestColumn label = TestColumn::Numbers<float>("label", "f", {0, 1});
  const TestColumn one_label = TestColumn::Numbers<float>("label", "f", {0});
  const std::string category = "categorical {}";
  EXPECT_THAT(refusal(JobOf("item", category), columns), HasSubstr("\"item\""));
  EXPECT_THAT(refusal(JobOf("user", category, "data { label { column: 'y' } }"), columns),
              HasSubstr("\"y\""));
  EXPECT_THAT(refusal(JobOf("user", category),
                      {columns[0], TestColumn::Numbers<float>("lable", "f", {0, 1})}),
              AllOf(HasSubstr("\"label\""), HasSubstr("did you mean \"lable\"?"),
                    HasSubstr("columns are: user, lable"), HasSubstr("data { label { column")));
  EXPECT_THAT(refusal(JobOf("user", category, "data { weight_column: 'w' }"), columns),
              HasSubstr("\"w\""));
  EXPECT_THAT(refusal(JobOf("age", category), {columns[1], label}),
              AllOf(HasSubstr("\"age\""), HasSubstr("2.5"), HasSubstr("row 1")));
  EXPECT_THAT(refusal(JobOf("age", "numeric {}"), {TestColumn::Texts("age", {"1", "x"}), label}),
              AllOf(HasSubstr("\"age\""), HasSubstr("\"x\""), HasSubstr("row 1")));
  EXPECT_THAT(
      refusal(JobOf("day", category), {TestColumn::Numbers<int32_t>("day", "tdD", {1}), one_label}),
      AllOf(HasSubstr("\"day\""), HasSubstr("date")));
  EXPECT_THAT(refusal(JobOf("clock", "numeric {}"),
                      {TestColumn::Numbers<int32_t>("clock", "tts", {1}), one_label}),
              AllOf(HasSubstr("\"clock\""), HasSubstr("time of day")));
  EXPECT_THAT(refusal(JobOf("user", category), {Users({1}), Users({1}), one_label}),
              HasSubstr("\"user\""));
  EXPECT_THAT(refusal(JobOf("user", category), {columns[0], columns[2]}),
              AllOf(HasSubstr("\"label\""), HasSubstr("row 1")));
  EXPECT_THAT(refusal(JobOf("user", category), {columns[0], columns[3], label}),
              AllOf(HasSubstr("\"weight\""), HasSubstr("row 1")));
}

TEST(ArrowRowsTest, AnErrorOfTheStreamIsSaid) {
  ArrowArrayStream stream = TestStream::Of({{Users({1, 2})}}, EIO);
  auto rows = ArrowRows::Create(&stream, JobOf("user", "categorical {}"), {2, 0, 1, 0, false});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE((*rows)->Next().ok());
  EXPECT_THAT(std::string((*rows)->Next().status().message()), HasSubstr("the disk is gone"));
}

}  // namespace
}  // namespace sluice
