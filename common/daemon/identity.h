// Who a daemon is and where: flag, else SLUICE_* variable, else cluster file, else default.
//
// Variables: SLUICE_ROLE, SLUICE_RANK (a member's), SLUICE_BIND and SLUICE_ADVERTISE (a
// listener's), SLUICE_SCHEDULER, SLUICE_CLUSTER, SLUICE_LOG_DIR, SLUICE_ADMIN_BIND, SLUICE_DEVICE
// (a worker's), SLUICE_INSECURE. Those of a job are refused (common/config/environment.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/device_request.h"
#include "common/daemon/role_name.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Flag values; "" and -1 mean not given.
struct IdentityFlags {
  std::string cluster_file;
  int rank = -1;
  std::string bind;       // host:port to listen on; port 0: a free one
  std::string advertise;  // host:port that others use; default: bind with the real port
  std::string scheduler;
  std::string log_dir;
  std::string admin_bind;  // default 127.0.0.1:0
  std::string device;      // worker: as ParseDeviceRequest takes it; default cpu
  bool insecure = false;
};

struct Identity {
  Role role = ROLE_UNSPECIFIED;
  uint32_t rank = 0;
  std::string bind;
  std::string advertise;  // "" until the port is known
  std::string scheduler;
  std::string log_dir;
  std::string admin_bind;
  DeviceRequest device;   // worker
  ClusterConfig cluster;  // defaults filled in
};

// INVALID_ARGUMENT names flag, variable or field, value and fix. A bind that is not loopback needs
// `insecure`.
absl::StatusOr<Identity> ResolveIdentity(Role role, const IdentityFlags& flags);

// Exit code of a daemon: 0 OK; 2 when to start it again would not help (INVALID_ARGUMENT: its flags
// or configuration; UNIMPLEMENTED: this build has not what they ask for; ABORTED, ALREADY_EXISTS:
// another process, which runs, has its role and rank or its log); else 1.
int ExitCodeOf(const absl::Status& status);

// schedulerlog.0, serverlog.N, workerlog.N
std::string LogFileName(Role role, uint32_t rank);

// What a pserver or worker says of itself when it registers: this process, with that identity, as a
// life of its own.
RegisterRequest RegistrationOf(const Identity& identity, const std::string& admin_address);

// Opens the log: glog lines are appended to <log_dir>/<LogFileName>, each at once; WARNING and
// above also go to stderr. Crashes leave their stack there. --log_dir is glog's own flag:
// DECLARE_string(log_dir) in main.cc. The file is locked as long as this process runs:
// ALREADY_EXISTS, before anything is written, when another process has it.
absl::Status OpenLog(const Identity& identity, const char* argv0);
// Appends "role rank address pid admin_address" ("-" for none) to <log_dir>/endpoints.log.
absl::Status AppendEndpoint(const Identity& identity, const std::string& address,
                            const std::string& admin_address);

// SIGINT, SIGTERM and SIGHUP: Wait blocks until one came or Stop was called. Install before any
// thread starts. After a signal the process has 20 s to end, and a second signal ends it at once.
// With `die_with_parent` the process gets SIGTERM when its parent dies, also while it is stopped.
class StopSignal {
 public:
  static void Install(bool die_with_parent);
  // After Install: SIGTERM to this process when standard input ends before one byte of it has come.
  static void StopUnlessKept();
  static void Stop(int exit_code);  // from any thread
  static int Wait();                // exit code: of Stop, or 130/143/129 after a signal
};

}  // namespace sluice
