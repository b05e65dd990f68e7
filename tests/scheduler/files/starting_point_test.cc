#include "scheduler/files/starting_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "common/table/table_layout.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"
#include "model/resume_match.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FindResumePointTest : public testing::Test {
 protected:
  FindResumePointTest() : dir_(absl::StrCat(testing::TempDir(), "/find_resume_point.", getpid())) {
    fs::remove_all(dir_);
    JobConfig* config = request_.mutable_config();
    config->set_output_dir(dir_);
    config->set_worker_num(1);
    config->mutable_train()->set_batch_size(10);
    config->mutable_train()->set_epochs(3);
    config->mutable_strategy()->set_a_sync(false);
    request_.set_resume(true);
  }
  ~FindResumePointTest() override { fs::remove_all(dir_); }

  void Make(uint64_t step, double unix_time) {
    Manifest manifest;
    manifest.set_job_id("job-1");
    manifest.set_global_step(step);
    CheckpointState* state = manifest.mutable_checkpoint();
    state->set_mode("sync");
    state->set_global_step(step);
    state->set_worker_num(1);
    state->set_global_batch(10);
    state->set_epoch(1);
    state->set_steps_done(3);
    state->set_steps_per_epoch(5);
    state->set_unix_time(unix_time);
    state->add_workers();
    if (!best_.empty()) {
      state->mutable_result()->mutable_best()->set_epoch(1);
      state->mutable_result()->mutable_best()->set_save_id(best_);
    }
    const absl::Status made =
        CommitCheckpoint(CheckpointFolder(dir_ + "/checkpoints", step), request_.config(), manifest,
                         Env::Real(), CheckpointSaveId(7, step));
    ASSERT_TRUE(made.ok()) << made;
  }
  absl::StatusOr<std::unique_ptr<const ResumePoint>> Find() {
    warnings_.clear();
    return FindResumePoint(request_, Env::Real(), Clock::Real(), &warnings_);
  }

  const std::string dir_;
  SubmitJobRequest request_;
  std::vector<std::string> warnings_;
  std::string best_;  // BestEpoch.save_id of the checkpoints; empty: none
};

TEST_F(FindResumePointTest, WithoutACheckpointTheJobBeginsAndSaysSo) {
  const auto none = Find();
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(*none, nullptr);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr(dir_ + "/checkpoints"));
}

TEST_F(FindResumePointTest, TheNewestIsTaken) {
  Make(8, 1000);
  Make(13, 2000);
  const auto point = Find();
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_NE(*point, nullptr);
  EXPECT_EQ((*point)->dir, dir_ + "/checkpoints/step-13");
  EXPECT_EQ((*point)->state().global_step(), 13u);
  EXPECT_EQ((*point)->initial_checkpoint, "");
  request_.mutable_config()->set_initial_checkpoint("/other");
  EXPECT_EQ((*Find())->initial_checkpoint, "") << "what the saved job started from";
  EXPECT_GT((*point)->age, absl::Hours(1));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(FindResumePointTest, AJobKeepsTheKeysOfItsUnknownValues) {
  Feature* const feature = request_.mutable_config()->add_features();
  feature->set_name("c");
  feature->mutable_categorical()->set_hash_buckets(2);
  feature->mutable_categorical()->add_vocabulary("a");
  Make(8, 1000);  // by a version that did not separate them
  feature->mutable_categorical()->set_separate_unknown(true);
  EXPECT_TRUE(Find().ok()) << Find().status();
  JobConfig saved = request_.config();
  saved.mutable_features(0)->mutable_categorical()->clear_separate_unknown();
  KeepUnknownValues(saved, request_.mutable_config());
  EXPECT_FALSE(feature->categorical().has_separate_unknown());
}

TEST_F(FindResumePointTest, ABestModelThatIsGoneIsForgottenWithAWarning) {
  request_.mutable_config()->mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  best_ = EpochSaveId(7, 0);
  Make(8, 1000);
  const std::string model = dir_ + "/model";
  ASSERT_TRUE(PrepareModel(model, request_.config(), Manifest(), Env::Real(), best_).ok());
  EXPECT_EQ((*Find())->state().result().best().save_id(), best_);
  EXPECT_THAT(warnings_, IsEmpty());
  DiscardModel(model, Env::Real(), best_);
  EXPECT_FALSE((*Find())->state().result().has_best());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("epoch 1")));
}

