// A save that ends at any moment leaves the earlier model or the new one, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "common/saved_model/saved_model.h"
#include "tests/common/base/hooked_env.h"

namespace sluice {
namespace {

class SaveCrashTest : public ::testing::Test {
 protected:
  SaveCrashTest() {
    std::string pattern = ::testing::TempDir() + "/save_crash_test.XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    dir_ = root_ + "/out/model";
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    TableConfig* sparse = tables.Add();
    sparse->set_name("embedding");
    sparse->set_kind(TableConfig::SPARSE);
    sparse->set_num_shards(2);
    auto* group = sparse->add_columns();
    group->set_name("deep");
    group->set_dim(1);
    group->mutable_optimizer()->mutable_adagrad();
    TableConfig* dense = tables.Add();
    dense->set_name("bias");
    dense->set_kind(TableConfig::DENSE);
    dense->add_shape(2);
    dense->mutable_optimizer()->mutable_adam();
    tables_ = *CreateTableLayouts(tables, 1);
    env_.before = [this](const std::string& what, const std::string&) {
      if (changes_left_-- > 0) return absl::OkStatus();
      died_at_.insert(what);
      changes_left_ = 0;
      return absl::InternalError("the machine is gone");
    };
  }
  ~SaveCrashTest() override { std::filesystem::remove_all(root_); }

  // What pservers, rank 0 and the scheduler do for a model whose values are all `value`.
  absl::Status Save(Env* env, const std::string& save_id, float value) {
    Manifest manifest;
    manifest.set_job_id(save_id);
    for (const auto& table : tables_) {
      *manifest.add_tables() = table->config();
      for (uint32_t s = 0; s < table->num_shards(); ++s) {
        ShardValues values;
        if (table->sparse()) {
          for (uint64_t key = 0; key < 20; ++key) {
            if (table->ShardOf(key) == s) values.keys.push_back(key);
          }
          values.weights.assign(values.keys.size(), value);
        } else {
          values.weights.assign(2, value);
        }
        auto file = WriteShardFile(dir_, *table, s, values, env, save_id);
        if (!file.ok()) return file.status();
        *manifest.add_files() = *file;
      }
    }
    JobConfig job;
    job.set_name("job" + save_id);
    const auto prepared = PrepareModel(dir_, job, manifest, env, save_id);
    return prepared.ok() ? CommitModel(dir_, env, save_id) : prepared.status();
  }

  // The save_id of the model in the folder, every file of which is read and checked.
  std::string Loaded() {
    const auto manifest = ReadManifest(dir_);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    if (!manifest.ok()) return "";
    const auto digest = ModelDigest(dir_, *manifest);
    EXPECT_TRUE(digest.ok()) << digest.status();
    EXPECT_EQ(digest.value_or(""), manifest->model_digest());
    const auto job = ReadModelJob(dir_);
    EXPECT_TRUE(job.ok()) << job.status();
    if (job.ok()) EXPECT_EQ(job->name(), "job" + manifest->job_id());
    return manifest->job_id();
  }

  std::string root_, dir_;
  TableLayouts tables_;
  HookedEnv env_;
  int changes_left_ = 0;  // of the disk, before the crash
  std::set<std::string> died_at_;
};

TEST_F(SaveCrashTest, ACrashBetweenAnyTwoStepsLeavesTheOldModelOrTheNew) {
  for (const bool tears : {false, true}) {
    env_.tears_writes = tears;
    std::set<std::string> loaded;
    bool finished = false;
    for (int changes = 0; !finished; ++changes) {
      SCOPED_TRACE(changes);
      std::filesystem::remove_all(root_ + "/out");
      ASSERT_TRUE(Save(Env::Real(), "01d", 1).ok());
      ASSERT_EQ(Loaded(), "01d");
      changes_left_ = changes;
      const absl::Status saved = Save(&env_, "2e2", 2);
      finished = changes_left_ > 0;
      const std::string now = Loaded();
      loaded.insert(now);
      // Who was told that it is saved finds it, and a save that failed may be there or not.
      if (saved.ok()) EXPECT_EQ(now, "2e2");
      // The next save cleans up.
      ASSERT_TRUE(Save(Env::Real(), "3f", 3).ok());
      EXPECT_EQ(Loaded(), "3f");
      EXPECT_THAT(*Env::Real()->List(dir_),
                  ::testing::ElementsAre("MANIFEST", "bias-0.3f.shard", "embedding-0.3f.shard",
                                         "embedding-1.3f.shard", "job.textproto"));
    }
    EXPECT_THAT(loaded, ::testing::ElementsAre("01d", "2e2"));
    EXPECT_THAT(died_at_, ::testing::IsSupersetOf({"mkdir", "remove", "rename", "write"}));
  }
}

TEST_F(SaveCrashTest, ASaveThatIsNotCommittedIsDiscardedAlone) {
  ASSERT_TRUE(Save(Env::Real(), "01d", 1).ok());
  const auto before = *Env::Real()->List(dir_);
  env_.before = [](const std::string& what, const std::string& path) {
    return what == "rename" && path.find("MANIFEST") != std::string::npos
               ? absl::ResourceExhaustedError("disk full")
               : absl::OkStatus();
  };
  EXPECT_EQ(Save(&env_, "2e2", 2).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Loaded(), "01d");
  EXPECT_GT(Env::Real()->List(dir_)->size(), before.size());
  DiscardModel(dir_, Env::Real(), "2e2");
  EXPECT_EQ(*Env::Real()->List(dir_), before);
  EXPECT_EQ(Loaded(), "01d");
}

TEST_F(SaveCrashTest, FilesOfOthersStayWhateverTheirNames) {
  ASSERT_TRUE(Save(Env::Real(), "01d", 1).ok());
  for (const char* name : {"mine.shard", "MANIFEST.old", "job.old.textproto", "x.unfinished"})
    ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/" + name, {"mine"}).ok());
  ASSERT_TRUE(Save(Env::Real(), "2e2", 2).ok());
  EXPECT_THAT(
      *Env::Real()->List(dir_),
      ::testing::IsSupersetOf({"mine.shard", "MANIFEST.old", "job.old.textproto", "x.unfinished"}));
  EXPECT_EQ(Loaded(), "2e2");
}

TEST_F(SaveCrashTest, AJobFileOfAnotherSaveIsNotTakenForTheModels) {
  ASSERT_TRUE(Save(Env::Real(), "01d", 1).ok());
  ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/job.textproto", {"name: \"other\"\n"}).ok());
  EXPECT_EQ(ReadModelJob(dir_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SaveCrashTest, AnIdThatCouldLeadElsewhereIsRefused) {
  for (const char* id : {"../x", "A", "a-1", "a/b", "a.b"})
    EXPECT_EQ(Save(Env::Real(), id, 1).code(), absl::StatusCode::kInvalidArgument) << id;
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

}  // namespace
}  // namespace sluice
