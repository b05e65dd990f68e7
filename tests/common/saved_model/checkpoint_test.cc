#include "common/saved_model/checkpoint.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/saved_model/saved_model.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/saved_model/small_saves.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = ::testing::TempDir() + "/checkpoint_test.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    root_ = folder_ + "/out/checkpoints";
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<Manifest> WriteShards(uint64_t step, uint64_t number) {
    return WriteSmallShards(root_, tables_, step, number, Env::Real());
  }
  absl::Status Save(uint64_t step, uint64_t number, Env* env = Env::Real()) {
    return SaveSmallCheckpoint(root_, tables_, step, number, env);
  }
  uint64_t Loaded() { return LoadedCheckpoint(root_, tables_, Env::Real()); }

  absl::StatusOr<CheckpointInfo> Choose(bool allow_older = false) {
    skipped_.clear();
    return ChooseCheckpoint(root_, allow_older, Env::Real(), &skipped_);
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
  const TableLayouts tables_ = SmallTables();
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
      EXPECT_EQ(CheckpointNumber(instance, id), number);
      EXPECT_GT(CheckpointNumber(instance + 1, id).value(), uint64_t{1} << 32);
    }
  }
  EXPECT_THAT(ids, SizeIs(300));
}

TEST_F(CheckpointTest, OnlySaveIdsHaveNumbers) {
  const std::string id = CheckpointSaveId(3, 8);
  for (const std::string& text : {std::string(), std::string("x"), "0x" + id, " " + id, id + "0",
                                  id.substr(1), "-" + id.substr(1)}) {
    EXPECT_EQ(CheckpointNumber(3, text), std::nullopt) << text;
  }
}

TEST_F(CheckpointTest, TheNewestCompleteCheckpointIsChosen) {
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Steps(), IsEmpty());
  ASSERT_TRUE(Save(100, 1).ok());
  ASSERT_TRUE(Save(200, 2).ok());
  ASSERT_TRUE(WriteShards(300, 3).ok());  // no manifest
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
  Manifest manifest = *WriteShards(100, 1);
  manifest.clear_checkpoint();
  const std::string dir = CheckpointFolder(root_, 100);
  const auto model = FinishModel(dir, SmallJob(1), manifest, Env::Real());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_EQ(VerifyCheckpoint(dir, Env::Real(), nullptr).code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, ACheckpointWithoutAllItsFilesIsNotCommitted) {
  ASSERT_TRUE(Save(100, 1).ok());
  const Manifest manifest = *WriteShards(100, 2);
  const std::string lost = Path(100, manifest.files(1).name());
  ASSERT_TRUE(Env::Real()->RemoveFile(lost).ok());
  const absl::Status status = CommitSmallCheckpoint(root_, 100, 2, manifest, Env::Real());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(lost));
  EXPECT_EQ(Loaded(), 1u);
}

TEST_F(CheckpointTest, EveryDamageOfEveryFileIsFoundAndNamed) {
  google::protobuf::LogSilencer silencer;
  ASSERT_TRUE(Save(100, 1).ok());
  ASSERT_TRUE(Save(200, 2).ok());
  const std::vector<std::string> names = *Env::Real()->List(CheckpointFolder(root_, 200));
  ASSERT_THAT(names, SizeIs(6));  // 3 shards, a rank's file, job.textproto, MANIFEST
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
      ++found;
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_THAT(named, ElementsAre(name));
      EXPECT_THAT(std::string(status.message()), HasSubstr(name));
      ASSERT_THAT(skipped_, SizeIs(1));
      EXPECT_THAT(skipped_[0], HasSubstr(name));
      // Without reading the shards all but changed bytes of theirs is found.
      const bool large = absl::EndsWith(name, ".shard") || IsWorkerFileName(name);
      if (bad.size() != good.size() || what == "deleted" || !large) {
        EXPECT_EQ(newest.status().code(), absl::StatusCode::kDataLoss) << newest.status();
        EXPECT_THAT(std::string(newest.status().message()), HasSubstr(name));
      }
      Overwrite(path, good);
    }
  }
  EXPECT_GT(found, 150);
  EXPECT_EQ(Loaded(), 2u);
}