TEST_F(FindResumePointTest, AnotherJobIsRefusedByItsField) {
  Make(8, 1000);
  request_.mutable_config()->mutable_train()->set_batch_size(20);
  const absl::Status refused = Find().status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("train.batch_size"));
  request_.mutable_config()->mutable_train()->set_batch_size(10);
  request_.mutable_config()->mutable_train()->set_epochs(1);
  EXPECT_THAT(std::string(Find().status().message()), HasSubstr("train.epochs"));
  request_.mutable_config()->mutable_train()->set_epochs(2);
  request_.mutable_config()->set_worker_num(4);
  EXPECT_TRUE(Find().ok());
}

TEST_F(FindResumePointTest, ATimeAheadOfThisClockIsWarnedOfAndIsNoAge) {
  const double now = absl::ToDoubleSeconds(Clock::Real()->WallNow() - absl::UnixEpoch());
  Make(5, now + 3);
  auto point = Find();
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ((*point)->age, absl::ZeroDuration());
  EXPECT_THAT(warnings_, testing::IsEmpty()) << "clocks differ by seconds";
  Make(6, now + 3600);
  point = Find();
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ((*point)->age, absl::ZeroDuration());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("step-6"));
}

TEST_F(FindResumePointTest, DamagedCheckpointIsNamedAndSkippedOnlyIfAllowed) {
  Make(8, 1000);
  Make(13, 2000);
  const std::string manifest = dir_ + "/checkpoints/step-13/MANIFEST";
  std::string text = *Env::Real()->ReadFile(manifest);
  text[text.find("global_step: 13") + 13] = '2';
  std::ofstream(manifest) << text;
  const absl::Status damaged = Find().status();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()),
              testing::AllOf(HasSubstr("step-13/MANIFEST"), HasSubstr("--allow_older")));
  request_.set_allow_older(true);
  const auto older = Find();
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ((*older)->dir, dir_ + "/checkpoints/step-8");
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("step-13"));
}

TEST_F(FindResumePointTest, ASubmissionThatCannotResumeIsRefused) {
  request_.mutable_config()->clear_output_dir();
  EXPECT_TRUE(absl::IsInvalidArgument(Find().status()));
}

