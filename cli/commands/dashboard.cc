// sluice dashboard: serves a cluster's dashboard to a browser on this machine.
#include <httplib.h>

#include <iostream>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/commands.h"
#include "cli/jobs/dashboard_address.h"
#include "cli/jobs/endpoints.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "common/admin/admin_server.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/daemon/scheduler_client.h"
#include "common/daemon/stop_signal.h"
#include "common/security/peer_identity.h"
#include "common/security/tls_files.h"

namespace sluice::cli {
namespace {

constexpr int kAnswerSeconds = 10;
// More than the largest answer, which the scheduler bounds.
constexpr size_t kMostAnswerBytes = size_t{32} << 20;

// Pages that are passed on. Others of the scheduler are not part of the dashboard.
bool IsOfDashboard(const std::string& path) {
  for (const char* page : {"/", "/api/v1/jobs", "/statusz", "/metrics"}) {
    if (path == page) return true;
  }
  return absl::StartsWith(path, "/page/") || absl::StartsWith(path, "/api/v1/jobs/") ||
         absl::StartsWith(path, "/api/v1/logs/");
}

std::string Encoded(const std::string& text) {
  std::string encoded;
  for (const unsigned char c : text) {
    const bool plain = absl::ascii_isalnum(c) || absl::StrContains("/-_.~", c);
    if (plain) {
      encoded += static_cast<char>(c);
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", c);
    }
  }
  return encoded;
}

// Asks the scheduler's admin port, with the user's certificate where it has TLS.
//
// Thread safety: safe.
class AdminClient {
 public:
  AdminClient(std::string address, TlsFiles certificate)
      : url_(absl::StrCat(certificate.given() ? "https://" : "http://", address)),
        certificate_(std::move(certificate)) {}

  const std::string& url() const { return url_; }

  AdminServer::Page Get(const AdminServer::PageQuery& query) const {
    AdminServer::Page page;
    page.type = "text/plain; charset=utf-8";
    // A client for each request: the scheduler closes a connection after its answer.
    httplib::Client client(url_, certificate_.cert, certificate_.key);
    client.enable_server_certificate_verification(false);  // RequireScheduler verifies it
    client.set_connection_timeout(kAnswerSeconds);
    client.set_read_timeout(kAnswerSeconds);
    if (certificate_.given() && !RequireScheduler(client.ssl_context())) {
      page.status = 502;
      page.body = absl::StrCat("cannot read the CA of --tls_ca=", certificate_.ca, "\n");
      return page;
    }
    client.set_url_encode(false);  // it leaves '?' and '%' in a path as they are
    std::string path = Encoded(query.path);
    for (const char* name : {"points", "bytes"}) {
      const std::string value = query.parameter(name);
      if (!value.empty())
        absl::StrAppend(&path, path.find('?') == path.npos ? "?" : "&", name, "=", Encoded(value));
    }
    bool too_large = false;
    const auto answer = client.Get(path.c_str(), [&](const char* bytes, size_t n) {
      too_large = page.body.size() + n > kMostAnswerBytes;
      if (!too_large) page.body.append(bytes, n);
      return !too_large;
    });
    if (answer) {
      page.status = answer->status;
      page.type = answer->get_header_value("Content-Type");
      return page;
    }
    page.status = 502;
    page.body = absl::StrCat(
        "the scheduler's admin port at ", url_, " does not answer: ",
        too_large ? "its answer is too large" : httplib::to_string(answer.error()), "\n");
    return page;
  }

 private:
  // The certificate must be one of a scheduler, signed by the cluster's CA. Host names are not
  // compared, as in all connections of a cluster, so the library's own check would not do.
  bool RequireScheduler(SSL_CTX* context) const {
    const auto check = [](int valid, X509_STORE_CTX* chain) {
      if (valid != 1 || X509_STORE_CTX_get_error_depth(chain) != 0) return valid;
      const auto owner = OwnerOf(X509_STORE_CTX_get_current_cert(chain));
      return owner.ok() && owner->role == PeerRole::kScheduler ? 1 : 0;
    };
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, check);
    return SSL_CTX_load_verify_locations(context, certificate_.ca.c_str(), nullptr) == 1;
  }

  const std::string url_;
  const TlsFiles certificate_;
};

absl::StatusOr<std::unique_ptr<AdminClient>> FindAdmin(const ParsedCommand& command) {
  SLUICE_ASSIGN_OR_RETURN(const std::string address, FindRunningScheduler(command, Clock::Real()));
  SLUICE_ASSIGN_OR_RETURN(const auto client, ConnectToScheduler(command, Clock::Real()));
  SLUICE_ASSIGN_OR_RETURN(const ClusterStatus status, client->GetStatus());
  const std::string admin =
      ReachableAdmin(status.scheduler().admin_address(), status.scheduler().address());
  if (admin.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the scheduler at ", address,
                     " does not say where its admin port is; it is "
                     "older than this command"));
  }
  auto found = std::make_unique<AdminClient>(admin, OperatorFiles(command, address));
  AdminServer::PageQuery jobs = {"/api/v1/jobs", [](const char*) { return std::string(); }};
  const AdminServer::Page answer = found->Get(jobs);
  if (answer.status == 200) return found;
  return absl::UnavailableError(absl::StrCat(
      answer.body.substr(0, answer.body.find('\n')),
      "; an admin port is on loopback unless the scheduler has --admin_bind: give it that, or run "
      "this command on the scheduler's host"));
}

int Dashboard(const ParsedCommand& command) {
  StopSignal::Install(false);
  const auto admin = FindAdmin(command);
  if (!admin.ok()) return ReportError(admin.status());
  AdminServer::Options options;
  options.bind = absl::StrCat("127.0.0.1:", command.Number("port"));
  // A connection acts with this user's certificate, so only this user and root may connect.
  options.page = [&admin](const AdminServer::PageQuery& query) -> std::optional<AdminServer::Page> {
    if (!IsOfDashboard(query.path)) return std::nullopt;
    return (*admin)->Get(query);
  };
  const auto server = AdminServer::Start(std::move(options));
  if (!server.ok()) return ReportError(server.status());
  std::cout << "dashboard of the scheduler at " << (*admin)->url() << ", until Ctrl-C:\n  "
            << (*server)->url() << "/" << std::endl;
  return StopSignal::Wait();
}

}  // namespace

Command DashboardCommand() {
  CommandSpec spec;
  spec.name = "dashboard";
  spec.summary =
      "Serves a cluster's dashboard to a browser on this machine, with your certificate.";
  spec.flags = SchedulerFlags();
  spec.flags.push_back(
      {"port", FlagKind::kNumber, "N", "0", "port on 127.0.0.1; 0 picks a free one"});
  spec.examples =
      "  sluice dashboard\n"
      "  sluice dashboard --scheduler=10.0.0.1:7100 --tls_cert=operator.crt --tls_key=operator.key "
      "\\\n"
      "    --tls_ca=ca.crt\n";
  return {spec, &Dashboard};
}

}  // namespace sluice::cli