TEST_F(CheckpointTest, ValuesThatAreNotFiniteAreCountedAndNobodyContinuesFromThem) {
  ASSERT_TRUE(Save(100, 1).ok());
  const auto manifest = WriteSmallShards(
      root_, tables_, 200, 2, Env::Real(),
      [](std::unique_ptr<ShardCut> cut) { return std::make_unique<NotFiniteCut>(std::move(cut)); });
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_TRUE(CommitSmallCheckpoint(root_, 200, 2, *manifest, Env::Real()).ok());
  std::vector<std::string> not_finite;
  const std::string dir = CheckpointFolder(root_, 200);
  const absl::Status intact = VerifyCheckpoint(dir, Env::Real(), nullptr, &not_finite);
  EXPECT_TRUE(intact.ok()) << intact;
  ASSERT_THAT(not_finite, SizeIs(2));
  for (const std::string& text : not_finite) {
    const bool sparse = text.find("embedding") != std::string::npos;
    EXPECT_THAT(text, HasSubstr(sparse ? "2 rows" : "2 values"));
  }
  const auto chosen = Choose(/*allow_older=*/true);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->step, 100u);
  ASSERT_THAT(skipped_, SizeIs(1));
  EXPECT_THAT(skipped_[0], HasSubstr("not finite"));
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
        if (committed) {
          EXPECT_EQ(now, 2u);
        }
        // Neither a save nor a removal that was cut short looks like a checkpoint that lost a file.
        std::vector<absl::Status> damaged;
        ListCheckpoints(root_, Env::Real(), &damaged);
        EXPECT_THAT(damaged, IsEmpty());
        // The next one cleans up, as a process that lives does.
        ASSERT_TRUE(Save(300, 3).ok());
        ASSERT_TRUE(RemoveOldCheckpoints(root_, 1, Env::Real()).ok());
        EXPECT_EQ(Loaded(), 3u);
        EXPECT_THAT(*Env::Real()->List(root_), ElementsAre("step-300"));
        EXPECT_THAT(*Env::Real()->List(root_ + "/step-300"), SizeIs(6));
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
  ASSERT_TRUE(WriteShards(160, 9).ok());   // was given up
  ASSERT_TRUE(WriteShards(600, 10).ok());  // may be under way
  ASSERT_TRUE(RemoveOldCheckpoints(root_, 2, Env::Real()).ok());
  EXPECT_THAT(Steps(), ElementsAre(500, 400));
  EXPECT_THAT(*Env::Real()->List(root_),
              ElementsAre("mine", "step-100", "step-150", "step-400", "step-500", "step-600"));
  EXPECT_THAT(*Env::Real()->List(root_ + "/step-100"), ElementsAre("notes.txt"));
  EXPECT_THAT(*Env::Real()->List(root_ + "/step-600"), SizeIs(4));
  ASSERT_TRUE(RemoveOldCheckpoints(root_, 0, Env::Real()).ok());
  EXPECT_THAT(Steps(), ElementsAre(500));
}

// What other jobs have left without a manifest goes whatever its step is.
TEST_F(CheckpointTest, RemainsOfOtherSavesGoWithTheirCheckpoints) {
  for (uint64_t number = 1; number <= 3; ++number) ASSERT_TRUE(Save(number * 100, number).ok());
  ASSERT_TRUE(WriteShards(900, 4).ok());  // was cut short
  std::filesystem::create_directories(root_ + "/step-950");
  ASSERT_TRUE(Save(800, 5).ok());
  std::filesystem::rename(root_ + "/step-800/MANIFEST", root_ + "/step-800/MANIFEST.prepared");
  ASSERT_TRUE(WriteShards(400, 6).ok());  // the next one of the same job
  EXPECT_THAT(ListUnfinishedCheckpoints(root_, Env::Real()),
              UnorderedElementsAre(root_ + "/step-400", root_ + "/step-800", root_ + "/step-900",
                                   root_ + "/step-950"));
  ASSERT_TRUE(RemoveOtherCheckpoints(root_, Env::Real(), [](const Manifest& manifest) {
                for (const SavedFile& file : manifest.files()) {
                  for (const uint64_t own : {3, 6}) {
                    if (absl::StrContains(file.name(), CheckpointSaveId(kSmallInstance, own)))
                      return true;
                  }
                }
                return false;
              }).ok());
  EXPECT_THAT(*Env::Real()->List(root_), ElementsAre("step-300", "step-400"));
}

