// Where the dashboard of a cluster is.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::cli {

// The admin address as others reach it: an address that stands for all of the scheduler's host
// becomes the host of `scheduler`, HOST:PORT. Other texts stay.
std::string ReachableAdmin(const std::string& admin_address, const std::string& scheduler);

// The line that commands print: the URL, or, where a browser would need a certificate (TLS), the
// command that serves it. `log_flag`: " --log_dir=...", or nothing. "": there is no address.
std::string DashboardLine(const std::string& admin_address, bool tls, absl::string_view log_flag);

// The same for the scheduler in <log_dir>/endpoints.log.
std::string DashboardLineOf(const std::string& log_dir, bool tls);

}  // namespace sluice::cli
