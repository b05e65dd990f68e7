#include "common/places/credentials.h"

#include <map>

#include "gmock/gmock.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/places/fake_transport.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    transport_.answer = [](const HttpRequest&) { return absl::UnavailableError("nobody"); };
  }
  std::unique_ptr<CredentialSource> Source() {
    CredentialSource::Options options;
    options.variable = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return std::nullopt;
      return found->second;
    };
    options.env = &env_;
    options.transport = &transport_;
    options.clock = &clock_;
    options.region = "eu-west-1";
    return std::make_unique<CredentialSource>(std::move(options));
  }

  std::map<std::string, std::string> variables_ = {{"HOME", "/people/u"}};
  MemoryEnv env_;
  FakeTransport transport_;
  FakeClock clock_{absl::FromUnixSeconds(1'800'000'000)};
};

TEST_F(CredentialsTest, TheEnvironmentComesFirst) {
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
  variables_["AWS_SESSION_TOKEN"] = "token";
  const auto found = Source()->Get();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->access_key, "id");
  EXPECT_EQ(found->secret_key, "secret");
  EXPECT_EQ(found->session_token, "token");
  variables_.erase("AWS_SECRET_ACCESS_KEY");
  const absl::Status half = Source()->Get().status();
  EXPECT_THAT(std::string(half.message()),
              AllOf(HasSubstr("AWS_SECRET_ACCESS_KEY"), Not(HasSubstr("token"))));
  variables_["AWS_SKIP_SIGNATURE"] = "true";
  EXPECT_TRUE(Source()->Get()->anonymous());
}

TEST_F(CredentialsTest, WithoutAnySourceRequestsAreAnonymous) {
  const auto found = Source()->Get();
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->anonymous());
  EXPECT_THAT(found->source, HasSubstr("AWS_ACCESS_KEY_ID"));
}

TEST_F(CredentialsTest, ProfilesAreReadFromTheirFiles) {
  ASSERT_TRUE(env_.WriteFile("/people/u/.aws/credentials",
                             {"# c\n[default]\naws_access_key_id = d\naws_secret_access_key=ds\n"
                              "[ other ]\naws_access_key_id=o\naws_secret_access_key=a=b\n"})
                  .ok());
  ASSERT_TRUE(env_.WriteFile("/people/u/.aws/config",
                             {"[profile other]\nregion = eu-central-1\ns3 =\n  region = no\n"
                              "[profile role]\nrole_arn = arn\n"})
                  .ok());
  EXPECT_EQ(Source()->Get()->access_key, "d");
  variables_["AWS_PROFILE"] = "other";
  EXPECT_EQ(Source()->Get()->access_key, "o");
  EXPECT_EQ(Source()->Get()->secret_key, "a=b");
  const auto variable = [this](const std::string& name) -> std::optional<std::string> {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return std::nullopt;
    return found->second;
  };
  EXPECT_EQ(ProfileConfig(variable, &env_)["region"], "eu-central-1");
  variables_["AWS_PROFILE"] = "role";
  EXPECT_THAT(std::string(Source()->Get().status().message()), HasSubstr("role_arn"));
  variables_["AWS_PROFILE"] = "none";
  EXPECT_THAT(std::string(Source()->Get().status().message()), HasSubstr("none"));
}

std::string JsonCredentials(const std::string& id, absl::Time end) {
  return "{\"AccessKeyId\": \"" + id + "\", \"SecretAccessKey\": \"s\", \"Token\": \"t\", " +
         "\"Expiration\": \"" + absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", end, absl::UTCTimeZone()) +
         "\"}";
}

TEST_F(CredentialsTest, TheMachinesServiceIsAskedWithATokenAndRenewedInTime) {
  int given = 0;
  transport_.answer = [&](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    EXPECT_TRUE(request.to_metadata_service);
    if (request.method == "PUT") return Answer(200, "session");
    EXPECT_EQ(HeaderOf(request, "X-aws-ec2-metadata-token"), "session");
    if (request.url.back() == '/') return Answer(200, "the role\n");
    EXPECT_THAT(request.url, HasSubstr("/the%20role"));
    return Answer(
        200, JsonCredentials("id" + std::to_string(++given), clock_.WallNow() + absl::Hours(1)));
  };
  const auto source = Source();
  EXPECT_EQ(source->Get()->access_key, "id1");
  clock_.Advance(absl::Minutes(54));
  EXPECT_EQ(source->Get()->access_key, "id1");
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(source->Get()->access_key, "id2") << "5 minutes before the end";
  // The service fails: the old ones serve to their end.
  transport_.answer = [](const HttpRequest&) { return Answer(500); };
  clock_.Advance(absl::Minutes(57));
  EXPECT_EQ(source->Get()->access_key, "id2");
  clock_.Advance(absl::Minutes(4));
  EXPECT_FALSE(source->Get().ok()) << "and no anonymous request after it";
}

