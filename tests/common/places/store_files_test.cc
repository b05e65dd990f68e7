#include "common/places/store_files.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/places/fake_transport.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Error(const std::string& code, const std::string& more = "") {
  return "<Error><Code>" + code + "</Code>" + more +
         "<AWSAccessKeyId>theid</AWSAccessKeyId></Error>";
}

class StoreFilesTest : public ::testing::Test {
 protected:
  StoreFilesTest() {
    CredentialSource::Options options;
    options.variable = [this](const std::string& name) -> std::optional<std::string> {
      if (name == "AWS_ACCESS_KEY_ID") return "theid";
      if (name == "AWS_SECRET_ACCESS_KEY") return "thesecret" + std::to_string(asked_++);
      return std::nullopt;
    };
    options.env = &env_;
    options.transport = &transport_;
    options.clock = &clock_;
    credentials_ = std::make_unique<CredentialSource>(std::move(options));
    address_.endpoint = "http://h:1";
  }
  StoreFiles Files() { return StoreFiles(address_, &transport_, credentials_.get()); }
  absl::StatusOr<std::vector<std::string>> Match(const std::string& pattern, size_t most = 1000) {
    auto found = Files().Match(pattern, most, [](const std::string&, const FileIdentity&) {});
    if (!found.ok()) return found.status();
    too_many_ = found->too_many_names;
    return found->paths;
  }
  absl::Status Identify() { return Files().Identify("s3://b/k").status(); }

  MemoryEnv env_;
  FakeClock clock_;
  FakeTransport transport_;
  std::unique_ptr<CredentialSource> credentials_;
  StoreAddress address_;
  int asked_ = 0;
  bool too_many_ = false;
};

