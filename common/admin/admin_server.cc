#include "common/admin/admin_server.h"

#include <arpa/inet.h>
#include <google/protobuf/message.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/admin/bounded_http_server.h"
#include "common/admin/metric_series.h"
#include "common/admin/status_json.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/security/access_rules.h"
#include "common/security/audit_log.h"
#include "common/security/connection_listener.h"
#include "common/security/tls_server.h"

namespace sluice {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";
constexpr const char* kPages[] = {"/statusz", "/metrics", "/livez", "/readyz", "/api/v1/status"};

// Refuses web pages whose host name resolves to a loopback address for the moment (DNS rebinding).
// `header`: the Host header; empty if there is none.
absl::Status CheckLocalHost(const std::string& header) {
  const std::string host = absl::AsciiStrToLower(header);
  absl::StatusOr<Address> address = ParseAddress(host);
  if (!address.ok()) address = ParseAddress(absl::StrCat(host, ":0"));
  in6_addr bytes;
  if (host.empty() || (address.ok() && (IsLoopback(address->host) ||
                                        inet_pton(AF_INET, address->host.c_str(), &bytes) == 1 ||
                                        inet_pton(AF_INET6, address->host.c_str(), &bytes) == 1))) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("this port answers requests to localhost or an IP address, not to ",
                   Printable(host), "; open it as localhost"));
}

using Counters = prometheus::Family<prometheus::Counter>;

Counters* NewAuditCounters(const AuditLog& log, const char* what, prometheus::Registry* registry) {
  return &CounterFamily(absl::StrCat("sluice_", log.role(), "_", what, "_total"), registry);
}

void RaiseTo(uint64_t value, prometheus::Counter* counter) {
  counter->Increment(static_cast<double>(value) - counter->Value());
}

// The counts of an AuditLog as Prometheus metrics:
//
//   sluice_<role>_refusals_total{method,reason}
//   sluice_<role>_actions_total{action}       the scheduler only: others take no orders
//   sluice_<role>_audit_lines_lost_total
//
// Thread safety: safe from any thread.
class AuditMetrics {
 public:
  // Both outlive this.
  AuditMetrics(AuditLog* log, prometheus::Registry* registry);

  // Sets the metrics to the log's counts.
  void Update();

 private:
  AuditLog* const log_;
  Mutex mutex_;  // a counter is raised by the difference to its value
  prometheus::Family<prometheus::Counter>* const refusals_ ABSL_PT_GUARDED_BY(mutex_);
  prometheus::Family<prometheus::Counter>* const actions_
      ABSL_PT_GUARDED_BY(mutex_);  // may be null
  prometheus::Counter* const lost_lines_ ABSL_PT_GUARDED_BY(mutex_);
};

AuditMetrics::AuditMetrics(AuditLog* log, prometheus::Registry* registry)
    : log_(log),
      refusals_(NewAuditCounters(*log, "refusals", registry)),
      actions_(log->role() == "scheduler" ? NewAuditCounters(*log, "actions", registry) : nullptr),
      lost_lines_(&NewAuditCounters(*log, "audit_lines_lost", registry)->Add({})) {}

void AuditMetrics::Update() {
  const AuditLog::Counts counts = log_->counts();
  // Two scrapes at once would raise a counter twice.
  MutexLock lock(&mutex_);
  for (const auto& [key, n] : counts.refusals)
    RaiseTo(n, &refusals_->Add({{"method", key.first}, {"reason", key.second}}));
  if (actions_ != nullptr) {
    for (const auto& [action, n] : counts.actions) RaiseTo(n, &actions_->Add({{"action", action}}));
  }
  RaiseTo(counts.lost_lines, lost_lines_);
}

}  // namespace

class AdminServer::Impl {
 public:
  Impl(Options options, std::unique_ptr<TlsServer> tls)
      : options_(std::move(options)), tls_(std::move(tls)) {
    if (options_.audit != nullptr && options_.registry != nullptr)
      audit_metrics_ = std::make_unique<AuditMetrics>(options_.audit, options_.registry.get());
    if (options_.registry != nullptr && !options_.version.empty()) {
      GaugeFamily("sluice_build_info", options_.registry.get())
          .Add({{"version", options_.version}})
          .Set(1);
    }
    if (tls_ != nullptr && options_.audit != nullptr && options_.registry != nullptr) {
      auto& ends =
          GaugeFamily(absl::StrCat("sluice_", options_.audit->role(), "_certificate_end_seconds"),
                      options_.registry.get());
      admin_end_ = &ends.Add({{"use", "admin"}});
      grpc_end_ = &ends.Add({{"use", "grpc"}});
      SetCertificateEnds();
    }
    server_.set_exception_handler(
        [](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
          response.status = 500;
          response.set_content("internal error\n", kText);
        });
    AddRoutes();
  }

