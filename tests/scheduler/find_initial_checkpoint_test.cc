#include "scheduler/find_initial_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kJob[] = R"pb(
  data {
    format: CSV
    train_files: "/data/train.csv"
    csv { header: true }
    label { column: "label" }
  }
  features {
    name: "x"
    numeric {}
  }
  features {
    name: "c"
    categorical {}
  }
  model { wide_deep { embedding_dim: 2 hidden_units: 3 } }
  optimizers {
    all {
      momentum {}
      learning_rate: 0.1
    }
  }
  strategy { a_sync: false }
)pb";

JobConfig Effective(const std::string& more = "") {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(absl::StrCat(kJob, more), &job));
  const auto effective = EffectiveJobConfig(job, "", BuiltInSpecs());
  EXPECT_TRUE(effective.ok()) << effective.status();
  return *effective;
}

class FindInitialCheckpointTest : public testing::Test {
 protected:
  FindInitialCheckpointTest()
      : dir_(absl::StrCat(testing::TempDir(), "/find_initial_checkpoint_test.", getpid())) {
    fs::remove_all(dir_);
  }
  ~FindInitialCheckpointTest() override { fs::remove_all(dir_); }

  // A checkpoint of `job` with all tables but `without`.
  std::string Make(uint64_t step, const JobConfig& job = Effective(),
                   const std::string& without = "", const std::string& mode = "sync") {
    const std::string folder = CheckpointFolder(dir_ + "/checkpoints", step);
    const std::string save_id = CheckpointSaveId(7, step);
    Manifest manifest;
    manifest.set_global_step(step);
    manifest.mutable_checkpoint()->set_mode(mode);
    manifest.mutable_checkpoint()->set_unix_time(static_cast<double>(step));
    const auto model = ModelSpec::Create(job, BuiltInSpecs());
    EXPECT_TRUE(model.ok()) << model.status();
    for (TableConfig table : (*model)->tables()) {
      if (table.kind() == TableConfig::SPARSE) table.set_num_shards(2);
      if (table.name() != without) *manifest.add_tables() = table;
    }
    const auto layouts = CreateTableLayouts(manifest.tables(), 0);
    EXPECT_TRUE(layouts.ok()) << layouts.status();
    for (const auto& table : *layouts) {
      for (uint32_t shard = 0; shard < table->num_shards(); ++shard) {
        ShardValues values;
        if (!table->sparse()) {
          values.first_element = shard * table->block_elements();
          values.weights.resize(table->ShardElements(shard));
        }
        const auto file = WriteShardFile(folder, *table, shard, values, Env::Real(), save_id);
        EXPECT_TRUE(file.ok()) << file.status();
        *manifest.add_files() = *file;
      }
    }
    const absl::Status made = CommitCheckpoint(folder, job, manifest, Env::Real(), save_id);
    EXPECT_TRUE(made.ok()) << made;
    return folder;
  }
  absl::Status Find(JobConfig job, const std::string& folder) {
    job.set_initial_checkpoint(folder);
    warnings_.clear();
    const absl::Status status = FindInitialCheckpoint(Env::Real(), &job, &warnings_);
    found_ = job.initial_checkpoint();
    return status;
  }
  // Changes a byte in the middle of the largest shard file. Returns its name.
  static std::string Damage(const std::string& folder) {
    fs::path largest;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".shard") continue;
      if (largest.empty() || fs::file_size(entry) > fs::file_size(largest)) largest = entry.path();
    }
    std::string bytes = *Env::Real()->ReadFile(largest.string());
    bytes[bytes.size() / 2] ^= 1;
    std::ofstream(largest, std::ios::binary) << bytes;
    return largest.filename().string();
  }

  const std::string dir_;
  std::string found_;
  std::vector<std::string> warnings_;
};

TEST_F(FindInitialCheckpointTest, ACheckpointOrTheNewestOfAFolderIsTaken) {
  const std::string older = Make(5), newer = Make(9);
  ASSERT_TRUE(Find(Effective(), older + "/").ok());
  EXPECT_EQ(found_, older);
  for (const std::string& folder : {dir_ + "/checkpoints", dir_, dir_ + "/"}) {
    const absl::Status status = Find(Effective(), folder);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(found_, newer);
  }
  EXPECT_THAT(warnings_, IsEmpty());
  ASSERT_TRUE(Find(Effective(), "").ok());
  EXPECT_EQ(found_, "");
}

