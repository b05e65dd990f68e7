#include "model/table_files/table_shrink.h"

#include <cmath>
#include <set>
#include <tuple>

#include "common/base/mix_hash.h"
#include "common/saved_model/checkpoint.h"
#include "gmock/gmock.h"
#include "tests/common/base/hooked_env.h"
#include "tests/faults/unsynced_env.h"
#include "tests/model/table_files/saved_rows_for_test.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class TableShrinkTest : public SavedRowsTest {
 protected:
  void SetUp() override {
    SavedRowsTest::SetUp();
    shrink_.folder = Path("step-600");
    shrink_.table = "embedding";
    shrink_.output = Path("small");
  }

  // The rows that the limit keeps, with `score` in float64.
  template <typename Score>
  SavedTable Highest(const SavedTable& rows, uint64_t max_rows, Score score) {
    SavedTable kept;
    const auto layout = Layout();
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      std::set<std::tuple<double, uint64_t, uint64_t, uint64_t>> order;
      for (const auto& [key, row] : rows) {
        if (layout->ShardOf(key) == shard)
          order.insert({score(row), row.last_seen, MixHash(key), key});
      }
      const size_t share = max_rows / kShards + (shard < max_rows % kShards ? 1 : 0);
      size_t left = std::min(share, order.size());
      for (auto one = order.rbegin(); left > 0; ++one, --left)
        kept[std::get<3>(*one)] = rows.at(std::get<3>(*one));
    }
    return kept;
  }

  ShrinkReport Shrink() {
    const auto report = ShrinkTable(shrink_, env_);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : ShrinkReport();
  }
  void ExpectRefused(const std::string& part) {
    const auto report = ShrinkTable(shrink_, env_);
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(part));
    EXPECT_FALSE(env_->Exists(Path("small")));
  }

  ShrinkOptions shrink_;
};

TEST_F(TableShrinkTest, TheRowsWithTheGreatestScoreStay) {
  const SavedTable rows = RandomRows(4000, 1);
  WriteFolder(shrink_.folder, rows, /*state=*/true, env_);
  shrink_.max_rows = 1234;
  const auto count = [](const SavedRow& row) { return double{1} * row.count; };
  const auto halved = [](const SavedRow& row) {
    return row.count * std::exp2(-static_cast<double>(9 - row.last_seen / 100) / 2.5);
  };
  const auto last_use = [](const SavedRow& row) { return static_cast<double>(row.last_seen); };
  const auto norm = [dim = Layout()->dim()](const SavedRow& row) {
    double sum = 0;
    for (uint32_t i = 0; i < dim; ++i) sum += double{row.floats[i]} * row.floats[i];
    return sum;  // the norm has the same order
  };
  const auto check = [&](const std::string& name, const SavedTable& wanted) {
    SCOPED_TRACE(name);
    shrink_.output = Path(name);
    const ShrinkReport report = Shrink();
    EXPECT_EQ(report.rewrite.rows, 4000u);
    EXPECT_EQ(report.rewrite.kept, wanted.size());
    EXPECT_EQ(report.beyond_max_rows, 4000u - wanted.size());
    std::vector<ShardFacts> facts;
    EXPECT_TRUE(ReadFolder(shrink_.output, env_, &facts) == wanted);
    uint64_t evicted = 0;
    for (const ShardFacts& one : facts) {
      evicted += one.turnover().evicted();
      EXPECT_EQ(one.updates(), 77u);
      EXPECT_EQ(one.days_size(), 10);
      EXPECT_EQ(one.tombstones_size(), 0);  // no export
    }
    EXPECT_EQ(evicted, report.beyond_max_rows);
    EXPECT_TRUE(VerifyCheckpoint(shrink_.output, env_, nullptr).ok());
  };
  check("count", Highest(rows, 1234, count));
  shrink_.half_life_days = 2.5;
  check("halved", Highest(rows, 1234, halved));
  shrink_.half_life_days.reset();
  shrink_.score = EvictConfig::LAST_USE;
  check("last_use", Highest(rows, 1234, last_use));
  shrink_.score = EvictConfig::NORM;
  check("norm", Highest(rows, 1234, norm));
}

TEST_F(TableShrinkTest, ARowStaysWithinEachLimitOfAgeAndCount) {
  Config().mutable_expire()->set_after_steps(900);
  const SavedTable rows = RandomRows(3000, 2);
  WriteFolder(shrink_.folder, rows, /*state=*/true, env_);
  shrink_.max_age_steps = 800;
  shrink_.max_age_days = 6;
  shrink_.min_count = 2;
  SavedTable wanted;
  uint64_t expired = 0, too_old = 0, too_rare = 0;
  for (const auto& [key, row] : rows) {
    if (1000 - row.last_seen > 900) {
      ++expired;
    } else if (1000 - row.last_seen > 800 || 9 - row.last_seen / 100 > 6) {
      ++too_old;
    } else if (row.count < 2) {
      ++too_rare;
    } else {
      wanted[key] = row;
    }
  }
  const ShrinkReport report = Shrink();
  EXPECT_EQ(report.expired, expired);
  EXPECT_EQ(report.too_old, too_old);
  EXPECT_EQ(report.too_rare, too_rare);
  std::vector<ShardFacts> facts;
  EXPECT_TRUE(ReadFolder(shrink_.output, env_, &facts) == wanted);
  uint64_t turnover = 0;
  for (const ShardFacts& one : facts) turnover += one.turnover().expired();
  EXPECT_EQ(turnover, expired);
  // A second time nothing goes.
  shrink_.folder = shrink_.output;
  shrink_.output = Path("again");
  EXPECT_EQ(Shrink().rewrite.kept, wanted.size());
}