TEST_F(StoreFilesTest, ReadsRangesOfOneVersion) {
  ServedFile file{"0123456789"};
  transport_.answer = [&](const HttpRequest& request) { return file(request); };
  StoreFiles files = Files();
  const auto identity = files.Identify("s3://b/day=1/a b");
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->size, 10u);
  EXPECT_EQ(identity->tag, "\"1\"");
  EXPECT_EQ(*files.ReadRange("s3://b/day=1/a b", *identity, 3, 4), "3456");
  const HttpRequest read = transport_.requests().back();
  EXPECT_EQ(read.url, "http://h:1/b/day%3D1/a%20b");
  EXPECT_EQ(HeaderOf(read, "Range"), "bytes=3-6");
  EXPECT_EQ(HeaderOf(read, "If-Match"), "\"1\"");
  ASSERT_TRUE(read.signature.has_value());
  EXPECT_EQ(read.signature->service, "s3");
  file.tag = "\"2\"";
  EXPECT_EQ(files.ReadRange("s3://b/day=1/a b", *identity, 3, 4).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(StoreFilesTest, AStoreThatIgnoresTheConditionIsCaught) {
  transport_.answer = [](const HttpRequest&) {
    return Answer(206, "34", {{"etag", "\"2\""}, PartOf(3, 2, 10)});
  };
  StoreFiles files = Files();
  const FileIdentity identity = IdentityOfVersion(10, "\"1\"");
  EXPECT_EQ(files.ReadRange("s3://b/k", identity, 3, 2).status().code(),
            absl::StatusCode::kFailedPrecondition);
  transport_.answer = [](const HttpRequest&) { return Answer(200, "0123456789"); };
  EXPECT_FALSE(files.ReadRange("s3://b/k", identity, 3, 2).ok()) << "the whole object";
  transport_.answer = [](const HttpRequest&) { return Answer(206, "3", {PartOf(3, 2, 10)}); };
  EXPECT_FALSE(files.ReadRange("s3://b/k", identity, 3, 2).ok()) << "too few bytes";
}

TEST_F(StoreFilesTest, TheAddressGivesTheStyleOfUrls) {
  transport_.answer = [](const HttpRequest&) { return Answer(404); };
  const auto url = [&](StoreAddress address, const std::string& path) {
    address_ = std::move(address);
    Files().Identify(path).IgnoreError();
    return transport_.requests().back().url;
  };
  EXPECT_EQ(url({"", "eu-west-1", true}, "s3://b/k"), "https://b.s3.eu-west-1.amazonaws.com/k");
  EXPECT_EQ(url({"", "eu-west-1", true}, "s3://a.b/k"), "https://s3.eu-west-1.amazonaws.com/a.b/k");
  EXPECT_EQ(url({"https://oss.x", "x", true}, "s3://b/k"), "https://b.oss.x/k");
  EXPECT_EQ(url({"https://minio:9", "x", false}, "s3://b/k"), "https://minio:9/b/k");
}

TEST_F(StoreFilesTest, TheAddressComesFromTheEnvironmentAndTheProfile) {
  std::map<std::string, std::string> variables;
  const auto of = [&](const std::map<std::string, std::string>& profile) {
    return StoreAddressOf(
        [&](const std::string& name) -> std::optional<std::string> {
          const auto found = variables.find(name);
          if (found == variables.end()) return std::nullopt;
          return found->second;
        },
        profile);
  };
  EXPECT_EQ(of({})->region, "us-east-1");
  EXPECT_TRUE(of({})->virtual_hosts);
  EXPECT_EQ(of({{"region", "r"}})->region, "r");
  variables["AWS_REGION"] = "s";
  EXPECT_EQ(of({{"region", "r"}})->region, "s");
  variables["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9000/";
  EXPECT_EQ(of({})->endpoint, "http://127.0.0.1:9000");
  EXPECT_FALSE(of({})->virtual_hosts);
  variables["AWS_S3_ADDRESSING_STYLE"] = "virtual";
  EXPECT_TRUE(of({})->virtual_hosts);
  variables["AWS_S3_ADDRESSING_STYLE"] = "other";
  EXPECT_FALSE(of({}).ok());
  variables.erase("AWS_S3_ADDRESSING_STYLE");
  for (const char* bad : {"127.0.0.1:9000", "http://h/path", "ftp://h", "https://u:p@h"}) {
    variables["AWS_ENDPOINT_URL"] = bad;
    EXPECT_FALSE(of({}).ok()) << bad;
  }
  variables.erase("AWS_ENDPOINT_URL");
  variables["AWS_REGION"] = "us-east-1/evil";
  EXPECT_FALSE(of({}).ok());
}

TEST_F(StoreFilesTest, ErrorsNameTheCauseAndNoCredential) {
  HttpResponse answer;
  transport_.answer = [&](const HttpRequest& request) {
    return request.method == "HEAD" ? Answer(answer.status) : answer;
  };
  const auto error = [&](int status, const std::string& body,
                         std::map<std::string, std::string> headers = {}) {
    answer = Answer(status, body, std::move(headers));
    const std::string message(Identify().message());
    EXPECT_THAT(message, AllOf(Not(HasSubstr("theid")), Not(HasSubstr("thesecret"))));
    return message;
  };
  EXPECT_THAT(error(403, Error("SignatureDoesNotMatch")), HasSubstr("secret key is wrong"));
  EXPECT_THAT(error(403, Error("InvalidAccessKeyId")), HasSubstr("does not know the access key"));
  EXPECT_THAT(error(403, Error("AccessDenied")), HasSubstr("s3:GetObject"));
  EXPECT_THAT(error(403, Error("RequestTimeTooSkewed")), HasSubstr("clock"));
  EXPECT_THAT(error(404, Error("NoSuchBucket")), HasSubstr("no bucket b"));
  EXPECT_THAT(error(404, Error("NoSuchKey")), HasSubstr("no such object"));
  EXPECT_EQ(Identify().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(error(301, Error("PermanentRedirect"), {{"x-amz-bucket-region", "eu-west-3"}}),
              HasSubstr("AWS_REGION=eu-west-3"));
  EXPECT_THAT(error(400, Error("AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>")),
              HasSubstr("AWS_REGION=eu-west-3"));
  EXPECT_THAT(error(400, Error("X", "<Region>eu; rm -rf\n</Region>")), Not(HasSubstr("rm")));
  EXPECT_THAT(error(301, Error("X"), {{"x-amz-bucket-region", std::string(65, 'a')}}),
              Not(HasSubstr("aaaa")));
  EXPECT_THAT(error(503, Error("SlowDown")), HasSubstr("busy (HTTP 503 SlowDown)"));
  EXPECT_THAT(error(403, "thesecret0"), HasSubstr("HTTP 403"));
}

TEST_F(StoreFilesTest, EndedCredentialsAreAskedForOnceMore) {
  transport_.answer = [&](const HttpRequest& request) {
    return request.signature->secret_key == "thesecret0" ? Answer(400, Error("ExpiredToken"))
                                                         : Answer(206, "x", {PartOf(0, 1, 1)});
  };
  EXPECT_EQ(*Files().ReadRange("s3://b/k", IdentityOfVersion(1, "\"1\""), 0, 1), "x");
  transport_.answer = [](const HttpRequest&) { return Answer(400, Error("ExpiredToken")); };
  EXPECT_FALSE(Identify().ok()) << "it does not ask for ever";
}

TEST_F(StoreFilesTest, UnknownKeysAreLookedForOnceMore) {
  transport_.answer = [&](const HttpRequest& request) {
    return request.signature->secret_key == "thesecret0" ? Answer(403, Error("InvalidAccessKeyId"))
                                                         : Answer(206, "x", {PartOf(0, 1, 1)});
  };
  EXPECT_EQ(*Files().ReadRange("s3://b/k", IdentityOfVersion(1, "\"1\""), 0, 1), "x");
}

TEST_F(StoreFilesTest, AHeadWithEndedCredentialsIsMadeUpForByTheGetThatRenewsThem) {
  ServedFile file{"0123456789"};
  transport_.answer = [&](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    if (request.signature->secret_key != "thesecret0") return file(request);
    return request.method == "HEAD" ? Answer(400) : Answer(400, Error("ExpiredToken"));
  };
  const auto identity = Files().Identify("s3://b/k");
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->size, 10u);
  EXPECT_EQ(identity->tag, "\"1\"");
}

TEST_F(StoreFilesTest, AHeadOfAnEmptyObjectIsSentAgain) {
  transport_.answer = [&](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    const bool ended = request.signature->secret_key == "thesecret0";
    if (request.method == "HEAD")
      return ended ? Answer(400) : Answer(200, "", {{"etag", "\"1\""}, {"content-length", "0"}});
    return ended ? Answer(400, Error("ExpiredToken")) : Answer(416, Error("InvalidRange"));
  };
  const auto identity = Files().Identify("s3://b/k");
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->size, 0u);
}

TEST_F(StoreFilesTest, AnAnswerWithOtherBytesIsAskedForAgain) {
  int asked = 0, wrong = 1;
  transport_.answer = [&](const HttpRequest&) {
    const bool other = asked++ < wrong;
    return Answer(206, other ? "01" : "34", {{"etag", "\"1\""}, PartOf(other ? 0 : 3, 2, 10)});
  };
  const FileIdentity identity = IdentityOfVersion(10, "\"1\"");
  EXPECT_EQ(*Files().ReadRange("s3://b/k", identity, 3, 2), "34");
  EXPECT_EQ(asked, 2);
  asked = 0;
  wrong = 100;
  EXPECT_EQ(Files().ReadRange("s3://b/k", identity, 3, 2).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(asked, 3);
}

TEST_F(StoreFilesTest, AWeakETagIsNoVersion) {
  transport_.answer = [](const HttpRequest&) {
    return Answer(200, "", {{"etag", "W/\"1\""}, {"content-length", "10"}});
  };
  EXPECT_THAT(std::string(Identify().message()), HasSubstr("weak"));
}

// Answers listings of a bucket with these keys, a page of two names at a time.
class Bucket {
 public:
  explicit Bucket(std::vector<std::string> keys) : keys_(std::move(keys)) {}
  HttpResponse operator()(const HttpRequest& request) const {
    const std::string url = Decoded(request.url);
    if (request.url.find('?') == std::string::npos) {
      const std::string key = url.substr(std::string("http://h:1/b/").size());
      const bool there = std::count(keys_.begin(), keys_.end(), key) > 0;
      return there ? Answer(200, "", {{"etag", "\"1\""}, {"content-length", "1"}})
                   : Answer(404, Error("NoSuchKey"));
    }
    const std::string prefix = url.substr(url.rfind("prefix=") + 7);
    std::vector<std::string> shown;
    for (const std::string& key : keys_) {
      if (!absl::StartsWith(key, prefix)) continue;
      const size_t slash = key.find('/', prefix.size());
      const std::string name = slash == std::string::npos
                                   ? "<Contents><Key>" + key +
                                         "</Key><Size>1</Size><ETag>&quot;1&quot;</ETag></Contents>"
                                   : "<CommonPrefixes><Prefix>" + key.substr(0, slash + 1) +
                                         "</Prefix></CommonPrefixes>";
      if (shown.empty() || shown.back() != name) shown.push_back(name);
    }
    size_t from = 0;
    if (const size_t at = url.find("continuation-token="); at != std::string::npos)
      from = std::stoul(url.substr(at + 19));
    std::string body = "<L>";
    for (size_t i = from; i < std::min(shown.size(), from + 2); ++i) body += shown[i];
    if (from + 2 < shown.size()) {
      body += "<IsTruncated>true</IsTruncated><NextContinuationToken>" + std::to_string(from + 2) +
              "</NextContinuationToken>";
    }
    return Answer(200, body + "</L>");
  }

 private:
  static std::string Decoded(const std::string& url) {
    std::string plain;
    for (size_t i = 0; i < url.size(); ++i) {
      if (url[i] != '%') {
        plain += url[i];
        continue;
      }
      plain += static_cast<char>(std::stoi(url.substr(i + 1, 2), nullptr, 16));
      i += 2;
    }
    return plain;
  }
  std::vector<std::string> keys_;
};

TEST_F(StoreFilesTest, PatternsMatchAsThoseOfTheShell) {
  transport_.answer =
      Bucket({"a.csv", "a1.csv", "a2.csv", "a3.csv", "a4.txt", "day=1/_SUCCESS", "day=1/x.csv",
              "day=2/.hidden", "day=2/x.csv", "day=2/y/z.csv", "day=3/other", "odd[1].csv"});
  EXPECT_THAT(*Match("s3://b/a*.csv"),
              ElementsAre("s3://b/a.csv", "s3://b/a1.csv", "s3://b/a2.csv", "s3://b/a3.csv"));
  EXPECT_THAT(*Match("s3://b/a[13].*"), ElementsAre("s3://b/a1.csv", "s3://b/a3.csv"));
  EXPECT_THAT(*Match("s3://b/day=*/x.csv"),
              ElementsAre("s3://b/day=1/x.csv", "s3://b/day=2/x.csv"));
  EXPECT_THAT(*Match("s3://b/day=?/*"),
              ElementsAre("s3://b/day=1/x.csv", "s3://b/day=2/x.csv", "s3://b/day=3/other"));
  EXPECT_THAT(*Match("s3://b/day=1/_*"), ElementsAre("s3://b/day=1/_SUCCESS"));
  EXPECT_THAT(*Match("s3://b/odd[1].csv"), ElementsAre("s3://b/odd[1].csv")) << "a name";
  EXPECT_THAT(*Match("s3://b/odd\\[1\\].csv"), ElementsAre("s3://b/odd[1].csv"));
  EXPECT_TRUE(Match("s3://b/none*")->empty());
  EXPECT_EQ(Match("s3://b/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(too_many_);
  ASSERT_TRUE(Match("s3://b/a*.csv", 3).ok());
  EXPECT_TRUE(too_many_);
  // Three folders and an object in each that is looked for.
  ASSERT_TRUE(Match("s3://b/day=*/x.csv", 7).ok());
  EXPECT_FALSE(too_many_);
  ASSERT_TRUE(Match("s3://b/day=*/x.csv", 5).ok());
  EXPECT_TRUE(too_many_);
}

}  // namespace
}  // namespace sluice
