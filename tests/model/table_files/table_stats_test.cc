#include "model/table_files/table_stats.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <mutex>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "tests/common/base/hooked_env.h"
#include "tests/model/table_files/saved_rows_for_test.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class TableStatsTest : public SavedRowsTest {
 protected:
  // Rows by the first figure of their bucket, counted one by one.
  static std::map<double, uint64_t> Reference(const std::vector<double>& figures) {
    std::map<double, uint64_t> buckets;
    for (double figure : figures) {
      double from = figure == 0 ? 0 : 1;
      while (from > 0 && from > figure) from /= 2;
      while (from > 0 && 2 * from <= figure) from *= 2;
      ++buckets[from];
    }
    return buckets;
  }
  static std::map<double, uint64_t> Counted(const PowerHistogram& histogram) {
    std::map<double, uint64_t> buckets;
    for (const auto& bucket : histogram.Buckets()) {
      EXPECT_EQ(bucket.below, 2 * bucket.from);
      if (bucket.rows > 0) buckets[bucket.from] = bucket.rows;
    }
    return buckets;
  }
};

TEST_F(TableStatsTest, HistogramsAreThoseOfTheRows) {
  Config().mutable_expire()->set_after_steps(700);
  Config().mutable_expire()->set_min_count(20);
  facts_.mutable_turnover()->set_deleted(3);
  const SavedTable rows = RandomRows(5000, 1);
  WriteFolder(Path("step-600"), rows, /*state=*/true, env_);
  const auto stats = StatTables(Path("step-600"), "embedding", env_);
  ASSERT_TRUE(stats.ok()) << stats.status();
  ASSERT_EQ(stats->tables.size(), 1u);
  const TableStats& table = stats->tables[0];
  std::vector<double> counts, steps, days, norms;
  uint64_t expired = 0;
  double greatest = 0;
  const uint32_t dim = Layout()->dim();
  for (const auto& [key, row] : rows) {
    if (1000 - row.last_seen > 700 && row.count < 20) {
      ++expired;
      continue;
    }
    double sum = 0;
    for (uint32_t i = 0; i < dim; ++i) sum += double{row.floats[i]} * row.floats[i];
    norms.push_back(std::sqrt(sum));
    greatest = std::max(greatest, norms.back());
    counts.push_back(row.count);
    steps.push_back(static_cast<double>(1000 - row.last_seen));
    days.push_back(static_cast<double>(9 - row.last_seen / 100));
  }
  EXPECT_GT(expired, 100u);
  EXPECT_EQ(table.expired, expired);
  EXPECT_EQ(table.rows, rows.size() - expired);
  EXPECT_EQ(Counted(table.count), Reference(counts));
  EXPECT_EQ(Counted(table.age_steps), Reference(steps));
  EXPECT_EQ(Counted(table.age_days), Reference(days));
  EXPECT_EQ(Counted(table.norm), Reference(norms));
  EXPECT_EQ(table.norm.greatest(), greatest);
  EXPECT_EQ(table.norm.rows(), table.rows);
  EXPECT_EQ(table.today, 20009);
  EXPECT_EQ(table.schedule_steps, 1000u);
  EXPECT_EQ(table.turnover.deleted(), 3u * kShards);
  EXPECT_EQ(table.shards, kShards);
  uint64_t bytes = 0;
  for (const auto& [name, text] : FilesOf(Path("step-600"), env_)) {
    if (name.rfind("embedding-", 0) == 0) bytes += text.size();
  }
  EXPECT_EQ(table.bytes, bytes);
}

TEST_F(TableStatsTest, AModelHasNormsAloneAndAllItsSparseTables) {
  WriteFolder(Path("model"), RandomRows(300, 2), /*state=*/false, env_);
  const auto stats = StatTables(Path("model"), "", env_);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_FALSE(stats->checkpoint);
  ASSERT_EQ(stats->tables.size(), 4u);
  for (const TableStats& table : stats->tables) {
    EXPECT_EQ(table.rows, table.name == "embedding" ? 300u : 0u);
    EXPECT_EQ(table.norm.rows(), table.rows);
    EXPECT_EQ(table.count.rows(), 0u);
    EXPECT_FALSE(table.today);
  }
}

TEST_F(TableStatsTest, DamageAndDenseTablesAreNamed) {
  WriteFolder(Path("step-600"), RandomRows(3000, 3), /*state=*/true, env_);
  EXPECT_THAT(std::string(StatTables(Path("step-600"), "nope", env_).status().message()),
              HasSubstr("no table 'nope'"));
  const auto dense = StatTables(Path("step-600"), "deep/0/weight", env_);
  EXPECT_EQ(dense.status().code(), absl::StatusCode::kInvalidArgument) << dense.status();
  const std::string name = Path(absl::StrCat("step-600/embedding-2.", kSaveId, ".shard"));
  std::string bytes = *env_->ReadFile(name);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(env_->WriteFile(name, {bytes}).ok());
  const auto stats = StatTables(Path("step-600"), "embedding", env_);
  EXPECT_EQ(stats.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(stats.status().message()), HasSubstr("embedding-2"));
}

// As RemoveOldCheckpoints of the job that makes the next one: the manifest goes first.
TEST_F(TableStatsTest, ACheckpointThatGoesOrIsReplacedMeanwhileIsNotDamaged) {
  const std::string dir = Path("step-600");
  const auto stats_while = [&](const std::function<void()>& change) {
    std::filesystem::remove_all(dir);
    WriteFolder(dir, RandomRows(300, 4), /*state=*/true, env_);
    HookedEnv env;
    std::once_flag once;
    // Once the manifest and the job have been read, and before any table is.
    env.before_read = [&](const std::string& path) {
      if (absl::EndsWith(path, ".shard")) std::call_once(once, change);
      return absl::OkStatus();
    };
    return StatTables(dir, "", &env).status();
  };
  const absl::Status gone = stats_while([&] { RemoveModel(dir, env_); });
  EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("was removed"));
  const absl::Status replaced = stats_while([&] {
    RemoveModel(dir, env_);
    WriteFolder(dir, RandomRows(300, 5), /*state=*/true, env_, "00000000000000ac");
  });
  EXPECT_TRUE(absl::IsNotFound(replaced)) << replaced;
  EXPECT_THAT(std::string(replaced.message()), HasSubstr("was replaced"));
  const absl::Status damaged = stats_while(
      [&] { std::filesystem::remove(absl::StrCat(dir, "/embedding-2.", kSaveId, ".shard")); });
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
}

}  // namespace
}  // namespace sluice
