#include "common/saved_model/checkpoint.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/saved_model/saved_model.h"
#include "tests/common/base/hooked_env.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kInstance = 77;

// Rows whose floats are all `value`, in the form of a checkpoint.
class StateRows : public ShardRows {
 public:
  StateRows(std::vector<uint64_t> keys, float value) : keys_(std::move(keys)), value_(value) {}
  uint64_t size() const override { return keys_.size(); }
  absl::Status ReadKeys(uint64_t first, size_t n, uint64_t* keys) override {
    std::copy_n(keys_.begin() + static_cast<int64_t>(first), n, keys);
    return absl::OkStatus();
  }
  absl::Status ReadRecords(const uint32_t*, size_t n, size_t stride, char* to) override {
    for (size_t i = 0; i < n; ++i, to += stride) {
      std::memset(to, 7, kRowHistoryBytes);
      for (size_t at = kRowHistoryBytes; at < kRowHistoryBytes + 2 * sizeof(float);
           at += sizeof(float)) {
        std::memcpy(to + at, &value_, sizeof(value_));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<uint64_t> keys_;
  const float value_;
};

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = ::testing::TempDir() + "/checkpoint_test.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    root_ = folder_ + "/out/checkpoints";
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
    dense->mutable_optimizer()->mutable_adagrad();
    tables_ = *CreateTableLayouts(tables, 1);
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder_); }

  // What the pservers write.
  absl::StatusOr<Manifest> WriteShards(uint64_t step, uint64_t number, float value, Env* env) {
    const std::string dir = CheckpointFolder(root_, step);
    Manifest manifest;
    manifest.set_job_id("a-1");
    manifest.set_global_step(step);
    manifest.mutable_checkpoint()->set_mode("sync");
    manifest.mutable_checkpoint()->set_global_step(step);
    manifest.mutable_checkpoint()->set_unix_time(1e9 + static_cast<double>(number));
    CutState state;
    state.facts.emplace().set_closed(step);
    state.state_floats = 1;
    const std::vector<float> array(2, value);
    for (const auto& table : tables_) {
      *manifest.add_tables() = table->config();
      for (uint32_t s = 0; s < table->num_shards(); ++s) {
        std::unique_ptr<ShardCut> cut;
        if (table->sparse()) {
          std::vector<uint64_t> keys;
          for (uint64_t key = 0; key < 20; ++key) {
            if (table->ShardOf(key) == s) keys.push_back(key);
          }
          cut = CutOfRows(*table, s, std::make_unique<StateRows>(keys, value), state);
        } else {
          const std::shared_ptr<const float> lent(std::shared_ptr<void>(), array.data());
          cut = CutOfElements(*table, s, {lent, lent}, state);
        }
        auto file = WriteShardFile(dir, *table, s, cut.get(), env,
                                   CheckpointSaveId(kInstance, number));
        if (!file.ok()) return file.status();
        *manifest.add_files() = *file;
      }
    }
    return manifest;
  }

  static JobConfig Job(uint64_t number) {
    JobConfig job;
    job.set_name(absl::StrCat("job", number));
    return job;
  }

  absl::Status Commit(uint64_t step, uint64_t number, const Manifest& manifest, Env* env) {
    return CommitCheckpoint(CheckpointFolder(root_, step), Job(number), manifest, env,
                            CheckpointSaveId(kInstance, number));
  }

  absl::Status Save(uint64_t step, uint64_t number, Env* env = Env::Real()) {
    const auto manifest = WriteShards(step, number, static_cast<float>(number), env);
    return manifest.ok() ? Commit(step, number, *manifest, env) : manifest.status();
  }

  absl::StatusOr<CheckpointInfo> Choose(bool allow_older = false) {
    skipped_.clear();
    return ChooseCheckpoint(root_, allow_older, Env::Real(), &skipped_);
  }

