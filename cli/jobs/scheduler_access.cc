#include "cli/jobs/scheduler_access.h"

#include "absl/strings/str_cat.h"
#include "cli/jobs/endpoints.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/config/job_config.h"
#include "common/security/cert_authority.h"

namespace sluice::cli {
namespace {

// How the newest cluster of the log folder was started, if it has this scheduler.
SecurityConfig SecurityOf(const std::string& log_dir, const std::string& scheduler) {
  // The log folder may be of another cluster than the one of --scheduler, and its --insecure or its
  // certificates must not count for that one.
  bool named = false;
  for (const Endpoint& endpoint : ReadEndpoints(log_dir))
    named = named || (endpoint.role == "scheduler" && endpoint.address == scheduler);
  const auto cluster = ReadClusterConfig(log_dir + "/cluster.textproto");
  return named && cluster.ok() ? cluster->security() : SecurityConfig();
}

// Someone on the way could act as the scheduler, and read or change what is submitted.
absl::Status CheckPlainText(const std::string& scheduler, bool insecure) {
  const auto addresses = ParseAddressList(scheduler);
  if (insecure || !addresses.ok() || AllLoopback(*addresses)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the scheduler's address ", scheduler,
      " is not a loopback address, and without TLS this command cannot recognize the scheduler; "
      "give --tls_cert, --tls_key and --tls_ca, or, on a network that you trust, --insecure"));
}

}  // namespace

std::string CertificateFolder(const std::string& log_dir) { return log_dir + "/cluster_tls"; }

TlsFiles OperatorFiles(const ParsedCommand& command, const std::string& scheduler) {
  TlsFiles files;
  files.cert = command.TextOrVariable("tls_cert");
  files.key = command.TextOrVariable("tls_key");
  files.ca = command.TextOrVariable("tls_ca");
  // The user's files always win over those of the log folder.
  if (!files.given() && !SecurityOf(LogDirOf(command), scheduler).tls_ca().empty())
    files = FilesOf(CertificateFolder(LogDirOf(command)), "operator");
  return files;
}

absl::StatusOr<GrpcCredentials> OperatorCredentials(const ParsedCommand& command,
                                                    const std::string& scheduler) {
  const TlsFiles files = OperatorFiles(command, scheduler);
  const SecurityConfig security = SecurityOf(LogDirOf(command), scheduler);
  SLUICE_ASSIGN_OR_RETURN(GrpcCredentials credentials, GrpcCredentials::Create(files));
  if (!credentials.tls()) {
    SLUICE_RETURN_IF_ERROR(
        CheckPlainText(scheduler, command.Switch("insecure") || security.insecure()));
    if (command.Switch("any_local_user") || security.any_local_user())
      credentials.ServeAnyLocalUser();
    return credentials;
  }
  // The scheduler would refuse another role, too, but later and without naming the flag.
  if (credentials.self().role == PeerRole::kOperator) return credentials;
  return absl::InvalidArgumentError(
      absl::StrCat("--tls_cert: ", files.cert, " is the certificate of ",
                   credentials.self().ToString(), ", and commands need one of an operator"));
}

absl::StatusOr<std::unique_ptr<SchedulerClient>> ConnectToScheduler(const ParsedCommand& command,
                                                                    Clock* clock) {
  SLUICE_ASSIGN_OR_RETURN(const std::string address, FindRunningScheduler(command, clock));
  SLUICE_ASSIGN_OR_RETURN(const GrpcCredentials credentials, OperatorCredentials(command, address));
  return SchedulerClient::Create(address, clock, credentials);
}

std::vector<FlagSpec> SchedulerFlags() {
  std::vector<FlagSpec> flags = AddressFlags();
  flags.push_back({"tls_cert", FlagKind::kText, "FILE", "",
                   "certificate of an operator, for a scheduler with TLS (SLUICE_TLS_CERT)"});
  flags.push_back({"tls_key", FlagKind::kText, "FILE", "", "its private key (SLUICE_TLS_KEY)"});
  flags.push_back({"tls_ca", FlagKind::kText, "FILE", "", "the CA of the cluster (SLUICE_TLS_CA)"});
  flags.push_back({"insecure", FlagKind::kBool, "", "",
                   "allow a scheduler that is not at a loopback address, without TLS"});
  flags.push_back({"any_local_user", FlagKind::kBool, "", "",
                   "without TLS, also call a scheduler of another user of this host"});
  return flags;
}

}  // namespace sluice::cli