TEST_F(FindResumePointTest, FramesThatSomeShardsLackAreCountedAsRepeats) {
  JobConfig* config = request_.mutable_config();
  config->mutable_strategy()->set_a_sync(true);
  google::protobuf::RepeatedPtrField<TableConfig> configs;
  TableConfig* dense = configs.Add();
  dense->set_name("bias");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(2);
  dense->mutable_optimizer()->mutable_sgd();
  dense->mutable_initializer()->set_constant(0);
  *configs.Add() = *dense;
  configs.Mutable(1)->set_name("weights");
  const TableLayouts tables = *CreateTableLayouts(configs, 1);
  const std::string dir = CheckpointFolder(dir_ + "/checkpoints", 8);
  const std::string id = CheckpointSaveId(7, 1);
  Manifest manifest;
  manifest.set_job_id("job-1");
  manifest.set_global_step(8);
  const float values[2] = {1, 2};
  for (size_t t = 0; t < tables.size(); ++t) {
    *manifest.add_tables() = tables[t]->config();
    CutState state;
    state.facts.emplace();
    for (const uint64_t rank : {0, 1}) {
      RankPosition* at = state.facts->add_ranks();
      at->set_sequence(5 + t);
      // Table 1 is a frame of 10 examples ahead. What it holds of rank 1 is of an earlier epoch.
      at->set_epoch(1 - rank);
      at->mutable_totals()->set_examples(50 + 10 * t);
    }
    const auto cut = CutOfElements(
        *tables[t], 0, {std::shared_ptr<const float>(std::shared_ptr<void>(), values)}, state);
    const auto file = WriteShardFile(dir, *tables[t], 0, cut.get(), Env::Real(), id);
    ASSERT_TRUE(file.ok()) << file.status();
    *manifest.add_files() = *file;
  }
  CheckpointState* state = manifest.mutable_checkpoint();
  state->set_mode("async");
  state->set_global_step(8);
  state->set_worker_num(2);
  state->set_epoch(1);
  state->set_task_bytes(100);
  state->add_workers()->mutable_train()->set_examples(50);
  state->add_workers();
  config->set_worker_num(2);
  const absl::Status made = CommitCheckpoint(dir, *config, manifest, Env::Real(), id);
  ASSERT_TRUE(made.ok()) << made;
  auto point = Find();
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ((*point)->examples_replayed, 10u);
  EXPECT_THAT(warnings_, IsEmpty());
  config->set_worker_num(3);
  EXPECT_TRUE(Find().ok());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(FindResumePointTest, GeoOnOtherWorkersWarnsThatOptimizerStateStartsAtZero) {
  JobConfig* config = request_.mutable_config();
  config->mutable_strategy()->set_a_sync(true);
  config->mutable_strategy()->mutable_a_sync_configs()->set_k_steps(5);
  Manifest manifest;
  manifest.set_job_id("job-1");
  manifest.set_global_step(8);
  CheckpointState* state = manifest.mutable_checkpoint();
  state->set_mode("geo");
  state->set_worker_num(1);
  state->set_task_bytes(100);
  state->add_workers();
  const absl::Status made = CommitCheckpoint(CheckpointFolder(dir_ + "/checkpoints", 8), *config,
                                             manifest, Env::Real(), CheckpointSaveId(7, 1));
  ASSERT_TRUE(made.ok()) << made;
  ASSERT_TRUE(Find().ok()) << Find().status();
  EXPECT_THAT(warnings_, IsEmpty());
  config->set_worker_num(2);
  ASSERT_TRUE(Find().ok()) << Find().status();
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("optimizer state"));
}

class FindRestartPointTest : public testing::Test {
 protected:
  FindRestartPointTest()
      : dir_(absl::StrCat(testing::TempDir(), "/find_restart_point.", getpid())) {
    fs::remove_all(dir_);
    record_.set_begun(true);
    record_.add_instances(7);
    record_.add_instances(9);
    JobConfig* config = record_.mutable_config();
    config->set_output_dir(dir_);
    config->set_worker_num(1);
    config->mutable_train()->set_batch_size(10);
    config->mutable_train()->set_epochs(3);
    config->mutable_strategy()->set_a_sync(false);
  }
  ~FindRestartPointTest() override { fs::remove_all(dir_); }

  std::string Make(uint64_t instance, uint64_t step, double unix_time) {
    Manifest manifest;
    manifest.set_global_step(step);
    CheckpointState* state = manifest.mutable_checkpoint();
    state->set_mode("sync");
    state->set_global_step(step);
    state->set_worker_num(1);
    state->set_global_batch(10);
    state->set_steps_done(3);
    state->set_steps_per_epoch(5);
    state->set_unix_time(unix_time);
    state->add_workers();
    const std::string dir = CheckpointFolder(dir_ + "/checkpoints", step);
    const absl::Status made = CommitCheckpoint(dir, record_.config(), manifest, Env::Real(),
                                               CheckpointSaveId(instance, step));
    EXPECT_TRUE(made.ok()) << made;
    return dir;
  }
  // The folder, "beginning", or the error.
  std::string Find() {
    const auto point = FindRestartPoint(record_, verify_, Env::Real(), Clock::Real(), &warnings_);
    if (!point.ok()) return point.status().ToString();
    return *point == nullptr ? "beginning" : (*point)->dir;
  }

  const std::string dir_;
  JobRecord record_;
  bool verify_ = true;
  std::vector<std::string> warnings_;
};

