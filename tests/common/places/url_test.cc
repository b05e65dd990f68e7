#include "common/places/url.h"

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(UrlTest, AKeyIsEveryByteAfterTheBucket) {
  const auto path = ParseStorePath("s3://my.bucket/day=1/a b+%41/../ü?x#y");
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(path->bucket, "my.bucket");
  EXPECT_EQ(path->key, "day=1/a b+%41/../ü?x#y");
  for (const char* bad : {"s3://", "s3:///a", "s3://b", "s3://b/", "s3://b*/a", "s3://u:p@b/a"})
    EXPECT_EQ(ParseStorePath(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
}

TEST(UrlTest, PathsAndValuesAreEncodedInOneWay) {
  EXPECT_EQ(EncodeUrlPath("day=1/a b+%~.ü"), "day%3D1/a%20b%2B%25~.%C3%BC");
  EXPECT_EQ(EncodeUrlValue("a/b=c&d"), "a%2Fb%3Dc%26d");
}

TEST(UrlTest, WebUrlsComeApart) {
  auto url = ParseWebUrl("https://h:81/a/b?c=d");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->authority, "h:81");
  EXPECT_EQ(url->host, "h");
  EXPECT_EQ(url->rest, "/a/b?c=d");
  EXPECT_EQ(ParseWebUrl("http://[::1]:8/x")->host, "[::1]");
  EXPECT_EQ(ParseWebUrl("http://h?x")->rest, "/?x");
}

TEST(UrlTest, UrlsThatCarryCredentialsAreRefusedWithoutRepeatingThem) {
  for (const char* url : {"https://user:secret@h/a", "https://h/a?X-Amz-Signature=secret",
                          "https://h/a?x=1&sig=secret", "https://h/a?access_token=secret"}) {
    const absl::Status status = ParseWebUrl(url).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  }
  EXPECT_FALSE(ParseWebUrl("https://h/a b").ok());
  EXPECT_FALSE(ParseWebUrl("https://h/a\r\nX: y").ok());
  EXPECT_FALSE(ParseWebUrl("ftp://h/a").ok());
  EXPECT_FALSE(ParseWebUrl("https://h/a#b").ok());
  EXPECT_FALSE(ParseWebUrl("https://h#@g/a").ok());
}

TEST(UrlTest, LongKeysAndUrlsAreRefused) {
  EXPECT_TRUE(ParseStorePath("s3://b/" + std::string(1024, 'k')).ok());
  EXPECT_FALSE(ParseStorePath("s3://b/" + std::string(1025, 'k')).ok());
  EXPECT_TRUE(ParseWebUrl("https://h/" + std::string(8000, 'k')).ok());
  EXPECT_FALSE(ParseWebUrl("https://h/" + std::string(8192, 'k')).ok());
}

TEST(UrlTest, RedirectsMayCarryAPermissionAndAreNeverRepeated) {
  const auto url = ParseRedirect("https://h/a?X-Amz-Signature=secret#x");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->rest, "/a?X-Amz-Signature=secret");
  for (const std::string& bad :
       {std::string("https://user:secret@h/a"), std::string("ftp://secret/a"),
        std::string("https:///secret"), "https://h/secret" + std::string(8192, 'k')}) {
    const absl::Status status = ParseRedirect(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  }
}

TEST(UrlTest, LocationsAreRelativeToTheUrl) {
  const UrlParts url = *ParseWebUrl("https://h/a/b?q=/x");
  EXPECT_EQ(ResolveLocation(url, "c"), "https://h/a/c");
  EXPECT_EQ(ResolveLocation(url, "/c"), "https://h/c");
  EXPECT_EQ(ResolveLocation(url, "//g/c"), "https://g/c");
  EXPECT_EQ(ResolveLocation(url, "http://g/c"), "http://g/c");
}

}  // namespace
}  // namespace sluice