TEST_F(CredentialsTest, AnAnonymousProcessLooksAgainAfterAMinute) {
  const auto source = Source();
  EXPECT_TRUE(source->Get()->anonymous()) << "the service is silent";
  const size_t asked = transport_.requests().size();
  EXPECT_TRUE(source->Get()->anonymous());
  EXPECT_EQ(transport_.requests().size(), asked) << "not for each request";
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(source->Get()->access_key, "id");
}

TEST_F(CredentialsTest, AThrottledServiceIsNoSilentOne) {
  int status = 429;
  transport_.answer = [&](const HttpRequest&) { return Answer(status); };
  const auto source = Source();
  for (const int failed : {429, 503}) {
    status = failed;
    EXPECT_EQ(source->Get().status().code(), absl::StatusCode::kUnavailable) << failed;
  }
  for (const int absent : {403, 404}) {
    status = absent;
    EXPECT_TRUE(Source()->Get()->anonymous()) << absent;
  }
}

TEST_F(CredentialsTest, ABusySourceMayAnswerLater) {
  ASSERT_TRUE(env_.WriteFile("/jwt", {"a"}).ok());
  int status = 0;
  transport_.answer = [&](const HttpRequest& request) {
    return request.method == "PUT" ? Answer(200, "session") : Answer(status);  // of the machine
  };
  using Variables = std::map<std::string, std::string>;
  for (const Variables& variables :
       {Variables(), Variables{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/c"}},
        Variables{{"AWS_WEB_IDENTITY_TOKEN_FILE", "/jwt"}}}) {
    variables_ = variables;
    SCOPED_TRACE(variables.empty() ? "machine" : variables.begin()->first);
    for (const int busy : {408, 429, 500, 503}) {
      status = busy;
      EXPECT_EQ(Source()->Get().status().code(), absl::StatusCode::kUnavailable) << busy;
    }
    for (const int refuses : {400, 403}) {
      status = refuses;
      EXPECT_EQ(Source()->Get().status().code(), absl::StatusCode::kPermissionDenied) << refuses;
    }
  }
}

TEST_F(CredentialsTest, KeysInFilesAreReadAgain) {
  const auto write = [&](const std::string& id) {
    ASSERT_TRUE(env_.WriteFile("/people/u/.aws/credentials",
                               {"[default]\naws_secret_access_key=s\naws_access_key_id=" + id})
                    .ok());
  };
  write("old");
  const auto source = Source();
  EXPECT_EQ(source->Get()->access_key, "old");
  write("new");
  EXPECT_EQ(source->Get()->access_key, "old");
  clock_.Advance(absl::Minutes(15));
  EXPECT_EQ(source->Get()->access_key, "new");
}

TEST_F(CredentialsTest, AProcessThatHadCredentialsIsNeverAnonymousAfterIt) {
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
  const auto source = Source();
  ASSERT_TRUE(source->Get().ok());
  source->Drop();
  variables_.clear();
  EXPECT_EQ(source->Get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CredentialsTest, AContainersServiceGetsItsToken) {
  variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://127.0.0.1:1/c";
  variables_["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = "/token";
  ASSERT_TRUE(env_.WriteFile("/token", {"pod\n"}).ok());
  transport_.answer = [&](const HttpRequest& request) {
    EXPECT_EQ(request.url, "http://127.0.0.1:1/c");
    EXPECT_EQ(HeaderOf(request, "Authorization"), "pod");
    return Answer(200, JsonCredentials("c", clock_.WallNow() + absl::Hours(1)));
  };
  EXPECT_EQ(Source()->Get()->access_key, "c");
  transport_.answer = [](const HttpRequest&) { return Answer(403, "pod"); };
  const absl::Status refused = Source()->Get().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("pod")));
}

TEST_F(CredentialsTest, AWebIdentityIsExchanged) {
  variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/jwt";
  variables_["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/r";
  ASSERT_TRUE(env_.WriteFile("/jwt", {"a.b+c\n"}).ok());
  transport_.answer = [&](const HttpRequest& request) {
    EXPECT_EQ(request.url, "https://sts.eu-west-1.amazonaws.com/");
    EXPECT_FALSE(request.signature.has_value());
    EXPECT_THAT(request.body, AllOf(HasSubstr("WebIdentityToken=a.b%2Bc"),
                                    HasSubstr("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr")));
    return Answer(
        200,
        "<R><Credentials><AccessKeyId>w</AccessKeyId><SecretAccessKey>s/=</SecretAccessKey>"
        "<SessionToken>t</SessionToken><Expiration>2027-01-16T00:00:00Z</Expiration>"
        "</Credentials></R>");
  };
  const auto found = Source()->Get();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->access_key, "w");
  EXPECT_EQ(found->secret_key, "s/=");
  EXPECT_EQ(absl::ToUnixSeconds(found->end), 1'800'057'600);
  transport_.answer = [](const HttpRequest&) {
    return Answer(400, "<E><Code>InvalidIdentityToken</Code><Message>a.b+c</Message></E>");
  };
  const absl::Status refused = Source()->Get().status();
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("InvalidIdentityToken"), Not(HasSubstr("a.b+c"))));
}

}  // namespace
}  // namespace sluice
