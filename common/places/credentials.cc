#include "common/places/credentials.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/places/answer_text.h"
#include "common/places/url.h"

namespace sluice {
namespace {

constexpr char kMachineService[] = "http://169.254.169.254";
constexpr char kContainerService[] = "http://169.254.170.2";
constexpr size_t kMostAnswerBytes = 256 << 10;
// A host that is no virtual machine of a cloud has nobody at the address.
constexpr absl::Duration kMachineTime = absl::Seconds(1);
constexpr absl::Duration kRetryRenewal = absl::Minutes(1);
constexpr absl::Duration kAnonymousHolds = absl::Minutes(1);
constexpr absl::Duration kFileHolds = absl::Minutes(15);

std::string ProfileOf(const ReadVariable& variable) {
  std::string profile = variable("AWS_PROFILE").value_or("");
  if (profile.empty()) profile = variable("AWS_DEFAULT_PROFILE").value_or("default");
  return profile;
}

std::string PathOf(const ReadVariable& variable, const char* name, const char* file) {
  if (const auto path = variable(name)) return *path;
  const auto home = variable("HOME");
  return home ? absl::StrCat(*home, "/.aws/", file) : "";
}

absl::Status Failed(const std::string& source, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat("cannot get credentials from ", source, ": ", why.message()));
}

absl::Status NoCredentials(const std::string& source, const HttpResponse& answer,
                           const std::string& code = "") {
  return Failed(source, absl::Status(answer.busy() ? absl::StatusCode::kUnavailable
                                                   : absl::StatusCode::kPermissionDenied,
                                     absl::StrCat("it answered with HTTP ", answer.status,
                                                  code.empty() ? "" : " ", code)));
}

HttpRequest ToService(const std::string& url) {
  HttpRequest request;
  request.url = url;
  request.most_bytes = kMostAnswerBytes;
  request.connect_time = kMachineTime;
  request.quiet_time = absl::Seconds(5);
  request.to_metadata_service = true;
  return request;
}

// The answer of a container's or a machine's service.
absl::StatusOr<Credentials> FromJson(const std::string& body, const std::string& source) {
  Credentials credentials;
  credentials.source = source;
  credentials.access_key = JsonText(body, "AccessKeyId");
  credentials.secret_key = JsonText(body, "SecretAccessKey");
  credentials.session_token = JsonText(body, "Token");
  std::string error;
  if (const std::string end = JsonText(body, "Expiration");
      !end.empty() && !absl::ParseTime(absl::RFC3339_full, end, &credentials.end, &error)) {
    credentials.end = absl::InfiniteFuture();
  }
  if (credentials.access_key.empty() || credentials.secret_key.empty()) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot get credentials from ", source, ": its answer holds none"));
  }
  return credentials;
}

}  // namespace

std::map<std::string, std::string> SectionOf(const std::string& text, const std::string& section) {
  std::map<std::string, std::string> values;
  bool inside = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const bool indented = !line.empty() && absl::ascii_isspace(static_cast<unsigned char>(line[0]));
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      inside = absl::StripAsciiWhitespace(line.substr(1, line.find(']') - 1)) == section;
      continue;
    }
    const size_t equals = line.find('=');
    // Indented lines are the settings of one service ("s3 =").
    if (!inside || indented || equals == absl::string_view::npos) continue;
    values[absl::AsciiStrToLower(absl::StripAsciiWhitespace(line.substr(0, equals)))] =
        std::string(absl::StripAsciiWhitespace(line.substr(equals + 1)));
  }
  return values;
}

std::map<std::string, std::string> ProfileConfig(const ReadVariable& variable, Env* env) {
  const std::string path = PathOf(variable, "AWS_CONFIG_FILE", "config");
  const std::string profile = ProfileOf(variable);
  const std::string text = path.empty() ? "" : env->ReadFile(path).value_or("");
  auto values = SectionOf(text, absl::StrCat("profile ", profile));
  if (values.empty()) values = SectionOf(text, profile);
  return values;
}

