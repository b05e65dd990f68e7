#include "common/places/web_files.h"

#include <cstdlib>

#include "common/base/url_roots.h"
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
  std::string time = "Mon", weak = "W/\"1\"";  // a weak ETag names no version
  transport.answer = [&](const HttpRequest& request) {
    if (request.method == "HEAD")
      return Answer(200, "", {{"last-modified", time}, {"etag", weak}, {"content-length", "9"}});
    EXPECT_EQ(HeaderOf(request, "If-Unmodified-Since"), "Mon");
    return Answer(206, "ab", {{"last-modified", time}, {"etag", weak}, PartOf(0, 2, 9)});
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
  transport.answer = [](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    if (request.method == "HEAD") return Answer(405);
    EXPECT_GT(request.range_bytes, 0u) << "the transport names a server without parts by it";
    return absl::FailedPreconditionError("no parts");
  };
  EXPECT_THAT(std::string(files.Identify(kUrl).status().message()), HasSubstr("no parts"));
  transport.answer = [](const HttpRequest&) { return Answer(404); };
  EXPECT_EQ(files.Identify(kUrl).status().code(), absl::StatusCode::kNotFound);
  transport.answer = [](const HttpRequest&) { return Answer(403); };
  EXPECT_EQ(files.Identify(kUrl).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(WebFilesTest, AWeakETagAloneIsNoVersion) {
  FakeTransport transport;
  WebFiles files(&transport);
  transport.answer = [](const HttpRequest&) {
    return Answer(200, "", {{"etag", "W/\"1\""}, {"content-length", "9"}});
  };
  EXPECT_THAT(std::string(files.Identify(kUrl).status().message()), HasSubstr("ETag"));
}

TEST(WebFilesTest, AnAnswerWithOtherBytesIsAskedForAgain) {
  FakeTransport transport;
  WebFiles files(&transport);
  int asked = 0, wrong = 1;
  transport.answer = [&](const HttpRequest&) {
    const bool other = asked++ < wrong;
    return Answer(206, other ? "01" : "34", {{"etag", "\"1\""}, PartOf(other ? 0 : 3, 2, 10)});
  };
  const FileIdentity identity = IdentityOfVersion(10, "\"1\"");
  EXPECT_EQ(*files.ReadRange(kUrl, identity, 3, 2), "34");
  asked = 0;
  wrong = 100;
  EXPECT_EQ(files.ReadRange(kUrl, identity, 3, 2).status().code(), absl::StatusCode::kUnavailable);
}

TEST(WebFilesTest, ARedirectMayLeadToASignedUrlThatNoErrorShows) {
  FakeTransport transport;
  WebFiles files(&transport);
  std::string target = "https://g/a.csv?X-Amz-Signature=secret#x";
  transport.answer = [&](const HttpRequest& request) {
    if (request.url == kUrl) return Answer(302, "", {{"location", target}});
    EXPECT_EQ(request.url, "https://g/a.csv?X-Amz-Signature=secret");
    return Answer(200, "", {{"etag", "\"1\""}, {"content-length", "9"}});
  };
  EXPECT_TRUE(files.Identify(kUrl).ok());
  for (const char* bad : {"https://user:secret@g/", "https://?secret"}) {
    target = bad;
    const absl::Status status = files.Identify(kUrl).status();
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(HasSubstr("redirects"), ::testing::Not(HasSubstr("secret"))));
  }
}

TEST(WebFilesTest, RedirectsStayBelowTheDataRoots) {
  FakeTransport transport;
  WebFiles files(&transport);
  std::string target;
  size_t sent = 0;
  transport.answer = [&](const HttpRequest& request) {
    ++sent;
    if (request.url == kUrl) return Answer(302, "", {{"location", target}});
    return Answer(200, "", {{"etag", "\"1\""}, {"content-length", "9"}});
  };
  // The rule is one of the process: this test sets it for a process of its own.
  const auto answers = [&] {
    ConfineRedirects({"https://h", "https://g/d"});
    for (const char* good : {"/b.csv", "https://g/d/a", "https://g/d/a?sig=x"}) {
      target = good;
      EXPECT_TRUE(files.Identify(kUrl).ok()) << good;
    }
    for (const char* out :
         {"https://g/e/a", "https://g/d/../e", "https://10.0.0.1/", "https://hh/"}) {
      target = out;
      sent = 0;
      EXPECT_EQ(files.Identify(kUrl).status().code(), absl::StatusCode::kPermissionDenied) << out;
      EXPECT_EQ(sent, 1u) << out;
    }
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(answers(), ::testing::ExitedWithCode(0), "");
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
