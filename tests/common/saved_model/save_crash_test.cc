// Tests that a save that ends at any moment leaves the earlier model or the new one, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "common/saved_model/saved_model.h"
#include "tests/common/base/hooked_env.h"

namespace sluice {
namespace {

const std::string kFirst = "000000000000001d", kSecond = "00000000000002e2",
                  kThird = "00000000abcdef3f";

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
      return absl::InternalError("the machine crashed");
    };
  }
  ~SaveCrashTest() override { std::filesystem::remove_all(root_); }

  // Saves a model whose values are all `value`, as pservers, rank 0 and the scheduler do together.
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

  // Reads and checks every file of the model in the folder, and returns its save_id.
  std::string Loaded() {
    const auto manifest = ReadManifest(dir_, Env::Real());
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    if (!manifest.ok()) return "";
    const auto digest = ModelDigest(dir_, *manifest, Env::Real());
    EXPECT_TRUE(digest.ok()) << digest.status();
    EXPECT_EQ(digest.value_or(""), manifest->model_digest());
    const auto job = ReadModelJob(dir_, Env::Real());
    EXPECT_TRUE(job.ok()) << job.status();
    if (job.ok()) EXPECT_EQ(job->name(), "job" + manifest->job_id());
    return manifest->job_id();
  }

  std::string root_, dir_;
  TableLayouts tables_;
  HookedEnv env_;
  int changes_left_ = 0;  // changes of the disk until the crash
  std::set<std::string> died_at_;
};

TEST_F(SaveCrashTest, ACrashBetweenAnyTwoStepsLeavesTheOldOrTheNewModel) {
  for (const bool tears : {false, true}) {
    env_.tears_writes = tears;
    std::set<std::string> loaded;
    bool finished = false;
    for (int changes = 0; !finished; ++changes) {
      SCOPED_TRACE(changes);
      std::filesystem::remove_all(root_ + "/out");
      ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
      ASSERT_EQ(Loaded(), kFirst);
      changes_left_ = changes;
      const absl::Status saved = Save(&env_, kSecond, 2);
      finished = changes_left_ > 0;
      const std::string now = Loaded();
      loaded.insert(now);
      // A save that reported success must be there. One that failed may be there or not.
      if (saved.ok()) EXPECT_EQ(now, kSecond);
      // The next save cleans up.
      ASSERT_TRUE(Save(Env::Real(), kThird, 3).ok());
      EXPECT_EQ(Loaded(), kThird);
      EXPECT_THAT(*Env::Real()->List(dir_),
                  ::testing::ElementsAre("MANIFEST", "bias-0." + kThird + ".shard",
                                         "embedding-0." + kThird + ".shard",
                                         "embedding-1." + kThird + ".shard", "job.textproto"));
    }
    EXPECT_THAT(loaded, ::testing::ElementsAre(kFirst, kSecond));
    EXPECT_THAT(died_at_, ::testing::IsSupersetOf({"mkdir", "remove", "rename", "write"}));
  }
}

TEST_F(SaveCrashTest, DiscardModelRemovesOnlyTheUncommittedSave) {
  ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
  const auto before = *Env::Real()->List(dir_);
  env_.before = [](const std::string& what, const std::string& path) {
    return what == "rename" && path.find("MANIFEST") != std::string::npos
               ? absl::ResourceExhaustedError("disk full")
               : absl::OkStatus();
  };
  EXPECT_EQ(Save(&env_, kSecond, 2).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Loaded(), kFirst);
  EXPECT_GT(Env::Real()->List(dir_)->size(), before.size());
  DiscardModel(dir_, Env::Real(), kSecond);
  EXPECT_EQ(*Env::Real()->List(dir_), before);
  EXPECT_EQ(Loaded(), kFirst);
}

TEST_F(SaveCrashTest, ForeignFilesStayWhateverTheirNames) {
  ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
  for (const char* name : {"mine.shard", "MANIFEST.old", "job.old.textproto", "x.unfinished"})
    ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/" + name, {"mine"}).ok());
  ASSERT_TRUE(Save(Env::Real(), kSecond, 2).ok());
  EXPECT_THAT(
      *Env::Real()->List(dir_),
      ::testing::IsSupersetOf({"mine.shard", "MANIFEST.old", "job.old.textproto", "x.unfinished"}));
  EXPECT_EQ(Loaded(), kSecond);
}

TEST_F(SaveCrashTest, CopiesThatPeopleMakeStay) {
  ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
  const std::string shard = "bias-0." + kFirst + ".shard", job = "job.textproto";
  const std::pair<std::string, std::string> copies[] = {{"MANIFEST", "MANIFEST.old"},
                                                        {"MANIFEST", "MANIFEST." + kFirst + ".old"},
                                                        {"MANIFEST", "MANIFEST.bak.unfinished"},
                                                        {"MANIFEST", "MANIFEST-2.7.7.unfinished"},
                                                        {job, "job.old.textproto"},
                                                        {job, "job.bak_textproto"},
                                                        {job, "job.1.textproto.unfinished"},
                                                        {job, "job." + kFirst + ".old.textproto"},
                                                        {shard, "bias-0.old.shard"},
                                                        {shard, "bias-0." + kFirst + ".copy.shard"},
                                                        {shard, "bias.shard"},
                                                        {shard, shard + ".unfinished"}};
  for (const auto& [from, to] : copies)
    std::filesystem::copy_file(dir_ + "/" + from, dir_ + "/" + to);
  ASSERT_TRUE(Save(Env::Real(), kSecond, 2).ok());
  for (const auto& [from, to] : copies) EXPECT_TRUE(Env::Real()->Exists(dir_ + "/" + to)) << to;
  EXPECT_FALSE(Env::Real()->Exists(dir_ + "/" + shard));
  EXPECT_EQ(Loaded(), kSecond);
}

TEST_F(SaveCrashTest, AJobFileOfAnotherSaveIsDataLoss) {
  ASSERT_TRUE(Save(Env::Real(), kFirst, 1).ok());
  ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/job.textproto", {"name: \"other\"\n"}).ok());
  EXPECT_EQ(ReadModelJob(dir_, Env::Real()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SaveCrashTest, ASaveIdThatCouldLeadElsewhereIsRefused) {
  for (const char* id : {"../x", "5a", "000000000000005A", "00000000000000-1", "0000000000000/5a",
                         "0000000000000.5a", "0000000000000005a"})
    EXPECT_EQ(Save(Env::Real(), id, 1).code(), absl::StatusCode::kInvalidArgument) << id;
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

}  // namespace
}  // namespace sluice
