#include "common/base/local_path.h"

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LocalPathTest, OnlyPathsWithASchemeAreUrls) {
  for (const char* url : {"s3://bucket/a", "hdfs://h:1/a", "HTTP://x", "file:///a", "a+b-c.d://"})
    EXPECT_TRUE(HasScheme(url)) << url;
  for (const char* path : {"", "a", "/s3://a", "./s3://a", "s3:/a", "://a", "3s://a", "a b://c"}) {
    EXPECT_FALSE(HasScheme(path)) << path;
    EXPECT_EQ(SchemeProblem(path), "") << path;
  }
}

TEST(LocalPathTest, ProblemsNameTheSchemeAndTheSupportedPlaces) {
  EXPECT_THAT(SchemeProblem("s3://bucket/a.csv"),
              AllOf(HasSubstr("s3:// is not supported"), HasSubstr("mounted file systems"),
                    HasSubstr("gzip or zstd")));
  EXPECT_THAT(SchemeProblem("file:///data/a.csv"), HasSubstr("give the path itself: /data/a.csv"));
}

}  // namespace
}  // namespace sluice