TEST_F(TableShrinkTest, EverythingElseStaysAsItIs) {
  WriteFolder(shrink_.folder, RandomRows(2000, 3), /*state=*/true, env_);
  shrink_.max_rows = 10;
  const auto before = FilesOf(shrink_.folder, env_);
  Shrink();
  EXPECT_EQ(FilesOf(shrink_.folder, env_), before);
  const auto after = FilesOf(shrink_.output, env_);
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, text] : before) {
    // The same names, so that the checkpoint stays one of its job.
    ASSERT_EQ(after.count(name), 1u) << name;
    if (name != "MANIFEST" && name.rfind("embedding-", 0) != 0) {
      EXPECT_TRUE(after.at(name) == text) << name;
    }
  }
  EXPECT_TRUE(CheckCheckpoint(*FindCheckpoint(shrink_.output, false, env_, nullptr), env_).ok());
}

TEST_F(TableShrinkTest, AModelHasTheDigestOfItsRows) {
  const SavedTable rows = RandomRows(500, 4);
  WriteFolder(Path("model"), rows, /*state=*/false, env_);
  shrink_.folder = Path("model");
  shrink_.max_rows = 100;
  ExpectRefused("NORM");
  shrink_.score = EvictConfig::NORM;
  const ShrinkReport report = Shrink();
  SavedTable kept = ReadFolder(shrink_.output, env_);
  EXPECT_EQ(kept.size(), 100u);
  // A model that never had the others.
  WriteFolder(Path("other"), kept, /*state=*/false, env_);
  EXPECT_EQ(report.rewrite.digest, ReadManifest(Path("other"), env_)->model_digest());
  EXPECT_EQ(report.rewrite.digest, ReadManifest(shrink_.output, env_)->model_digest());
  EXPECT_NE(report.rewrite.digest, ReadManifest(Path("model"), env_)->model_digest());
}

TEST_F(TableShrinkTest, ADryRunSaysWhatWouldGoAndWritesNothing) {
  WriteFolder(shrink_.folder, RandomRows(2000, 5), /*state=*/true, env_);
  shrink_.max_rows = 700;
  shrink_.output = "";
  const ShrinkReport planned = Shrink();
  EXPECT_FALSE(env_->Exists(Path("small")));
  shrink_.output = Path("small");
  const ShrinkReport done = Shrink();
  EXPECT_EQ(planned.rewrite.kept, done.rewrite.kept);
  EXPECT_EQ(planned.beyond_max_rows, done.beyond_max_rows);
  EXPECT_NEAR(static_cast<double>(planned.rewrite.kept_bytes),
              static_cast<double>(done.rewrite.kept_bytes), 4096);
}

TEST_F(TableShrinkTest, RowsThatGoLeaveTombstonesForTheExport) {
  job_.mutable_export_()->set_every_steps(10);
  facts_.set_tombstones_since(40);
  RowTombstone* const earlier = facts_.add_tombstones();
  earlier->set_key(7);
  earlier->set_schedule_step(50);
  const SavedTable rows = RandomRows(2000, 6);
  WriteFolder(shrink_.folder, rows, /*state=*/true, env_);
  shrink_.max_rows = 1500;
  Shrink();
  std::vector<ShardFacts> facts;
  const SavedTable kept = ReadFolder(shrink_.output, env_, &facts);
  std::set<uint64_t> gone, named;
  for (const auto& [key, row] : rows) {
    if (kept.count(key) == 0) gone.insert(key);
  }
  for (const ShardFacts& one : facts) {
    ASSERT_GT(one.tombstones_size(), 1);
    EXPECT_EQ(one.tombstones(0).key(), 7u);
    EXPECT_EQ(one.tombstones_since(), 40u);
    for (int i = 1; i < one.tombstones_size(); ++i) {
      EXPECT_EQ(one.tombstones(i).schedule_step(), 1000u);
      EXPECT_TRUE(named.insert(one.tombstones(i).key()).second);
    }
  }
  EXPECT_EQ(named, gone);
  // More than a shard may name: the next export cannot be a delta.
  WriteFolder(Path("step-700"), RandomRows(80000, 7), /*state=*/true, env_);
  shrink_.folder = Path("step-700");
  shrink_.output = Path("ended");
  shrink_.max_rows = 4;
  EXPECT_EQ(Shrink().rewrite.chains_ended, kShards);
  facts.clear();
  EXPECT_EQ(ReadFolder(shrink_.output, env_, &facts).size(), 4u);
  EXPECT_EQ(facts[0].tombstones_size(), 0);
  EXPECT_EQ(facts[0].tombstones_since(), 1001u);
}

