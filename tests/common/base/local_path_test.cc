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
              AllOf(HasSubstr("s3:// is not supported"), HasSubstr("mounted file systems")));
  EXPECT_THAT(SchemeProblem("file:///data/a.csv"), HasSubstr("give the path itself: /data/a.csv"));
}

TEST(LocalPathTest, AUrlWithOneSlashIsRefusedAndNotAFolder) {
  for (const char* path : {"s3:/b/a.csv", "https:/h/a"}) {
    EXPECT_TRUE(IsMistypedUrl(path)) << path;
    EXPECT_THAT(DataUrlProblem(path), HasSubstr("one slash")) << path;
  }
  EXPECT_THAT(OutputUrlProblem("s3:/b/out"),
              AllOf(HasSubstr("write s3://b/out"), HasSubstr("./s3:/b/out")));
  for (const char* path : {"./s3:/a", "s3://a", "s3:a", "/s3:/a", "xs3:/a"})
    EXPECT_FALSE(IsMistypedUrl(path)) << path;
}

TEST(LocalPathTest, DataIsReadFromSomeUrlsAndOthersAreRefusedWithAWayOut) {
  for (const char* path : {"a.csv", "/s3://a", "s3://bucket/a", "https://h/a", "http://h:1/a"})
    EXPECT_EQ(DataUrlProblem(path), "") << path;
  EXPECT_THAT(DataUrlProblem("gs://b/a.csv"), HasSubstr("storage.googleapis.com"));
  EXPECT_THAT(DataUrlProblem("oss://b/a.csv"),
              AllOf(HasSubstr("AWS_ENDPOINT_URL"), HasSubstr("s3://b/a.csv")));
  EXPECT_THAT(DataUrlProblem("abfss://c@a/f"), HasSubstr("blobfuse2"));
  EXPECT_THAT(DataUrlProblem("hdfs://n/a"), HasSubstr("hdfs dfs -get"));
  EXPECT_THAT(DataUrlProblem("S3://b/a"), HasSubstr("write s3://b/a"));
  EXPECT_THAT(DataUrlProblem("s3a://b/a"), HasSubstr("write s3://b/a"));
  EXPECT_THAT(DataUrlProblem("ftp://h/a"), HasSubstr("ftp:// is not supported"));
  EXPECT_THAT(DataUrlProblem("file:///d/a"), HasSubstr("/d/a"));
}

}  // namespace
}  // namespace sluice