  // The number of the checkpoint that is chosen, all of which is read and is of one save. 0: none.
  uint64_t Loaded() {
    const auto chosen = Choose();
    if (absl::IsNotFound(chosen.status())) return 0;
    EXPECT_TRUE(chosen.ok()) << chosen.status();
    if (!chosen.ok()) return 0;
    const absl::Status intact = VerifyCheckpoint(chosen->dir, Env::Real(), nullptr);
    EXPECT_TRUE(intact.ok()) << intact;
    const auto job = ReadModelJob(chosen->dir, Env::Real());
    EXPECT_TRUE(job.ok()) << job.status();
    std::set<float> values;
    for (const auto& table : tables_) {
      const absl::Status read = VisitShards(chosen->dir, chosen->manifest, table->name(),
                                            Env::Real(), [&](uint32_t, ShardValues shard) {
                                              values.insert(shard.weights.begin(),
                                                            shard.weights.end());
                                              return absl::OkStatus();
                                            });
      EXPECT_TRUE(read.ok()) << read;
    }
    EXPECT_THAT(values, SizeIs(1));
    const auto number = static_cast<uint64_t>(*values.begin());
    EXPECT_EQ(job->name(), Job(number).name());
    return number;
  }

  std::vector<uint64_t> Steps() {
    std::vector<uint64_t> steps;
    for (const CheckpointInfo& one : ListCheckpoints(root_, Env::Real(), nullptr))
      steps.push_back(one.step);
    return steps;
  }

  std::string Path(uint64_t step, const std::string& name) {
    return CheckpointFolder(root_, step) + "/" + name;
  }
  std::string Read(const std::string& path) { return *Env::Real()->ReadFile(path); }
  static void Overwrite(const std::string& path, const std::string& bytes) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
    EXPECT_EQ(std::fclose(file), 0);
  }

  std::string folder_, root_;
  TableLayouts tables_;
  std::vector<std::string> skipped_;
};

TEST_F(CheckpointTest, SaveIdsAreValidAndDiffer) {
  std::set<std::string> ids;
  for (uint64_t instance : {1, 2, 3}) {
    for (uint64_t number = 1; number <= 100; ++number) {
      const std::string id = CheckpointSaveId(instance, number);
      EXPECT_EQ(id.size(), 16u);
      EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
      ids.insert(id);
    }
  }
  EXPECT_THAT(ids, SizeIs(300));
}

TEST_F(CheckpointTest, TheNewestCompleteCheckpointIsChosen) {
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Steps(), IsEmpty());
  ASSERT_TRUE(Save(100, 1).ok());
  ASSERT_TRUE(Save(200, 2).ok());
  ASSERT_TRUE(WriteShards(300, 3, 3, Env::Real()).ok());  // no manifest
  std::filesystem::create_directories(root_ + "/step-0400");
  std::filesystem::create_directories(root_ + "/other");
  EXPECT_THAT(Steps(), ElementsAre(200, 100));
  const auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->step, 200u);
  EXPECT_EQ(chosen->dir, root_ + "/step-200");
  EXPECT_EQ(chosen->manifest.checkpoint().global_step(), 200u);
  EXPECT_EQ(Loaded(), 2u);
}

TEST_F(CheckpointTest, ACheckpointMadeLaterIsNewerThanOneOfAHigherStep) {
  ASSERT_TRUE(Save(900, 1).ok());
  ASSERT_TRUE(Save(100, 2).ok());  // the job began again
  EXPECT_THAT(Steps(), ElementsAre(100, 900));
  ASSERT_TRUE(RemoveOldCheckpoints(root_, 1, Env::Real()).ok());
  EXPECT_THAT(Steps(), ElementsAre(100));
}

TEST_F(CheckpointTest, AModelIsNoCheckpoint) {
  Manifest manifest = *WriteShards(100, 1, 1, Env::Real());
  manifest.clear_checkpoint();
  const std::string dir = CheckpointFolder(root_, 100);
  const auto model = FinishModel(dir, Job(1), manifest, Env::Real());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_EQ(VerifyCheckpoint(dir, Env::Real(), nullptr).code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, ACheckpointWithoutAllItsFilesIsNotCommitted) {
  ASSERT_TRUE(Save(100, 1).ok());
  const Manifest manifest = *WriteShards(100, 2, 2, Env::Real());
  const std::string lost = Path(100, manifest.files(1).name());
  ASSERT_TRUE(Env::Real()->RemoveFile(lost).ok());
  const absl::Status status = Commit(100, 2, manifest, Env::Real());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(lost));
  EXPECT_EQ(Loaded(), 1u);
}

