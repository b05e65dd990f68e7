// Finds the credentials of this process for a store, and renews those that end.
//
// Tried in this order, and the first that is set decides: the environment (AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), a web identity (AWS_WEB_IDENTITY_TOKEN_FILE,
// AWS_ROLE_ARN), the profile files (AWS_PROFILE in ~/.aws/credentials and ~/.aws/config), a
// container's service (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI), and that of a virtual
// machine (IMDSv2). Without any, or with AWS_SKIP_SIGNATURE=true, requests are anonymous;
// without any, the sources are looked at again after a minute. Keys from files are read again
// before 15 minutes have passed.
//
// Nothing of a credential is ever part of a message.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/places/http_transport.h"

namespace sluice {

struct Credentials {
  std::string access_key, secret_key, session_token;
  absl::Time end = absl::InfiniteFuture();
  std::string source;  // where they come from, for messages
  bool anonymous() const { return access_key.empty(); }
};

// Reads an environment variable; nullopt when it is not set or empty.
using ReadVariable = std::function<std::optional<std::string>(const std::string& name)>;

// The lines "name = value" of a section of an INI file, as ~/.aws/config is. `section`: "default".
std::map<std::string, std::string> SectionOf(const std::string& text, const std::string& section);

// Thread safety: safe from any thread. While one thread renews, others that still have credentials
// use these.
class CredentialSource {
 public:
  struct Options {
    ReadVariable variable;
    Env* env = nullptr;                  // reads the files
    HttpTransport* transport = nullptr;  // asks the services
    Clock* clock = nullptr;
    std::string region;  // of the service that gives credentials for a web identity
  };
  explicit CredentialSource(Options options) : options_(std::move(options)) {}

  // Credentials that hold for 5 minutes more, where they can be had. Errors name the source.
  absl::StatusOr<Credentials> Get();
  // The store said that the credentials have ended, or that it does not know them: the next call of
  // Get asks again.
  void Drop();

  static constexpr absl::Duration kRenewBefore = absl::Minutes(5);

 private:
  absl::StatusOr<Credentials> Find();
  std::optional<absl::StatusOr<Credentials>> FromFiles();
  absl::StatusOr<Credentials> FromWebIdentity(const std::string& token_file);
  absl::StatusOr<Credentials> FromContainer(const std::string& url);
  std::optional<absl::StatusOr<Credentials>> FromMachine();
  std::string Variable(const std::string& name) const {
    return options_.variable(name).value_or("");
  }

  const Options options_;
  Mutex mutex_;
  CondVar renewed_;
  std::optional<Credentials> held_ ABSL_GUARDED_BY(mutex_);
  bool renewing_ ABSL_GUARDED_BY(mutex_) = false;
  // Where credentials came from last, also after Drop; "" while all were anonymous. A process that
  // had some does not go on without.
  std::string last_source_ ABSL_GUARDED_BY(mutex_);
  // After a failed renewal of credentials that still hold.
  absl::Time next_try_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// The profile's settings in ~/.aws/config, such as its region. `variable` and `env` as above.
std::map<std::string, std::string> ProfileConfig(const ReadVariable& variable, Env* env);

}  // namespace sluice