absl::StatusOr<Credentials> CredentialSource::Get() {
  {
    MutexLock lock(&mutex_);
    while (true) {
      const absl::Time now = options_.clock->WallNow();
      const bool holds = held_ && now < held_->end;
      if (holds && (now < held_->end - kRenewBefore || now < next_try_ || renewing_)) return *held_;
      if (!renewing_) break;
      renewed_.Wait(&mutex_);
    }
    renewing_ = true;
  }
  absl::StatusOr<Credentials> found = Find();
  MutexLock lock(&mutex_);
  renewing_ = false;
  renewed_.NotifyAll();
  const absl::Time now = options_.clock->WallNow();
  // A service that does not answer now is still the source.
  if (found.ok() && found->anonymous() && !last_source_.empty()) {
    found = absl::UnavailableError(
        absl::StrCat("cannot renew the credentials from ", last_source_, ": it gives none now"));
  }
  if (found.ok()) {
    held_ = *found;
    if (!found->anonymous()) last_source_ = found->source;
    // A service may give credentials that end soon once more.
    next_try_ = now + kRetryRenewal;
    return found;
  }
  // The old ones may hold for some minutes yet.
  next_try_ = now + kRetryRenewal;
  if (held_ && now < held_->end) return *held_;
  return found.status();
}

void CredentialSource::Drop() {
  MutexLock lock(&mutex_);
  held_.reset();
}

absl::StatusOr<Credentials> CredentialSource::Find() {
  Credentials anonymous;
  anonymous.source = "nowhere (the request was anonymous)";
  if (absl::AsciiStrToLower(Variable("AWS_SKIP_SIGNATURE")) == "true") return anonymous;
  Credentials own;
  own.access_key = Variable("AWS_ACCESS_KEY_ID");
  own.secret_key = Variable("AWS_SECRET_ACCESS_KEY");
  own.session_token = Variable("AWS_SESSION_TOKEN");
  own.source = "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)";
  if (!own.access_key.empty() && !own.secret_key.empty()) return own;
  if (own.access_key.empty() != own.secret_key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        own.access_key.empty() ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID", " is set without ",
        own.access_key.empty() ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
        "; set both or none"));
  }
  if (const std::string token = Variable("AWS_WEB_IDENTITY_TOKEN_FILE"); !token.empty())
    return FromWebIdentity(token);
  if (auto found = FromFiles()) return *found;
  if (const std::string path = Variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); !path.empty())
    return FromContainer(absl::StrCat(kContainerService, path));
  if (const std::string url = Variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"); !url.empty())
    return FromContainer(url);
  if (absl::AsciiStrToLower(Variable("AWS_EC2_METADATA_DISABLED")) != "true") {
    if (auto found = FromMachine()) return *found;
  }
  // A service that is not up yet, or keys that are written later, are found by the next look.
  anonymous.end = options_.clock->WallNow() + kAnonymousHolds;
  anonymous.source =
      "nowhere (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in "
      "~/.aws/credentials; the request was anonymous)";
  return anonymous;
}

std::optional<absl::StatusOr<Credentials>> CredentialSource::FromFiles() {
  const std::string profile = ProfileOf(options_.variable);
  const std::string path = PathOf(options_.variable, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const std::string text = path.empty() ? "" : options_.env->ReadFile(path).value_or("");
  auto values = SectionOf(text, profile);
  std::string from = path;
  if (values["aws_access_key_id"].empty()) {
    values = ProfileConfig(options_.variable, options_.env);
    from = PathOf(options_.variable, "AWS_CONFIG_FILE", "config");
  }
  Credentials credentials;
  credentials.access_key = values["aws_access_key_id"];
  credentials.secret_key = values["aws_secret_access_key"];
  credentials.session_token = values["aws_session_token"];
  credentials.source = absl::StrCat("profile ", profile, " in ", from);
  if (!credentials.access_key.empty() && !credentials.secret_key.empty()) {
    // Programs that sign people in, and those that change keys, write new ones into the file.
    credentials.end = options_.clock->WallNow() + kFileHolds;
    return credentials;
  }
  const bool named = options_.variable("AWS_PROFILE").has_value();
  for (const char* way : {"role_arn", "sso_session", "sso_start_url", "credential_process"}) {
    if (values.find(way) == values.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "profile ", profile, " in ", from, " has ", way,
        ", which is not supported; run: eval \"$(aws configure export-credentials --profile ",
        profile, " --format env)\""));
  }
  if (!named) return std::nullopt;
  return absl::InvalidArgumentError(
      absl::StrCat("AWS_PROFILE is ", profile, ", but ", path, " has no keys of that profile"));
}

