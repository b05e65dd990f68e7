#include "python/core/model_reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/config/job_config.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "model/built_in_models.h"
#include "model/features/feature_compiler.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr char kReaderJob[] = R"(
  name: "job"
  data { format: CSV train_files: "a.csv" csv { header: true missing: "?" } label { column: "label" } }
  features { name: "age" numeric { boundaries: [30, 50] keep_numeric: true } }
  features { name: "city" categorical { column: "town" } }
  features { name: "day" categorical { missing_is_value: true } }
  features { name: "tags" categorical { multi_value_delimiter: "|" } }
  features { name: "age_x_city" cross { features: ["age", "city"] } }
  model { wide_deep { hidden_units: [4] embedding_dim: 2 } }
  train { seed: 3 }
)";

// The weights of the row of `key`.
std::vector<float> RowOf(uint64_t key, size_t dim) {
  std::vector<float> row(dim);
  for (size_t i = 0; i < dim; ++i)
    row[i] = static_cast<float>(key % 1000) + 0.25f * static_cast<float>(i);
  return row;
}

// A saved model whose sparse table has the rows of 100 cities in many shards.
class ModelReaderTest : public ::testing::Test {
 protected:
  ModelReaderTest() {
    dir_ = ::testing::TempDir() + "model_reader_test_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    JobConfig job;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kReaderJob, &job));
    job = *EffectiveJobConfig(job, "", BuiltInSpecs());
    const auto spec = ModelSpec::Create(job, BuiltInSpecs());
    EXPECT_TRUE(spec.ok()) << spec.status();
    Manifest manifest;
    manifest.set_version(kModelVersion);
    manifest.set_job_id("job-1");
    manifest.set_global_step(12);
    for (const TableConfig& table : (*spec)->tables()) *manifest.add_tables() = table;
    ResolveShards(2, manifest.mutable_tables());
    const auto layouts = CreateTableLayouts(manifest.tables(), job.train().seed());
    EXPECT_TRUE(layouts.ok()) << layouts.status();
    for (int i = 0; i < 100; ++i)
      keys_.push_back(ValueKey("city" + std::to_string(i), SlotSeed("city")));
    std::sort(keys_.begin(), keys_.end());
    for (const auto& table : *layouts) Save(*table, &manifest);
    const auto finished = FinishModel(dir_, job, manifest, Env::Real());
    EXPECT_TRUE(finished.ok()) << finished.status();
    auto reader = ModelReader::Open(dir_, Env::Real());
    EXPECT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
  }
  ~ModelReaderTest() override { std::filesystem::remove_all(dir_); }

  void Save(const TableLayout& table, Manifest* manifest) {
    for (uint32_t shard = 0; shard < table.num_shards(); ++shard) {
      ShardValues values;
      if (table.sparse()) {
        for (const uint64_t key : keys_) {
          if (table.ShardOf(key) != shard) continue;
          values.keys.push_back(key);
          const std::vector<float> row = RowOf(key, table.dim());
          values.weights.insert(values.weights.end(), row.begin(), row.end());
        }
      } else {
        values.first_element = shard * table.block_elements();
        for (uint64_t i = 0; i < table.ShardElements(shard); ++i)
          values.weights.push_back(static_cast<float>(values.first_element + i));
      }
      const auto file = WriteShardFile(dir_, table, shard, values, Env::Real());
      ASSERT_TRUE(file.ok()) << file.status();
      *manifest->add_files() = *file;
    }
  }

  std::string dir_;
  std::vector<uint64_t> keys_;  // ascending
  std::unique_ptr<ModelReader> reader_;
};

TEST_F(ModelReaderTest, ManifestAndJobAreThere) {
  EXPECT_EQ(reader_->manifest().job_id(), "job-1");
  EXPECT_EQ(reader_->manifest().global_step(), 12u);
  EXPECT_EQ(reader_->job().name(), "job");
}

TEST_F(ModelReaderTest, ADenseTableIsRowMajor) {
  for (const auto& layout : reader_->layouts()) {
    if (layout->sparse()) continue;
    const auto values = reader_->ReadDense(layout->name());
    ASSERT_TRUE(values.ok()) << values.status();
    ASSERT_EQ(values->size(), layout->elements());
    for (size_t i = 0; i < values->size(); ++i) EXPECT_EQ((*values)[i], static_cast<float>(i));
  }
}

