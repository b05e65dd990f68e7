// The HTTP side of a daemon: health, metrics and status for people and monitors.
//
//   GET /metrics        Prometheus text format
//   GET /livez          200 "ok" as long as the process answers
//   GET /readyz         200 "ok", else 503 with the reason
//   GET /statusz        plain text for people
//   GET /api/v1/status  the status message as JSON
//
// Metrics are named sluice_<role>_<what>_<unit>, counters end in _total:
// sluice_pserver_frames_applied_total, sluice_pserver_memory_bytes,
// sluice_scheduler_jobs{state="running"}, sluice_worker_examples_total. Labels: job, table, state;
// never keys or anything else without a bound. Source of the formats: prometheus-cpp's
// TextSerializer, protobuf's JSON mapping. Thread safety: callbacks run on the server's threads,
// several at once, until the server is destroyed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class Message;
}
namespace prometheus {
class Registry;
}

namespace sluice {

class AdminServer {
 public:
  struct Options {
    std::string bind = "127.0.0.1:0";  // port 0: a free one
    // OK when ready; else the message is what is waited for. Empty: always ready.
    std::function<absl::Status()> ready;
    // Text of /statusz.
    std::function<std::string()> status_text;
    // Message of /api/v1/status.
    std::function<std::unique_ptr<google::protobuf::Message>()> status;
    // Metrics; null: none.
    std::shared_ptr<prometheus::Registry> registry;
    // Called before metrics are collected, to set gauges.
    std::function<void()> refresh_metrics;
  };

  // INVALID_ARGUMENT or UNAVAILABLE: the address cannot be used (port taken, ...).
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(Options options);
  // Stops listening and waits for requests in progress.
  ~AdminServer();

  // host:port with the real port.
  const std::string& address() const;

 private:
  class Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