TEST_F(CheckpointTest, EveryDamageOfEveryFileIsFoundAndNamed) {
  google::protobuf::LogSilencer silencer;
  ASSERT_TRUE(Save(100, 1).ok());
  ASSERT_TRUE(Save(200, 2).ok());
  const std::vector<std::string> names = *Env::Real()->List(CheckpointFolder(root_, 200));
  ASSERT_THAT(names, SizeIs(5));  // 3 shards, job.textproto, MANIFEST
  int found = 0;
  for (const std::string& name : names) {
    const std::string path = Path(200, name), good = Read(path);
    std::map<std::string, std::string> damages = {
        {"truncated", good.substr(0, good.size() - 1)},
        {"cut in half", good.substr(0, good.size() / 2)},
        {"emptied", ""},
        {"zeroed", std::string(good.size(), '\0')},
        {"extended", good + "x"},
        {"swapped", Read(Path(200, name == names[1] ? names[2] : names[1]))},
        {"deleted", ""}};
    for (size_t i = 0; i < good.size(); i += 1 + good.size() / 40) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
      damages[absl::StrCat("flipped at ", i)] = bad;
    }
    for (const auto& [what, bad] : damages) {
      SCOPED_TRACE(absl::StrCat(name, " ", what));
      if (what == "deleted") {
        std::filesystem::remove(path);
      } else {
        Overwrite(path, bad);
      }
      std::vector<std::string> named;
      const absl::Status status = VerifyCheckpoint(
          CheckpointFolder(root_, 200), Env::Real(),
          [&](const std::string& file, const absl::Status&) { named.push_back(file); });
      const auto newest = Choose(), intact = Choose(true);
      ASSERT_TRUE(intact.ok()) << intact.status();
      EXPECT_EQ(intact->step, 100u);
      if (name == "MANIFEST" && what == "deleted") {
        // What has no manifest does not exist.
        EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
        EXPECT_EQ(newest->step, 100u);
      } else {
        ++found;
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
        EXPECT_THAT(named, ElementsAre(name));
        EXPECT_THAT(std::string(status.message()), HasSubstr(name));
        ASSERT_THAT(skipped_, SizeIs(1));
        EXPECT_THAT(skipped_[0], HasSubstr(name));
        // Without reading the shards all but changed bytes of theirs is found.
        if (bad.size() != good.size() || what == "deleted" || !absl::EndsWith(name, ".shard")) {
          EXPECT_EQ(newest.status().code(), absl::StatusCode::kDataLoss) << newest.status();
          EXPECT_THAT(std::string(newest.status().message()), HasSubstr(name));
        }
      }
      Overwrite(path, good);
    }
  }
  EXPECT_GT(found, 150);
  EXPECT_EQ(Loaded(), 2u);
}

