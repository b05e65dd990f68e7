// The HTTP side of a daemon: health, metrics and status for people and monitors.
//
// On a loopback address without certificates, only the daemon's user and root may connect, to any
// page, unless every user of the host may. With certificates it speaks HTTPS, and PageRules say
// whose certificate opens which page. Health needs none, because probes have none; without an
// operator's certificate /readyz gives no reason.
//
//   GET /metrics        Prometheus text format
//   GET /livez          200 "ok" as long as the process answers
//   GET /readyz         200 "ok", else 503 with the reason
//   GET /statusz        plain text for people
//   GET /api/v1/status  the status message as JSON
//
// A daemon may serve more pages (Options::page): the scheduler its dashboard. They may load and
// run nothing but what comes from this server.
//
// With TLS and an audit log, sluice_<role>_certificate_end_seconds{use} is the time at which the
// certificate ends that new connections see, since the Unix epoch; `use` is "admin" or "grpc".
//
// Metrics are named sluice_<role>_<what>_<unit>, and counters end in _total:
// sluice_pserver_frames_applied_total, sluice_pserver_memory_bytes,
// sluice_scheduler_jobs{state="running"}, sluice_worker_examples_total. sluice_build_info{version}
// is 1 in every daemon. Labels are job, rank, table, state, stage, role, device, method, reason,
// action, use and version, never keys or anything else unbounded.
//
// Thread safety: one thread. Callbacks run on the server's threads, several at once, until the
// server is destroyed.
//
// Format: metrics as prometheus-cpp's TextSerializer writes them, JSON by protobuf's mapping.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/security/audit_log.h"
#include "common/security/tls_files.h"

namespace google::protobuf {
class Message;
}
namespace prometheus {
class Registry;
}

namespace sluice {

class AdminServer {
 public:
  struct Page {
    std::string body;
    std::string type = "application/json";
    int status = 200;
  };
  struct PageQuery {
    std::string path;  // decoded
    // Returns the value of a parameter; "" without it.
    std::function<std::string(const char* name)> parameter;
  };
  struct Options {
    std::string bind = "127.0.0.1:0";  // port 0 picks a free one
    TlsFiles tls;  // none: plain HTTP, and whoever may connect may read every page
    // Serves every user of this host also on a loopback address without TLS (LocalUserGate).
    bool any_local_user = false;
    Clock* clock = Clock::Real();  // with the files of TLS; outlives the server
    Env* env = nullptr;            // required with TLS; outlives the server
    // Gets refused connections, handshakes and requests. Its counts are among the metrics. May be
    // null; outlives the server.
    AuditLog* audit = nullptr;
    // Told of certificates that cannot be used (TlsServer). May be empty.
    std::function<void(const std::string&)> log;
    // Returns OK when the daemon is ready, else a status that says what it waits for. Empty: always
    // ready.
    std::function<absl::Status()> ready;
    // Returns the text of /statusz. May be empty.
    std::function<std::string()> status_text;
    // Returns the message of /api/v1/status. May be empty.
    std::function<std::unique_ptr<google::protobuf::Message>()> status;
    // Returns a page of the daemon's own; none: this server answers. Its path needs a rule
    // (PageRules). May be empty.
    std::function<std::optional<Page>(const PageQuery& query)> page;
    // The label of sluice_build_info. Empty: there is no such metric.
    std::string version;
    // The metrics to serve. Null: none.
    std::shared_ptr<prometheus::Registry> registry;
    // Sets gauges before the metrics are collected. May be empty.
    std::function<void()> refresh_metrics;
  };

  // INVALID_ARGUMENT: the address cannot be parsed, or see CheckTlsFiles. UNAVAILABLE: the address
  // cannot be bound (port taken, ...).
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(Options options);
  // Stops listening and waits for requests in progress.
  ~AdminServer();

  // The bound address, host:port with the real port.
  const std::string& address() const;
  // The same as the beginning of a URL.
  std::string url() const;

 private:
  class Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