TEST_F(TableShrinkTest, TheSourceAndOtherModelsAreNoOutput) {
  WriteFolder(shrink_.folder, RandomRows(100, 8), /*state=*/true, env_);
  WriteFolder(Path("other"), RandomRows(100, 9), /*state=*/false, env_);
  std::filesystem::create_directory_symlink(shrink_.folder, Path("link"));
  const auto before = FilesOf(shrink_.folder, env_), other = FilesOf(Path("other"), env_);
  shrink_.max_rows = 10;
  for (const std::string& output :
       {shrink_.folder, shrink_.folder + "/", Path("./step-600"), Path("link"), Path("other"),
        shrink_.folder + "/new", Path("link/new")}) {
    shrink_.output = output;
    const auto report = ShrinkTable(shrink_, env_);
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument) << output;
  }
  EXPECT_EQ(FilesOf(shrink_.folder, env_), before);
  EXPECT_EQ(FilesOf(Path("other"), env_), other);
}

TEST_F(TableShrinkTest, AFullDiskLeavesTheSourceAndNothingElse) {
  WriteFolder(shrink_.folder, RandomRows(300, 10), /*state=*/true, env_);
  const auto before = FilesOf(shrink_.folder, env_);
  shrink_.max_rows = 50;
  bool full = true;
  int failures = 0;
  for (int most = 0; full; ++most) {
    HookedEnv env;
    int changes = 0;
    full = false;
    env.before = [&](const std::string& what, const std::string&) {
      if (what == "remove" || what == "rmdir" || ++changes <= most) return absl::OkStatus();
      full = true;
      return absl::ResourceExhaustedError("no space left on device");
    };
    const auto report = ShrinkTable(shrink_, &env);
    EXPECT_EQ(FilesOf(shrink_.folder, env_), before);
    if (report.ok()) {
      // Only the last change, the job's new name, may fail.
      EXPECT_TRUE(VerifyCheckpoint(shrink_.output, env_, nullptr).ok());
      std::filesystem::remove_all(shrink_.output);
    } else {
      ++failures;
      EXPECT_EQ(report.status().code(), absl::StatusCode::kResourceExhausted) << report.status();
      EXPECT_FALSE(std::filesystem::exists(shrink_.output)) << most;
    }
  }
  EXPECT_GT(failures, 10);
}

TEST_F(TableShrinkTest, AnInterruptedShrinkLeavesTheSourceAndNoHalfOutput) {
  shrink_.folder = "/step-600";
  shrink_.output = "/small";
  shrink_.max_rows = 9;
  const SavedTable rows = RandomRows(40, 11);
  bool ended = true;
  int unfinished = 0, complete = 0;
  for (uint64_t steps = 0; ended; ++steps) {
    SCOPED_TRACE(absl::StrCat("after ", steps, " steps"));
    UnsyncedEnv env;
    WriteFolder(shrink_.folder, rows, /*state=*/true, &env);
    const auto before = FilesOf(shrink_.folder, &env);
    env.FailAfter(steps);
    const bool done = ShrinkTable(shrink_, &env).ok();
    ended = env.failed();
    std::mt19937_64 random(steps);
    env.LoseUnsynced(&random);
    ASSERT_EQ(FilesOf(shrink_.folder, &env), before);
    const auto manifest = ReadManifest(shrink_.output, &env);
    if (manifest.ok()) {
      ++complete;
      EXPECT_TRUE(VerifyCheckpoint(shrink_.output, &env, nullptr).ok());
      EXPECT_EQ(ReadFolder(shrink_.output, &env).size(), 9u);
      continue;
    }
    EXPECT_FALSE(done);
    ++unfinished;
    EXPECT_TRUE(absl::IsNotFound(manifest.status())) << manifest.status();
    // The same command succeeds, and leaves no file of the first try.
    const auto again = ShrinkTable(shrink_, &env);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(VerifyCheckpoint(shrink_.output, &env, nullptr).ok());
    EXPECT_EQ(FilesOf(shrink_.output, &env).size(), before.size());
  }
  EXPECT_GT(unfinished, 20);
  EXPECT_GT(complete, 0);
}

TEST_F(TableShrinkTest, LimitsThatAreMissingOrWithoutEffectAreRefused) {
  facts_.clear_days();
  WriteFolder(shrink_.folder, RandomRows(100, 12), /*state=*/true, env_);
  ExpectRefused("no limit");
  shrink_.score = EvictConfig::NORM;
  shrink_.min_count = 2;
  ExpectRefused("--max_rows");
  shrink_.score.reset();
  shrink_.max_age_days = 3;
  ExpectRefused("data.day");
  shrink_.max_age_days.reset();
  shrink_.max_rows = 0;
  ExpectRefused("--max_rows=0");
  shrink_.max_rows = 10;
  shrink_.half_life_days = 3;
  ExpectRefused("data.day");
  shrink_.score = EvictConfig::NORM;
  ExpectRefused("--half_life_days");
}

}  // namespace
}  // namespace sluice
