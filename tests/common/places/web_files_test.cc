#include "common/places/web_files.h"

#include "gmock/gmock.h"
#include "tests/common/places/fake_transport.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr char kUrl[] = "https://h/a.csv";

TEST(WebFilesTest, ReadsRangesOfOneVersion) {
  ServedFile file{"0123456789"};
  FakeTransport transport;
  transport.answer = [&](const HttpRequest& request) { return file(request); };
  WebFiles files(&transport);
  const auto identity = files.Identify(kUrl);
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(*files.ReadRange(kUrl, *identity, 2, 3), "234");
  file.tag = "\"2\"";
  EXPECT_EQ(files.ReadRange(kUrl, *identity, 2, 3).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(WebFilesTest, ATimeStandsForTheVersionWhereThereIsNoTag) {
  FakeTransport transport;
  std::string time = "Mon";
  transport.answer = [&](const HttpRequest& request) {
    if (request.method == "HEAD")
      return Answer(200, "", {{"last-modified", time}, {"content-length", "9"}});
    EXPECT_EQ(HeaderOf(request, "If-Unmodified-Since"), "Mon");
    return Answer(206, "ab", {{"last-modified", time}});
  };
  WebFiles files(&transport);
  const FileIdentity identity = *files.Identify(kUrl);
  EXPECT_EQ(*files.ReadRange(kUrl, identity, 0, 2), "ab");
  time = "Tue";
  EXPECT_FALSE(files.ReadRange(kUrl, identity, 0, 2).ok());
  EXPECT_FALSE(*files.Identify(kUrl) == identity);
}

TEST(WebFilesTest, ServersThatCannotServeDataAreRefused) {
  FakeTransport transport;
  WebFiles files(&transport);
  transport.answer = [](const HttpRequest&) { return Answer(200, "", {{"content-length", "9"}}); };
  EXPECT_THAT(std::string(files.Identify(kUrl).status().message()), HasSubstr("ETag"));
  transport.answer = [](const HttpRequest&) { return Answer(200, "all of it"); };
  EXPECT_THAT(
      std::string(files.ReadRange(kUrl, IdentityOfVersion(20, "\"1\""), 1, 9).status().message()),
      HasSubstr("Range"));
  transport.answer = [](const HttpRequest&) { return Answer(404); };
  EXPECT_EQ(files.Identify(kUrl).status().code(), absl::StatusCode::kNotFound);
  transport.answer = [](const HttpRequest&) { return Answer(403); };
  EXPECT_EQ(files.Identify(kUrl).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(WebFilesTest, RedirectsAreFollowedFiveTimesAndNeverFromHttpsToHttp) {
  FakeTransport transport;
  WebFiles files(&transport);
  int hops = 5;
  transport.answer = [&](const HttpRequest& request) {
    if (hops-- > 0) return Answer(302, "", {{"location", "/b" + std::to_string(hops)}});
    EXPECT_EQ(request.url, "https://h/b0");
    return Answer(200, "", {{"etag", "\"1\""}, {"content-length", "9"}});
  };
  EXPECT_TRUE(files.Identify(kUrl).ok());
  hops = 100;
  EXPECT_THAT(std::string(files.Identify(kUrl).status().message()), HasSubstr("redirects"));
  transport.answer = [](const HttpRequest& request) {
    EXPECT_EQ(request.url, kUrl) << "no request over http";
    return Answer(301, "", {{"location", "http://h/a.csv"}});
  };
  EXPECT_EQ(files.Identify(kUrl).status().code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace sluice
