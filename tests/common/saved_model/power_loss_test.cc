// Tests that a power failure at any step of a save leaves the last good model or checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "tests/common/saved_model/small_saves.h"
#include "tests/faults/unsynced_env.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr uint64_t kSeeds = 20;
const std::string kRoot = "/out/checkpoints", kModel = "/out/model";
const TableLayouts& Tables() {
  static const TableLayouts* const tables = new TableLayouts(SmallTables());
  return *tables;
}

absl::Status SaveModel(uint64_t number, Env* env) {
  return SaveSmallModel(kModel, Tables(), number, CheckpointSaveId(kSmallInstance, number), env);
}
absl::Status Save(uint64_t step, uint64_t number, Env* env) {
  return SaveSmallCheckpoint(kRoot, Tables(), step, number, env);
}
uint64_t Loaded(Env* env) { return LoadedCheckpoint(kRoot, Tables(), env); }

// A folder with a manifest is a checkpoint, so it must be a whole one.
void ExpectAllIntact(Env* env) {
  std::vector<absl::Status> damaged;
  for (const CheckpointInfo& one : ListCheckpoints(kRoot, env, &damaged)) {
    const absl::Status intact = VerifyCheckpoint(one.dir, env, nullptr);
    EXPECT_TRUE(intact.ok()) << intact;
  }
  EXPECT_THAT(damaged, SizeIs(0));
}

// Ends `save` before each of its steps in turn, after `before`, and lets the power fail, each time
// with many seeds. `save` returns whether the save was reported as done. Then calls `check` with
// what it returned. Stops at the first failure, whose number of steps and seed are printed.
void AtEachStep(const std::function<void(UnsyncedEnv*)>& before,
                const std::function<bool(UnsyncedEnv*)>& save,
                const std::function<void(UnsyncedEnv*, bool saved)>& check) {
  bool ended = true;
  uint64_t steps = 0;
  for (; ended; ++steps) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(absl::StrCat("after ", steps, " steps, seed ", seed));
      UnsyncedEnv env;
      before(&env);
      env.FailAfter(steps);
      const bool saved = save(&env);
      ended = env.failed();
      EXPECT_TRUE(saved || ended);
      std::mt19937_64 random(seed);
      env.LoseUnsynced(&random);
      check(&env, saved);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(steps, 10u);
}

TEST(PowerLossTest, TheLastGoodCheckpointStays) {
  // The second checkpoint is of a later step, or of the same one.
  for (const uint64_t step : {uint64_t{200}, uint64_t{100}}) {
    std::set<uint64_t> loaded;
    AtEachStep([](UnsyncedEnv* env) { ASSERT_TRUE(Save(100, 1, env).ok()); },
               [&](UnsyncedEnv* env) { return Save(step, 2, env).ok(); },
               [&](UnsyncedEnv* env, bool saved) {
                 const uint64_t now = Loaded(env);
                 if (saved) {
                   EXPECT_EQ(now, 2u);
                 }
                 loaded.insert(now);
                 ExpectAllIntact(env);
                 // The next one cleans up.
                 ASSERT_TRUE(Save(300, 3, env).ok());
                 ASSERT_TRUE(RemoveOldCheckpoints(kRoot, 1, env).ok());
                 EXPECT_EQ(Loaded(env), 3u);
                 EXPECT_THAT(*env->List(kRoot), ElementsAre("step-300"));
                 EXPECT_THAT(*env->List(kRoot + "/step-300"), SizeIs(6));
               });
    EXPECT_THAT(loaded, ElementsAre(1, 2));
  }
}

TEST(PowerLossTest, TheFirstCheckpointIsWholeOrAbsent) {
  std::set<uint64_t> loaded;
  AtEachStep([](UnsyncedEnv*) {}, [](UnsyncedEnv* env) { return Save(100, 1, env).ok(); },
             [&](UnsyncedEnv* env, bool saved) {
               loaded.insert(Loaded(env));
               if (saved) {
                 EXPECT_EQ(Loaded(env), 1u);
               }
               ExpectAllIntact(env);
             });
  EXPECT_THAT(loaded, ElementsAre(0, 1));
}

TEST(PowerLossTest, HalfRemovedCheckpointIsIgnored) {
  AtEachStep(
      [](UnsyncedEnv* env) {
        for (uint64_t number : {1, 2, 3}) ASSERT_TRUE(Save(number * 100, number, env).ok());
      },
      [](UnsyncedEnv* env) { return RemoveOldCheckpoints(kRoot, 1, env).ok() && !env->failed(); },
      [](UnsyncedEnv* env, bool) {
        EXPECT_EQ(Loaded(env), 3u);
        ExpectAllIntact(env);
        ASSERT_TRUE(RemoveOldCheckpoints(kRoot, 1, env).ok());
        EXPECT_THAT(*env->List(kRoot), ElementsAre("step-300"));
      });
}

TEST(PowerLossTest, TheOldModelOrTheNewOneStays) {
  std::set<std::string> loaded;
  AtEachStep([](UnsyncedEnv* env) { ASSERT_TRUE(SaveModel(1, env).ok()); },
             [](UnsyncedEnv* env) { return SaveModel(2, env).ok(); },
             [&](UnsyncedEnv* env, bool saved) {
               const std::string now = LoadedModel(kModel, env);
               if (saved) {
                 EXPECT_EQ(now, "job2");
               }
               loaded.insert(now);
               ASSERT_TRUE(SaveModel(3, env).ok());
               EXPECT_EQ(LoadedModel(kModel, env), "job3");
               EXPECT_THAT(*env->List(kModel), SizeIs(5));
             });
  EXPECT_THAT(loaded, ElementsAre("job1", "job2"));
}

// A process was killed, and the next one finishes what it began on the same machine.
TEST(PowerLossTest, RemainsOfAKilledProcessDoNotHarmTheNextSave) {
  for (uint64_t killed_after = 0;; ++killed_after) {
    SCOPED_TRACE(absl::StrCat("killed after ", killed_after, " steps"));
    bool ended = true;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed));
      UnsyncedEnv env;
      env.FailAfter(killed_after);
      Save(100, 1, &env).IgnoreError();
      ended = env.failed();
      env.Restart();
      ASSERT_TRUE(Save(100, 2, &env).ok());
      std::mt19937_64 random(seed);
      env.LoseUnsynced(&random);
      ASSERT_EQ(Loaded(&env), 2u);
    }
    if (!ended) break;
  }
}

}  // namespace
}  // namespace sluice
