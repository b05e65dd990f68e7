#include "model/table_files/table_delete.h"

#include "common/saved_model/checkpoint.h"
#include "gmock/gmock.h"
#include "model/table_files/feature_keys.h"
#include "tests/model/table_files/saved_rows_for_test.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class TableDeleteTest : public SavedRowsTest {
 protected:
  void SetUp() override {
    SavedRowsTest::SetUp();
    delete_.folder = Path("step-600");
    delete_.table = "embedding";
    delete_.output = Path("less");
  }

  absl::StatusOr<DeleteReport> Delete() { return DeleteRows(delete_, BuiltInSpecs(), env_); }
  void ExpectRefused(const std::string& part) {
    const auto report = Delete();
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument) << report.status();
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(part));
    EXPECT_FALSE(env_->Exists(Path("less")));
  }

  DeleteOptions delete_;
};

TEST_F(TableDeleteTest, TheKeysOfAFileGoAndAllElseStays) {
  job_.mutable_export_()->set_every_steps(10);
  SavedTable rows = RandomRows(3000, 1);
  WriteFolder(delete_.folder, rows, /*state=*/true, env_);
  const auto before = FilesOf(delete_.folder, env_);
  std::string text = "18446744073709551615\r\n12345\n\n12345\n";  // two without a row
  std::vector<uint64_t> gone;
  for (const auto& [key, row] : rows) {
    if (gone.size() == 500) break;
    gone.push_back(key);
    absl::StrAppend(&text, key, "\n");
  }
  for (uint64_t key : gone) rows.erase(key);
  delete_.files = {WriteText("keys.txt", text)};
  const auto report = Delete();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->named.keys, 502u);
  EXPECT_EQ(report->found, 500u);
  EXPECT_EQ(report->rewrite.kept, rows.size());
  std::vector<ShardFacts> facts;
  EXPECT_TRUE(ReadFolder(delete_.output, env_, &facts) == rows);
  EXPECT_TRUE(VerifyCheckpoint(delete_.output, env_, nullptr).ok());
  EXPECT_EQ(FilesOf(delete_.folder, env_), before);
  std::vector<uint64_t> named;
  uint64_t deleted = 0;
  for (const ShardFacts& one : facts) {
    deleted += one.turnover().deleted();
    for (const RowTombstone& tombstone : one.tombstones()) named.push_back(tombstone.key());
  }
  EXPECT_EQ(deleted, 500u);
  std::sort(named.begin(), named.end());
  EXPECT_EQ(named, gone);  // std::map has the keys in order
}

TEST_F(TableDeleteTest, ValuesOfAFeatureAreHashedAsInTraining) {
  SavedTable rows = RandomRows(200, 2);
  auto spec = ModelSpec::Create(job_, BuiltInSpecs());
  ASSERT_TRUE(spec.ok());
  const auto keys = FeatureKeys::Create(job_, **spec, "city");
  ASSERT_TRUE(keys.ok()) << keys.status();
  SavedTable all = rows;
  for (const char* const city : {"Rome", "Oslo", "New York"})
    all[*keys->KeyOf(city)] = rows.begin()->second;
  WriteFolder(delete_.folder, all, /*state=*/true, env_);
  delete_.table = "";
  delete_.feature = "city";
  delete_.files = {WriteText("cities.txt", "Rome\nNew York\nOslo\nParis\n")};
  const auto report = Delete();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->table, "embedding");
  EXPECT_EQ(report->found, 3u);
  EXPECT_EQ(report->named.keys, 4u);
  EXPECT_TRUE(ReadFolder(delete_.output, env_) == rows);
  // The same from arrays.
  delete_.output = Path("again");
  delete_.feature = "";
  delete_.table = "embedding";
  delete_.files = {WriteNpzFile(
      "values.npz", {{"value", "|S8", {3}, std::string("Rome\0\0\0\0New YorkOslo\0\0\0\0", 24)}})};
  EXPECT_THAT(std::string(Delete().status().message()), HasSubstr("--feature"));
  delete_.feature = "city";
  const auto same = Delete();
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->found, 3u);
  EXPECT_FALSE(same->named.folded);
}

TEST_F(TableDeleteTest, ValuesInBucketsShareRows) {
  WriteFolder(delete_.folder, RandomRows(10, 7), /*state=*/true, env_);
  delete_.table = "";
  delete_.feature = "shop";
  delete_.files = {WriteText("shops.txt", "1\n2\n3\n4\n5\n6\n")};
  const auto report = Delete();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->table, "shops");
  EXPECT_TRUE(report->named.folded);
  EXPECT_LE(report->named.keys, 5u);
}

TEST_F(TableDeleteTest, AnExportedTableNamesItsRows) {
  const SavedTable rows = RandomRows(100, 3);
  WriteFolder(delete_.folder, rows, /*state=*/true, env_);
  ExportOptions exported;
  exported.model = delete_.folder;
  exported.table = "embedding";
  exported.output = Path("rows.npz");
  ASSERT_TRUE(ExportTable(exported, BuiltInSpecs(), env_).ok());
  delete_.files = {exported.output};
  const auto report = Delete();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->found, 100u);
  EXPECT_TRUE(ReadFolder(delete_.output, env_).empty());
}

TEST_F(TableDeleteTest, AnExpiredRowIsNotFoundAndGoes) {
  Config().mutable_expire()->set_after_steps(100);
  SavedTable rows = RandomRows(2, 4);
  rows.begin()->second.last_seen = 5;
  rows.rbegin()->second.last_seen = 950;
  WriteFolder(delete_.folder, rows, /*state=*/true, env_);
  delete_.files = {WriteText("keys.txt", absl::StrCat(rows.begin()->first, "\n"))};
  const auto report = Delete();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->found, 0u);
  EXPECT_EQ(report->rewrite.kept, 1u);
}

TEST_F(TableDeleteTest, AModelAndADryRun) {
  const SavedTable rows = RandomRows(50, 5);
  WriteFolder(Path("model"), rows, /*state=*/false, env_);
  delete_.folder = Path("model");
  delete_.files = {WriteText("keys.txt", absl::StrCat(rows.begin()->first, "\n"))};
  delete_.output = "";
  const auto planned = Delete();
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->found, 1u);
  EXPECT_EQ(planned->rewrite.digest, "");
  EXPECT_FALSE(env_->Exists(Path("less")));
  delete_.output = Path("less");
  const auto report = Delete();
  ASSERT_TRUE(report.ok()) << report.status();
  SavedTable kept = ReadFolder(delete_.output, env_);
  EXPECT_EQ(kept.size(), 49u);
  WriteFolder(Path("other"), kept, /*state=*/false, env_);
  EXPECT_EQ(report->rewrite.digest, ReadManifest(Path("other"), env_)->model_digest());
}

TEST_F(TableDeleteTest, LinesThatAreNoKeysAreNamed) {
  WriteFolder(delete_.folder, RandomRows(50, 6), /*state=*/true, env_);
  delete_.files = {WriteText("keys.txt", "17\nRome\n")};
  ExpectRefused("keys.txt:2");
  delete_.files = {WriteText("keys.txt", "17 0.5 1 2 3\n")};
  ExpectRefused("keys.txt:1");
  delete_.files = {WriteNpzFile("rows.npz", {ArrayOf<float>("weights", "<f4", {1, 3}, {1, 2, 3})})};
  ExpectRefused("'key'");
  delete_.files = {WriteText("cities.txt", "Rome\n")};
  delete_.feature = "town";
  ExpectRefused("no feature 'town'");
  delete_.feature = "id";
  ExpectRefused("'ids'");
}

}  // namespace
}  // namespace sluice
