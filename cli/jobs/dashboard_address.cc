#include "cli/jobs/dashboard_address.h"

#include "absl/strings/str_cat.h"
#include "cli/jobs/endpoints.h"
#include "common/config/address.h"

namespace sluice::cli {

std::string ReachableAdmin(const std::string& admin_address, const std::string& scheduler) {
  absl::StatusOr<Address> admin = ParseAddress(admin_address);
  const absl::StatusOr<Address> known = ParseAddress(scheduler);
  if (!admin.ok() || !known.ok() || (admin->host != "0.0.0.0" && admin->host != "::"))
    return admin_address;
  admin->host = known->host;
  return ToText(*admin);
}

std::string DashboardLine(const std::string& admin_address, bool tls, absl::string_view log_flag) {
  if (admin_address.empty() || admin_address == "-") return "";
  return tls ? absl::StrCat("dashboard: run sluice dashboard", log_flag)
             : absl::StrCat("dashboard: http://", admin_address, "/");
}

std::string DashboardLineOf(const std::string& log_dir, bool tls) {
  std::string admin;
  for (const Endpoint& endpoint : ReadEndpoints(log_dir)) {
    if (endpoint.role == "scheduler") admin = endpoint.admin_address;
  }
  return DashboardLine(admin, tls, log_dir == "log" ? "" : absl::StrCat(" --log_dir=", log_dir));
}

}  // namespace sluice::cli