TEST_F(FindRestartPointTest, TheNewestOfItsOwnAttemptsIsTaken) {
  EXPECT_EQ(Find(), "beginning");
  Make(7, 2, 1000);
  const std::string newest = Make(9, 1, 2000);
  EXPECT_EQ(Find(), newest);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(FindRestartPointTest, TheCheckpointsOfAnEarlierJobAreNoneOfThisOnes) {
  const std::string earlier = Make(5, 2, 1000);
  EXPECT_EQ(Find(), "beginning");
  record_.set_resume_from(earlier);
  EXPECT_EQ(Find(), earlier);
  const std::string own = Make(9, 4, 2000);
  EXPECT_EQ(Find(), own);
}

TEST_F(FindRestartPointTest, NewerCheckpointOfAnUnrecordedAttemptIsIgnored) {
  const std::string own = Make(9, 2, 1000);
  const std::string unrecorded = Make(11, 4, 2000);
  EXPECT_EQ(Find(), own);
  EXPECT_TRUE(warnings_.empty());
  fs::resize_file(own + "/MANIFEST", 20);  // older than none of its own
  EXPECT_THAT(Find(), testing::HasSubstr(own));
}

TEST_F(FindRestartPointTest, WithoutVerificationNoneIsPassedOver) {
  record_.set_allow_older(true);
  const std::string older = Make(7, 2, 1000), newest = Make(7, 4, 2000);
  verify_ = false;
  EXPECT_EQ(Find(), newest);
  fs::resize_file(newest + "/MANIFEST", 20);
  EXPECT_THAT(Find(), testing::HasSubstr(newest));
  verify_ = true;
  EXPECT_EQ(Find(), older);
}

TEST_F(FindRestartPointTest, AJobThatHasNotBegunStartsWhereItWasSubmittedTo) {
  record_.set_begun(false);
  record_.clear_instances();
  const std::string earlier = Make(5, 2, 1000);
  EXPECT_EQ(Find(), "beginning");
  record_.set_resume_from(earlier);
  EXPECT_EQ(Find(), earlier);
  fs::remove_all(earlier);
  EXPECT_THAT(Find(), testing::HasSubstr(earlier));
}

TEST_F(FindRestartPointTest, DamagedCheckpointIsNamedOrSkippedWhereAllowed) {
  const std::string older = Make(7, 2, 1000), newest = Make(7, 4, 2000);
  fs::resize_file(newest + "/MANIFEST", 20);
  EXPECT_THAT(Find(), testing::AllOf(testing::HasSubstr("DATA_LOSS"), testing::HasSubstr(newest)));
  record_.set_allow_older(true);
  EXPECT_EQ(Find(), older);
  EXPECT_EQ(warnings_.size(), 1);
}

TEST_F(FindRestartPointTest, ADamagedOneOfAnotherJobIsNoneOfThisOnes) {
  const std::string own = Make(7, 2, 1000), other = Make(5, 4, 2000);
  const std::string shard = absl::StrCat(other, "/a-0.", CheckpointSaveId(5, 4), ".shard");
  std::ofstream(shard) << "?";
  fs::resize_file(other + "/MANIFEST", 20);
  EXPECT_EQ(Find(), own);
  fs::remove(shard);  // now it may be of any job
  EXPECT_THAT(Find(), testing::HasSubstr("DATA_LOSS"));
}

TEST_F(FindRestartPointTest, AJobWithoutCheckpointsStartsAgain) {
  record_.mutable_config()->set_evaluate_only(true);
  Make(7, 2, 1000);
  EXPECT_EQ(Find(), "beginning");
}

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

class NoRows : public ShardRows {
 public:
  uint64_t size() const override { return 0; }
  absl::StatusOr<size_t> ReadKeys(uint64_t, size_t, uint64_t*, uint32_t*) override { return 0; }
  absl::Status ReadRecords(const uint32_t*, size_t, size_t, char*) override {
    return absl::OkStatus();
  }
};

class FindInitialCheckpointTest : public testing::Test {
 protected:
  FindInitialCheckpointTest()
      : dir_(absl::StrCat(testing::TempDir(), "/find_initial_checkpoint.", getpid())) {
    fs::remove_all(dir_);
  }
  ~FindInitialCheckpointTest() override { fs::remove_all(dir_); }

  // A checkpoint of `job` with all tables but `without`. Its tables whose rows expire are of the
  // day `day`.
  std::string Make(uint64_t step, const JobConfig& job = Effective(),
                   const std::string& without = "", const std::string& mode = "sync",
                   int32_t day = 0) {
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
        CutState state;
        state.facts.emplace().add_days()->set_day(day);
        const auto cut = CutOfRows(*table, shard, std::make_unique<NoRows>(), state);
        const auto file =
            table->config().has_expire()
                ? WriteShardFile(folder, *table, shard, cut.get(), Env::Real(), save_id)
                : WriteShardFile(folder, *table, shard, values, Env::Real(), save_id);
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
    const auto start = FindInitialCheckpoint(Env::Real(), &job);
    found_ = job.initial_checkpoint();
    start_ = start.value_or(StartCheck());
    warnings_ = start_.warnings;
    return start.status();
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
  StartCheck start_;
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
  const absl::Status none = Find(Effective(), dir_);
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("checkpoint.at_end"), HasSubstr("checkpoint.keep")));
  const std::string folder = Make(5);
  Manifest manifest = *ReadManifest(folder, Env::Real());
  manifest.clear_checkpoint();
  ASSERT_TRUE(FinishModel(folder, Effective(), manifest, Env::Real()).ok());
  const absl::Status model = Find(Effective(), folder);
  EXPECT_TRUE(absl::IsInvalidArgument(model));
  EXPECT_THAT(std::string(model.message()), HasSubstr("initial_model"));
}