  absl::Status Listen() {
    SLUICE_ASSIGN_OR_RETURN(Address address, ParseAddress(options_.bind));
    ConnectionListener::Options listening;
    listening.users.address = options_.bind;
    listening.users.tls = tls_ != nullptr;
    listening.users.any_local_user = options_.any_local_user;
    listening.users.audit = options_.audit;
    listening.log = options_.log;
    auto listener = ConnectionListener::Listen(std::move(listening));
    if (!listener.ok()) {
      return absl::UnavailableError(absl::StrCat("the admin server ", listener.status().message(),
                                                 "; give another --admin_bind (port 0 picks a "
                                                 "free one)"));
    }
    listener_ = *std::move(listener);
    address.port = static_cast<uint16_t>(listener_->port());
    address_ = ToText(address);
    listener_->Start(
        [this](FileDescriptor connection, const TcpEnd&) { server_.Add(std::move(connection)); });
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }
  const char* scheme() const { return tls_ != nullptr ? "https" : "http"; }

 private:
  static std::string CallerAddress(const std::string& ip, int port) {
    return ToText({ip, static_cast<uint16_t>(port)});
  }

  BoundedHttpServer::Access AccessToPages() {
    BoundedHttpServer::Access access;
    access.tls = tls_.get();
    access.admit = [this](const httplib::Request& request) { return Admit(request); };
    access.answer = [this](const httplib::Request& request, httplib::Response* response) {
      return AnswerOwnPage(request, response);
    };
    access.on_refused = [this](const HttpRefusal& refusal) {
      refusals_.Refused(refusal.caller, refusal.method, refusal.reason, refusal.why);
    };
    return access;
  }

  absl::StatusOr<PeerIdentity> PeerOfRequest(const httplib::Request& request) const {
    if (tls_ == nullptr) return PeerIdentity();
    return PeerOf(*request.ssl);
  }

  absl::Status Admit(const httplib::Request& request) {
    const absl::StatusOr<PeerIdentity> peer = PeerOfRequest(request);
    // Refusals are counted by page, so it must not hold the name of a job.
    const std::string page = PageOf(request.path);
    if (tls_ == nullptr && AllLoopback({*ParseAddress(options_.bind)})) {
      const absl::Status local = CheckLocalHost(request.get_header_value("Host"));
      if (!local.ok()) {
        refusals_.Refused(CallerOf(peer, CallerAddress(request.remote_addr, request.remote_port)),
                          page, RefusalReason::kInvalid, std::string(local.message()));
        return local;
      }
    }
    absl::Status allowed = CheckPageAccess(peer, page);
    if (!allowed.ok()) {
      refusals_.Refused(CallerOf(peer, CallerAddress(request.remote_addr, request.remote_port)),
                        page, peer.ok() ? RefusalReason::kRole : RefusalReason::kCertificate,
                        std::string(allowed.message()));
    }
    return allowed;
  }