absl::StatusOr<Credentials> CredentialSource::FromWebIdentity(const std::string& token_file) {
  const std::string source = "the web identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN)";
  const auto token = options_.env->ReadFile(token_file);
  if (!token.ok()) return Failed(source, token.status());
  std::string session = Variable("AWS_ROLE_SESSION_NAME");
  if (session.empty()) session = "sluice";
  std::string endpoint = Variable("AWS_ENDPOINT_URL_STS");
  if (endpoint.empty()) endpoint = absl::StrCat("https://sts.", options_.region, ".amazonaws.com");
  HttpRequest request;
  request.method = "POST";
  request.url = absl::StrCat(endpoint, "/");
  request.headers = {"Content-Type: application/x-www-form-urlencoded"};
  request.body = absl::StrCat(
      "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=",
      EncodeUrlValue(Variable("AWS_ROLE_ARN")), "&RoleSessionName=", EncodeUrlValue(session),
      "&WebIdentityToken=", EncodeUrlValue(absl::StripAsciiWhitespace(*token)));
  request.most_bytes = kMostAnswerBytes;
  const auto answer = options_.transport->Send(request);
  if (!answer.ok()) return Failed(source, answer.status());
  if (answer->status != 200) return NoCredentials(source, *answer, ErrorCodeOf(answer->body));
  Credentials credentials;
  credentials.source = source;
  credentials.access_key = XmlText(answer->body, "AccessKeyId");
  credentials.secret_key = XmlText(answer->body, "SecretAccessKey");
  credentials.session_token = XmlText(answer->body, "SessionToken");
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, XmlText(answer->body, "Expiration"), &credentials.end,
                       &error)) {
    credentials.end = options_.clock->WallNow() + absl::Hours(1);
  }
  if (credentials.anonymous())
    return Failed(source, absl::PermissionDeniedError("its answer holds none"));
  return credentials;
}

absl::StatusOr<Credentials> CredentialSource::FromContainer(const std::string& url) {
  const std::string source = "the container's service (AWS_CONTAINER_CREDENTIALS_*_URI)";
  HttpRequest request = ToService(url);
  std::string token = Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const std::string file = Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); !file.empty()) {
    const auto text = options_.env->ReadFile(file);
    if (!text.ok()) return Failed(source, text.status());
    token = std::string(absl::StripAsciiWhitespace(*text));
  }
  if (token.find_first_of("\r\n") != std::string::npos)
    return Failed(source, absl::InvalidArgumentError("its token has a line end"));
  if (!token.empty()) request.headers.push_back(absl::StrCat("Authorization: ", token));
  const auto answer = options_.transport->Send(request);
  if (!answer.ok()) return Failed(source, answer.status());
  if (answer->status != 200) return NoCredentials(source, *answer);
  return FromJson(answer->body, source);
}

std::optional<absl::StatusOr<Credentials>> CredentialSource::FromMachine() {
  const std::string source = "the machine's metadata service (IMDSv2)";
  std::string service = Variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (service.empty()) service = kMachineService;
  while (absl::EndsWith(service, "/")) service.pop_back();
  HttpRequest request = ToService(absl::StrCat(service, "/latest/api/token"));
  request.method = "PUT";
  request.headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"};
  const auto token = options_.transport->Send(request);
  // Nobody there: this is no such machine.
  if (!token.ok() || token->status == 403 || token->status == 404) return std::nullopt;
  if (token->status < 200 || token->status > 299) {
    return Failed(source, absl::UnavailableError(
                              absl::StrCat("it answered with HTTP ", token->status,
                                           "; AWS_EC2_METADATA_DISABLED=true leaves it out")));
  }
  if (token->body.find_first_of("\r\n") != std::string::npos) return std::nullopt;
  const std::string roles = absl::StrCat(service, "/latest/meta-data/iam/security-credentials/");
  request = ToService(roles);
  request.headers = {absl::StrCat("X-aws-ec2-metadata-token: ", token->body)};
  const auto role = options_.transport->Send(request);
  if (!role.ok()) return Failed(source, role.status());
  if (role->status == 404) return std::nullopt;  // the machine has no role
  if (role->status != 200) return NoCredentials(source, *role);
  const std::string name(
      absl::StripAsciiWhitespace(absl::string_view(role->body).substr(0, role->body.find('\n'))));
  request.url = absl::StrCat(roles, EncodeUrlPath(name));
  const auto answer = options_.transport->Send(request);
  if (!answer.ok()) return Failed(source, answer.status());
  if (answer->status != 200) return NoCredentials(source, *answer);
  return FromJson(answer->body, source);
}

}  // namespace sluice