TEST_F(CheckpointTest, KnownDamagedOnesDoNotCountAmongThoseThatStay) {
  for (uint64_t number = 1; number <= 3; ++number) ASSERT_TRUE(Save(number * 100, number).ok());
  const std::string file = Path(300, WorkerFileName(0, CheckpointSaveId(kSmallInstance, 3)));
  std::string bytes = Read(file);
  bytes.back() ^= 1;
  Overwrite(file, bytes);
  const auto chosen = Choose(/*allow_older=*/true);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->step, 200u);
  EXPECT_THAT(chosen->damaged, ElementsAre(CheckpointSaveId(kSmallInstance, 3)));
  ASSERT_TRUE(Save(400, 4).ok());
  ASSERT_TRUE(RemoveOldCheckpoints(root_, 2, Env::Real(), chosen->damaged).ok());
  EXPECT_THAT(Steps(), ElementsAre(400, 300, 200));
  // A later save of the same step is another one.
  ASSERT_TRUE(Save(300, 5).ok());
  ASSERT_TRUE(RemoveOldCheckpoints(root_, 2, Env::Real(), chosen->damaged).ok());
  EXPECT_THAT(Steps(), ElementsAre(300, 400));
}

TEST_F(CheckpointTest, ADamagedFolderOfAnotherSaveIsNotWanted) {
  ASSERT_TRUE(Save(100, 1).ok());
  ASSERT_TRUE(Save(200, 2).ok());
  const auto choose = [&](uint64_t number) {
    const std::string id = CheckpointSaveId(kSmallInstance, number);
    return ChooseCheckpoint(
        root_, /*allow_older=*/false, Env::Real(), nullptr,
        [id](const Manifest& manifest) { return absl::StrContains(manifest.files(0).name(), id); });
  };
  for (const bool lost : {false, true}) {
    if (lost) {
      std::filesystem::remove(Path(200, "MANIFEST"));
    } else {
      Overwrite(Path(200, "MANIFEST"), "?");
    }
    const auto first = choose(1);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->step, 100u);
    EXPECT_TRUE(absl::IsDataLoss(choose(2).status()));
    EXPECT_TRUE(absl::IsNotFound(choose(3).status()));
  }
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

TEST_F(CheckpointTest, FilesOfRanksAreOfTheirSave) {
  const std::string id = CheckpointSaveId(kSmallInstance, 1);
  EXPECT_EQ(WorkerFileName(12, id), absl::StrCat("worker-12.", id));
  EXPECT_TRUE(IsWorkerFileName(WorkerFileName(12, id)));
  for (const std::string& other :
       {absl::StrCat("worker-012.", id), absl::StrCat("worker-.", id), std::string("worker-1.old"),
        absl::StrCat("worker-1.", id, ".x"), std::string("worker-1")}) {
    EXPECT_FALSE(IsWorkerFileName(other)) << other;
  }
  ASSERT_TRUE(Save(100, 1).ok());
  // Given up: its files go, those of the checkpoint in force stay.
  ASSERT_TRUE(WriteShards(100, 2).ok());
  EXPECT_TRUE(
      Env::Real()->Exists(Path(100, WorkerFileName(0, CheckpointSaveId(kSmallInstance, 2)))));
  DiscardModel(CheckpointFolder(root_, 100), Env::Real(), CheckpointSaveId(kSmallInstance, 2));
  EXPECT_FALSE(
      Env::Real()->Exists(Path(100, WorkerFileName(0, CheckpointSaveId(kSmallInstance, 2)))));
  EXPECT_TRUE(Env::Real()->Exists(Path(100, WorkerFileName(0, id))));
  // Made again: the earlier save's file goes.
  ASSERT_TRUE(Save(100, 3).ok());
  EXPECT_FALSE(Env::Real()->Exists(Path(100, WorkerFileName(0, id))));
  EXPECT_TRUE(
      Env::Real()->Exists(Path(100, WorkerFileName(0, CheckpointSaveId(kSmallInstance, 3)))));
  // Somebody else's file of that name stays.
  const std::string foreign = Path(100, WorkerFileName(5, id));
  Overwrite(foreign, "mine");
  ASSERT_TRUE(Save(200, 4).ok());
  ASSERT_TRUE(RemoveOldCheckpoints(root_, 1, Env::Real()).ok());
  EXPECT_TRUE(Env::Real()->Exists(foreign));
  EXPECT_FALSE(
      Env::Real()->Exists(Path(100, WorkerFileName(0, CheckpointSaveId(kSmallInstance, 3)))));
}

}  // namespace
}  // namespace sluice
