// Reads the /metrics page of a daemon on this host.
//
// Thread safety: immutable.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/tls_files.h"

namespace sluice::plan {

class MetricsPage {
 public:
  // `address` is HOST:PORT of an admin port. With `certificate` it has TLS: the daemon checks this
  // process's certificate, but its own is not checked, so read only daemons of a cluster that this
  // process has started on loopback. UNAVAILABLE names the address.
  static absl::StatusOr<MetricsPage> Fetch(const std::string& address,
                                           const TlsFiles& certificate = {});
  // Reads Prometheus text. Lines that it does not understand are skipped.
  explicit MetricsPage(const std::string& text);

  // Sums the series of the metric; 0 when there is none.
  double Sum(const std::string& name) const;
  // The values of the metric by one of its labels.
  std::map<std::string, double> By(const std::string& name, const std::string& label) const;

 private:
  std::multimap<std::string, std::pair<std::string, double>> series_;  // name -> labels, value
};

}  // namespace sluice::plan