  void AddRoutes() {
    server_.Get("/livez", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("ok\n", kText);
    });
    server_.Get("/readyz", [this](const httplib::Request& request, httplib::Response& response) {
      WriteReadiness(request, &response);
    });
    server_.Get("/statusz", [this](const httplib::Request& request, httplib::Response& response) {
      WriteText(options_.status_text ? options_.status_text() : std::string(), request, &response);
    });
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      // Metrics are brought up to date when somebody looks, so that training pays nothing for them.
      if (options_.refresh_metrics) options_.refresh_metrics();
      if (audit_metrics_ != nullptr) audit_metrics_->Update();
      if (admin_end_ != nullptr) SetCertificateEnds();
      const prometheus::TextSerializer serializer;
      response.set_content(
          options_.registry ? serializer.Serialize(options_.registry->Collect()) : std::string(),
          "text/plain; version=0.0.4; charset=utf-8");
    });
    server_.Get("/api/v1/status", [this](const httplib::Request&, httplib::Response& response) {
      WriteStatus(&response);
    });
    server_.Get("/", [](const httplib::Request& request, httplib::Response& response) {
      std::string pages;
      for (const char* page : kPages) pages += absl::StrCat(page, "\n");
      WriteText(pages, request, &response);
    });
  }

  bool AnswerOwnPage(const httplib::Request& request, httplib::Response* response) const {
    if (!options_.page) return false;
    const PageQuery query = {
        request.path, [&request](const char* name) { return request.get_param_value(name); }};
    std::optional<Page> page = options_.page(query);
    if (!page.has_value()) return false;
    response->status = page->status;
    response->set_content(std::move(page->body), page->type);
    // A name or a log line that looks like markup must not run, and no other site may frame this.
    response->set_header("Content-Security-Policy",
                         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                         "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                         "frame-ancestors 'none'");
    response->set_header("X-Content-Type-Options", "nosniff");
    response->set_header("Referrer-Policy", "no-referrer");
    response->set_header("Cross-Origin-Resource-Policy", "same-origin");
    response->set_header("Cache-Control", "no-store");
    return true;
  }

  void SetCertificateEnds() {
    admin_end_->Set(absl::ToDoubleSeconds(tls_->certificate_end() - absl::UnixEpoch()));
    // gRPC reads the same files by itself. While they do not fit together, it refuses connections.
    const absl::StatusOr<absl::Time> end = EndOf(options_.tls);
    if (end.ok()) grpc_end_->Set(absl::ToDoubleSeconds(*end - absl::UnixEpoch()));
  }

  // Plain text for programs; for a browser, the text below links to all pages.
  static void WriteText(const std::string& text, const httplib::Request& request,
                        httplib::Response* response) {
    if (!absl::StrContains(request.get_header_value("Accept"), "text/html"))
      return response->set_content(text, kText);
    std::string html = "<!doctype html><title>sluice</title><p>";
    for (const char* page : kPages)
      absl::StrAppend(&html, "<a href=\"", page, "\">", page, "</a> ");
    absl::StrAppend(&html, "</p><pre>",
                    absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}}),
                    "</pre>\n");
    response->set_content(html, "text/html; charset=utf-8");
  }

  void WriteReadiness(const httplib::Request& request, httplib::Response* response) const {
    const absl::Status status = options_.ready ? options_.ready() : absl::OkStatus();
    response->status = status.ok() ? 200 : 503;
    std::string text = status.ok() ? "ok" : "not ready";
    // The reason names addresses and members: it is for those who may also read the status.
    if (!status.ok() && CheckPageAccess(PeerOfRequest(request), "/statusz").ok())
      absl::StrAppend(&text, ": ", status.message());
    response->set_content(text + "\n", kText);
  }

  void WriteStatus(httplib::Response* response) const {
    const auto message = options_.status ? options_.status() : nullptr;
    response->set_content(message ? StatusJson(*message) : "{}", "application/json");
  }

  const Options options_;
  const std::unique_ptr<TlsServer> tls_;         // null: plain HTTP
  std::unique_ptr<AuditMetrics> audit_metrics_;  // null: no audit log, or no metrics
  prometheus::Gauge* admin_end_ = nullptr;       // null: no TLS, no audit log, or no metrics
  prometheus::Gauge* grpc_end_ = nullptr;        // the same
  AuditQueue refusals_{options_.audit};          // outlives the server
  BoundedHttpServer server_{BoundedHttpServer::Limits(), AccessToPages()};
  std::string address_;                           // constant after Listen
  std::unique_ptr<ConnectionListener> listener_;  // gives the server its connections
};

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(Options options) {
  std::unique_ptr<TlsServer> tls;
  if (options.tls.given()) {
    TlsServer::Options files;
    files.files = options.tls;
    files.clock = options.clock;
    files.env = options.env;
    files.log = options.log;
    SLUICE_ASSIGN_OR_RETURN(tls, TlsServer::Create(std::move(files)));
  }
  auto impl = std::make_unique<Impl>(std::move(options), std::move(tls));
  SLUICE_RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

const std::string& AdminServer::address() const { return impl_->address(); }
std::string AdminServer::url() const { return absl::StrCat(impl_->scheme(), "://", address()); }

}  // namespace sluice