TEST_F(FindInitialCheckpointTest, NoCheckpointAndAModelAreRefused) {
  EXPECT_TRUE(absl::IsNotFound(Find(Effective(), dir_)));
  const std::string folder = Make(5);
  Manifest manifest = *ReadManifest(folder, Env::Real());
  manifest.clear_checkpoint();
  ASSERT_TRUE(FinishModel(folder, Effective(), manifest, Env::Real()).ok());
  const absl::Status model = Find(Effective(), folder);
  EXPECT_TRUE(absl::IsInvalidArgument(model));
  EXPECT_THAT(std::string(model.message()), HasSubstr("initial_model"));
}

TEST_F(FindInitialCheckpointTest, ADamagedOneIsPassedOverInAFolderAndNamed) {
  const std::string older = Make(5), newer = Make(9);
  const std::string name = Damage(newer);
  ASSERT_TRUE(Find(Effective(), dir_).ok());
  EXPECT_EQ(found_, older);
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr(name), HasSubstr(older))));
  Damage(older);
  const absl::Status none = Find(Effective(), dir_);
  EXPECT_TRUE(absl::IsDataLoss(none)) << none;
  EXPECT_THAT(std::string(none.message()), AllOf(HasSubstr("initial_checkpoint"), HasSubstr(name)));
  // What is named itself is never replaced by another.
  fs::remove(newer + "/" + name);
  const absl::Status missing = Find(Effective(), newer);
  EXPECT_TRUE(absl::IsDataLoss(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr(name));
}

TEST_F(FindInitialCheckpointTest, AnotherShapeOrRuleIsRefusedByTable) {
  const std::string folder = Make(5);
  const absl::Status shape = Find(Effective("features { name: \"new\" numeric {} }"), folder);
  EXPECT_TRUE(absl::IsInvalidArgument(shape)) << shape;
  EXPECT_THAT(std::string(shape.message()),
              AllOf(HasSubstr("table 'deep/0/weight'"), HasSubstr("3 x 3"), HasSubstr("4 x 3"),
                    HasSubstr("\"new\"")));
  JobConfig job = Effective();
  *job.mutable_optimizers()->mutable_wide() = OptimizerConfig();
  job.mutable_optimizers()->mutable_wide()->mutable_adam();
  const absl::Status rule = Find(job, folder);
  EXPECT_TRUE(absl::IsInvalidArgument(rule)) << rule;
  EXPECT_THAT(std::string(rule.message()), AllOf(HasSubstr("column 'wide' of table 'embedding'"),
                                                 HasSubstr("momentum"), HasSubstr("adam")));
}

TEST_F(FindInitialCheckpointTest, OtherRatesNewFeaturesAndMissingTablesAreAllowed) {
  const std::string folder = Make(5, Effective(), "wide/bias");
  JobConfig job = Effective("features { name: \"new\" categorical {} in_deep: false }");
  job.mutable_optimizers()->mutable_dense()->set_learning_rate(0.5f);
  job.mutable_optimizers()->mutable_dense()->mutable_schedule()->mutable_cosine()->set_steps(10);
  job.mutable_strategy()->set_a_sync(true);
  const absl::Status status = Find(job, folder);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("\"new\""), HasSubstr("table 'wide/bias'")));
}

TEST_F(FindInitialCheckpointTest, GeoIsAWarningInBothDirections) {
  const std::string folder = Make(5);
  JobConfig job = Effective();
  job.mutable_strategy()->set_a_sync(true);
  job.mutable_strategy()->mutable_a_sync_configs()->set_k_steps(10);
  ASSERT_TRUE(Find(job, folder).ok());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("geo")));
  ASSERT_TRUE(Find(Effective(), Make(6, job, "", "geo")).ok());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("geo")));
}

}  // namespace
}  // namespace sluice