TEST_F(FindInitialCheckpointTest, DamagedCheckpointInAFolderIsSkippedAndNamed) {
  const std::string older = Make(5), newer = Make(9);
  const std::string name = Damage(newer);
  ASSERT_TRUE(Find(Effective(), dir_).ok());
  EXPECT_EQ(found_, older);
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr(name), HasSubstr(older))));
  Damage(older);
  const absl::Status none = Find(Effective(), dir_);
  EXPECT_TRUE(absl::IsDataLoss(none)) << none;
  EXPECT_THAT(std::string(none.message()), AllOf(HasSubstr("initial_checkpoint"), HasSubstr(name)));
  // A checkpoint that the job names directly is never replaced by another one.
  fs::remove(newer + "/" + name);
  const absl::Status missing = Find(Effective(), newer);
  EXPECT_TRUE(absl::IsDataLoss(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr(name));
}

TEST_F(FindInitialCheckpointTest, AnotherShapeOrRuleIsRefusedByTable) {
  const std::string folder = Make(5);
  JobConfig job = Effective();
  job.mutable_model()->mutable_wide_deep()->set_hidden_units(0, 5);
  const absl::Status shape = Find(job, folder);
  EXPECT_TRUE(absl::IsInvalidArgument(shape)) << shape;
  EXPECT_THAT(std::string(shape.message()),
              AllOf(HasSubstr("table 'deep/0/weight'"), HasSubstr("3 x 3"), HasSubstr("3 x 5")));
  job = Effective();
  *job.mutable_optimizers()->mutable_wide() = OptimizerConfig();
  job.mutable_optimizers()->mutable_wide()->mutable_adam();
  const absl::Status rule = Find(job, folder);
  EXPECT_TRUE(absl::IsInvalidArgument(rule)) << rule;
  EXPECT_THAT(std::string(rule.message()), AllOf(HasSubstr("column 'wide' of table 'embedding'"),
                                                 HasSubstr("momentum"), HasSubstr("adam")));
}

TEST_F(FindInitialCheckpointTest, ShardsOfATableWhoseRowsGoAreThoseOfTheCheckpoint) {
  const std::string expires = "tables { name: \"embedding\" expire { after_steps: 9 } }";
  const std::string folder = Make(5, Effective(expires));
  JobConfig job = Effective(expires);
  for (const uint32_t shards : {0u, 2u}) {
    job.mutable_tables(0)->set_num_shards(shards);
    const absl::Status fits = Find(job, folder);
    EXPECT_TRUE(fits.ok()) << fits;
  }
  job.mutable_tables(0)->set_num_shards(256);
  const absl::Status other = Find(job, folder);
  EXPECT_TRUE(absl::IsInvalidArgument(other)) << other;
  EXPECT_THAT(std::string(other.message()),
              AllOf(HasSubstr("num_shards is 256"), HasSubstr("has 2;")));
}

