#include "model/data/partition_folders.h"

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(PartitionFoldersTest, FoldersBelowTheFirstWildcardAreColumns) {
  DataConfig data;
  data.add_train_files("/d/run=1/*/*/part-*.parquet");
  EXPECT_THAT(PartitionColumns(data, "/d/run=1/day=2026-11-01/country=d%20e/part-0.parquet"),
              ElementsAre(Pair("day", "2026-11-01"), Pair("country", "d e")));
  // A value may be empty, have a sign, or a % that codes nothing. The name of the file is none.
  EXPECT_THAT(PartitionColumns(data, "/d/run=1/a=/b=1=2%zz/part-c=3.parquet"),
              ElementsAre(Pair("a", ""), Pair("b", "1=2%zz")));
  // Null is missing, as empty text is.
  EXPECT_THAT(PartitionColumns(data, "/d/run=1/a=__HIVE_DEFAULT_PARTITION__/b=1/part-0.parquet"),
              ElementsAre(Pair("a", ""), Pair("b", "1")));
  // Of two, the inner one.
  EXPECT_THAT(PartitionColumns(data, "/d/run=1/a=1/a=2/part-0.parquet"),
              ElementsAre(Pair("a", "2")));
}

TEST(PartitionFoldersTest, FilesWithNamesHaveNone) {
  DataConfig data;
  data.add_train_files("/d/day=1/a.parquet");
  EXPECT_THAT(PartitionColumns(data, "/d/day=1/a.parquet"), IsEmpty());
  // No pattern has found it, as in a prediction.
  EXPECT_THAT(PartitionColumns(data, "/e/day=1/a.parquet"), ElementsAre(Pair("day", "1")));
}

TEST(PartitionFoldersTest, TheFixedPartOfAPatternEndsBeforeItsFirstWildcard) {
  EXPECT_EQ(FixedFolders("/d/a*/b"), "/d/");
  EXPECT_EQ(FixedFolders("s3://b/day={1..3}/x"), "s3://b/");
  EXPECT_EQ(FixedFolders("/d/\\*/b?"), "/d/*/");
  EXPECT_EQ(FixedFolders("/d/a"), "");
}

}  // namespace
}  // namespace sluice