TEST_F(CheckpointTest, WhenAllAreDamagedNoneIsChosen) {
  google::protobuf::LogSilencer silencer;
  ASSERT_TRUE(Save(100, 1).ok());
  ASSERT_TRUE(Save(200, 2).ok());
  Overwrite(Path(100, "MANIFEST"), "?");
  Overwrite(Path(200, "job.textproto"), "?");
  EXPECT_EQ(Choose(true).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(skipped_, SizeIs(1)) << "the damaged manifest is of an older step";
  std::vector<absl::Status> damaged;
  EXPECT_THAT(ListCheckpoints(root_, Env::Real(), &damaged), SizeIs(1));
  EXPECT_THAT(damaged, SizeIs(1));
}

TEST_F(CheckpointTest, ACrashAtEveryChangeLeavesTheLastGoodCheckpoint) {
  HookedEnv env;
  int changes_left = 0;
  std::set<std::string> died_at;
  env.before = [&](const std::string& what, const std::string&) {
    if (changes_left-- > 0) return absl::OkStatus();
    died_at.insert(what);
    changes_left = 0;
    return absl::InternalError("the machine crashed");
  };
  // The second checkpoint is of a later step, or of the same one.
  for (const uint64_t step : {uint64_t{200}, uint64_t{100}}) {
    for (const bool tears : {false, true}) {
      env.tears_writes = tears;
      std::set<uint64_t> loaded;
      bool finished = false;
      for (int changes = 0; !finished; ++changes) {
        SCOPED_TRACE(absl::StrCat("step ", step, " after ", changes, " changes"));
        std::filesystem::remove_all(folder_ + "/out");
        ASSERT_TRUE(Save(100, 1).ok());
        ASSERT_EQ(Loaded(), 1u);
        changes_left = changes;
        absl::Status saved = Save(step, 2, &env);
        const bool committed = saved.ok();
        if (committed) saved = RemoveOldCheckpoints(root_, 1, &env);
        finished = changes_left > 0;
        const uint64_t now = Loaded();
        loaded.insert(now);
        if (committed) EXPECT_EQ(now, 2u);
        // The next one cleans up, as a process that lives does.
        ASSERT_TRUE(Save(300, 3).ok());
        ASSERT_TRUE(RemoveOldCheckpoints(root_, 1, Env::Real()).ok());
        EXPECT_EQ(Loaded(), 3u);
        EXPECT_THAT(*Env::Real()->List(root_), ElementsAre("step-300"));
        EXPECT_THAT(*Env::Real()->List(root_ + "/step-300"), SizeIs(5));
      }
      EXPECT_THAT(loaded, ElementsAre(1, 2));
    }
  }
  EXPECT_THAT(died_at, ::testing::IsSupersetOf({"mkdir", "remove", "rename", "rmdir", "write"}));
}

TEST_F(CheckpointTest, OnlyTheNewestStayAndNothingElseIsTouched) {
  for (uint64_t number = 1; number <= 5; ++number) ASSERT_TRUE(Save(number * 100, number).ok());
  Overwrite(root_ + "/step-100/notes.txt", "mine");
  std::filesystem::create_directories(root_ + "/step-150/mine");
  std::filesystem::create_directories(root_ + "/mine");
  ASSERT_TRUE(WriteShards(160, 9, 9, Env::Real()).ok());  // was given up
  ASSERT_TRUE(WriteShards(600, 10, 9, Env::Real()).ok());  // may be under way
  ASSERT_TRUE(RemoveOldCheckpoints(root_, 2, Env::Real()).ok());
  EXPECT_THAT(Steps(), ElementsAre(500, 400));
  EXPECT_THAT(*Env::Real()->List(root_),
              ElementsAre("mine", "step-100", "step-150", "step-400", "step-500", "step-600"));
  EXPECT_THAT(*Env::Real()->List(root_ + "/step-100"), ElementsAre("notes.txt"));
  EXPECT_THAT(*Env::Real()->List(root_ + "/step-600"), SizeIs(3));
  ASSERT_TRUE(RemoveOldCheckpoints(root_, 0, Env::Real()).ok());
  EXPECT_THAT(Steps(), ElementsAre(500));
}

TEST_F(CheckpointTest, AFullDiskLeavesTheEarlierCheckpointAndIsSaid) {
  ASSERT_TRUE(Save(100, 1).ok());
  HookedEnv env;
  for (const char* at : {".shard", "job.", "MANIFEST"}) {
    SCOPED_TRACE(at);
    env.before = [&](const std::string& what, const std::string& path) {
      return what == "write" && absl::StrContains(path, at)
                 ? absl::ResourceExhaustedError("write " + path + ": No space left on device")
                 : absl::OkStatus();
    };
    EXPECT_EQ(Save(200, 2, &env).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Loaded(), 1u);
  }
}

}  // namespace
}  // namespace sluice