TEST_F(FindInitialCheckpointTest, TablesFollowTheFeatures) {
  const std::string folder = Make(5);
  ASSERT_TRUE(Find(Effective("features { name: \"new\" numeric {} }"), folder).ok());
  EXPECT_THAT(start_.notes,
              testing::Contains(AllOf(HasSubstr("initial_checkpoint"), HasSubstr("\"new\""))));
  EXPECT_THAT(start_.notes, testing::Contains(HasSubstr("'deep/0/weight': 3 rows kept, 1 init")));
  for (const TableConfig& table : start_.tables) {
    const bool reads_numbers = table.name() == "deep/0/weight" || table.name() == "wide/weight";
    EXPECT_EQ(table.start().table(), reads_numbers ? table.name() : "");
  }
  // The same features: nothing is to be said, and no table has a start.
  ASSERT_TRUE(Find(Effective(), folder).ok());
  EXPECT_THAT(start_.notes, testing::IsEmpty());
  for (const TableConfig& table : start_.tables) EXPECT_FALSE(table.has_start()) << table.name();
}

TEST_F(FindInitialCheckpointTest, DaysDoNotGoBack) {
  const auto job = [](const char* day, uint32_t min_count = 0) {
    JobConfig of_day;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kJob, &of_day));
    of_day.mutable_data()->set_day(day);
    TableConfig* const table = of_day.add_tables();
    table->set_name("embedding");
    table->mutable_expire()->set_after_days(9);
    table->mutable_expire()->set_min_count(min_count);
    const auto effective = EffectiveJobConfig(of_day, "", BuiltInSpecs());
    EXPECT_TRUE(effective.ok()) << effective.status();
    return *effective;
  };
  const std::string folder = Make(5, job("2026-11-30"), "", "sync", 20787);  // 2026-11-30
  for (const char* day : {"2026-11-30", "2026-12-09"}) {
    const absl::Status later = Find(job(day), folder);
    EXPECT_TRUE(later.ok()) << later;
    EXPECT_THAT(warnings_, testing::IsEmpty());
  }
  for (const uint32_t min_count : {0u, 20u}) {
    ASSERT_TRUE(Find(job("2026-12-10", min_count), folder).ok());
    EXPECT_THAT(warnings_,
                ElementsAre(AllOf(HasSubstr("all rows of table 'embedding'"),
                                  HasSubstr("2026-12-10"), HasSubstr("2026-11-30"),
                                  min_count > 0 ? HasSubstr("20 updates (min_count)")
                                                : HasSubstr("'embedding' expire at once"))));
  }
  const absl::Status earlier = Find(job("2026-11-29"), folder);
  EXPECT_TRUE(absl::IsInvalidArgument(earlier)) << earlier;
  EXPECT_THAT(std::string(earlier.message()), AllOf(HasSubstr("data.day"), HasSubstr("2026-11-29"),
                                                    HasSubstr("2026-11-30"), HasSubstr(folder)));
  // The check of a dry run says the same.
  JobConfig dry = job("2026-11-29");
  dry.set_initial_checkpoint(folder);
  EXPECT_EQ(CheckInitialCheckpoint(dry, BuiltInSpecs(), Env::Real()).status(), earlier);
  dry = job("2027-11-30");
  dry.set_initial_checkpoint(folder);
  const auto too_late = CheckInitialCheckpoint(dry, BuiltInSpecs(), Env::Real());
  ASSERT_TRUE(too_late.ok()) << too_late.status();
  EXPECT_THAT(too_late->warnings, ElementsAre(HasSubstr("expire at once")));
  EXPECT_TRUE(Find(Effective(), folder).ok()) << "a job without days";
}

TEST_F(FindInitialCheckpointTest, OtherRatesNewFeaturesAndMissingTablesAreAllowed) {
  const std::string folder = Make(5, Effective(), "wide/bias");
  JobConfig job = Effective("features { name: \"new\" categorical {} in_deep: false }");
  job.mutable_optimizers()->mutable_dense()->set_learning_rate(0.5f);
  job.mutable_optimizers()->mutable_dense()->mutable_schedule()->mutable_cosine()->set_steps(10);
  job.mutable_strategy()->set_a_sync(true);
  const absl::Status status = Find(job, folder);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("table 'wide/bias'"))) << "notes tell of features";
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