TEST_F(ModelReaderTest, RowsAreSortedAndFound) {
  const auto rows = reader_->ReadRows("embedding");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT((*rows)->keys(), ElementsAreArray(keys_));
  const size_t dim = (*rows)->layout().dim();
  for (size_t i = 0; i < keys_.size(); ++i) {
    std::vector<float> row(dim);
    (*rows)->Find({keys_[i]}, row.data());
    EXPECT_EQ(row, RowOf(keys_[i], dim));
    EXPECT_TRUE(std::equal(row.begin(), row.end(), (*rows)->values().data() + i * dim));
  }
}

TEST_F(ModelReaderTest, AMissingKeyHasItsInitialRow) {
  const auto rows = reader_->ReadRows("embedding");
  ASSERT_TRUE(rows.ok()) << rows.status();
  const size_t dim = (*rows)->layout().dim();
  std::vector<float> found(2 * dim), initial(dim);
  (*rows)->Find({12345, keys_[0]}, found.data());
  (*rows)->layout().InitialRow(12345, initial.data());
  EXPECT_TRUE(std::equal(initial.begin(), initial.end(), found.begin()));
  const std::vector<float> first = RowOf(keys_[0], dim);
  EXPECT_TRUE(
      std::equal(first.begin(), first.end(), found.begin() + static_cast<std::ptrdiff_t>(dim)));
  bool has[2];
  (*rows)->Contains({12345, keys_[0]}, has);
  EXPECT_THAT(has, ElementsAre(false, true));
}

TEST_F(ModelReaderTest, KeysAreThoseOfTraining) {
  const auto keys = reader_->KeysOf("city", {"city7", "city1"});
  ASSERT_TRUE(keys.ok()) << keys.status();
  const uint64_t seed = SlotSeed("city");
  EXPECT_THAT(*keys, ElementsAre(ValueKey("city7", seed), ValueKey("city1", seed)));
  // A bucket's value is its index.
  const auto age = reader_->KeysOf("age", {"40"});
  ASSERT_TRUE(age.ok()) << age.status();
  EXPECT_THAT(*age, ElementsAre(ValueKey("1", SlotSeed("age"))));
  const auto day = reader_->KeysOf("day", {"?", ""});
  ASSERT_TRUE(day.ok()) << day.status();
  EXPECT_THAT(*day, ElementsAre(MissingKey(SlotSeed("day")), MissingKey(SlotSeed("day"))));
  EXPECT_EQ(*reader_->TableOf("city"), "embedding");
}

TEST_F(ModelReaderTest, ValuesWithoutOneKeyAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(reader_->KeysOf("tags", {"a|b"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(reader_->KeysOf("city", {"?"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(reader_->KeysOf("age", {"old"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(reader_->KeysOf("age_x_city", {"1"}).status()));
}

TEST_F(ModelReaderTest, UnknownNamesAreNotFound) {
  const absl::Status feature = reader_->KeysOf("town", {"a"}).status();
  EXPECT_TRUE(absl::IsNotFound(feature));
  EXPECT_THAT(feature.message(), AllOf(HasSubstr("\"town\""), HasSubstr("city")));
  EXPECT_TRUE(absl::IsNotFound(reader_->ReadDense("embedding").status()));
  EXPECT_TRUE(absl::IsNotFound(reader_->ReadRows("nothing").status()));
  EXPECT_TRUE(absl::IsNotFound(ModelReader::Open(dir_ + "/nothing", Env::Real()).status()));
}

TEST_F(ModelReaderTest, ADamagedFileIsNamed) {
  for (const SavedFile& file : reader_->manifest().files()) {
    const std::string path = dir_ + "/" + file.name();
    std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path)) - 40);
    out.put('\x7f');
  }
  const absl::Status rows = reader_->ReadRows("embedding").status();
  EXPECT_TRUE(absl::IsDataLoss(rows)) << rows;
  EXPECT_THAT(rows.message(), HasSubstr("embedding"));
}

}  // namespace
}  // namespace sluice
