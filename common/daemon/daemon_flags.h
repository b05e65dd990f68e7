// The flags of every daemon, and the first steps of its main.
//
// The header defines flags, so only a daemon's main.cc may include it. The same holds for
// member_flags.h and listener_flags.h.
//
// Thread safety: one thread. Call from main before other threads start.
#pragma once

#include <gflags/gflags.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "common/daemon/daemon_usage.h"
#include "common/daemon/identity.h"
#include "common/daemon/log_file.h"
#include "common/daemon/process_info.h"
#include "common/daemon/process_limits.h"
#include "common/daemon/process_log.h"
#include "common/daemon/stop_signal.h"

DECLARE_string(log_dir);  // glog's own
DEFINE_string(cluster, "",
              "ClusterConfig file; flags and variables override its values (SLUICE_CLUSTER)");
DEFINE_string(
    admin_bind, "",
    "host:port of the admin server, HTTP or with TLS HTTPS; default 127.0.0.1 and a free port "
    "(SLUICE_ADMIN_BIND)");
DEFINE_string(tls_cert, "",
              "PEM file with this process's certificate: mutual TLS (SLUICE_TLS_CERT)");
DEFINE_string(tls_key, "", "PEM file with the certificate's private key (SLUICE_TLS_KEY)");
DEFINE_string(tls_ca, "",
              "PEM file with the CA that has signed the certificates of all processes of the "
              "cluster (SLUICE_TLS_CA)");
DEFINE_string(data_root, "",
              "comma-separated folders: jobs read only below these and the output roots "
              "(SLUICE_DATA_ROOT)");
DEFINE_string(output_root, "",
              "comma-separated folders: jobs write only below these; default: wherever this user "
              "may (SLUICE_OUTPUT_ROOT)");
DEFINE_bool(insecure, false, "allow addresses other than loopback without TLS (SLUICE_INSECURE)");
DEFINE_bool(
    any_local_user, false,
    "without TLS, serve and call every user of this host at loopback addresses, not only the "
    "user who runs this process and root (SLUICE_ANY_LOCAL_USER)");
DEFINE_uint64(log_max_mb, 64,
              "size of a log file, MiB; a full one is renamed to FILE.1, FILE.1 to FILE.2, ...");
DEFINE_uint64(log_keep, 5, "log files that are kept, the newest one included");
DEFINE_bool(die_with_parent, false, "stop when the parent process ends");
DEFINE_bool(stop_unless_kept, false,
            "stop when standard input ends before its first byte (used by sluice up)");

namespace sluice {

// Prints why the daemon does not start, and returns its exit code.
inline int FailToStart(Role role, const absl::Status& status) {
  std::cerr << "sluice-" << RoleName(role) << ": " << status.message() << std::endl;
  return ExitCodeOf(status);
}

// Reads the flags, silences gRPC's own log and installs StopSignal. With --help, prints the help
// and ends the process. INVALID_ARGUMENT: an unknown flag, a value that its flag cannot take, or an
// argument that is not a flag. RESOURCE_EXHAUSTED: see CheckThreadLimit.
inline absl::Status BeginDaemon(const std::string& usage, int* argc, char*** argv) {
  gflags::SetUsageMessage(usage);
  gflags::SetVersionString(SluiceVersion());
  const auto help = CheckDaemonFlags(*argc, *argv);
  if (!help.ok()) return help.status();
  if (*help) {
    std::cout << DaemonHelp((*argv)[0], usage) << std::flush;
    std::exit(std::cout ? 0 : 1);
  }
  gflags::ParseCommandLineFlags(argc, argv, true);
  StopSignal::Install(FLAGS_die_with_parent);
  if (FLAGS_stop_unless_kept) StopSignal::StopUnlessKept();
  StopSignal::ReopenOnHangUp(&ReopenLog);
  QuietGrpc();
  RaiseFileLimit();
  if (const absl::Status valid = CheckLogLimits(FLAGS_log_max_mb, FLAGS_log_keep); !valid.ok())
    return valid;
  if (*argc == 1) return CheckThreadLimit(kThreadsOfADaemon);
  return absl::InvalidArgumentError(std::string("unknown argument ") + (*argv)[1]);
}

// OpenLog with the limits of the flags.
inline absl::Status OpenDaemonLog(const Identity& identity, const char* argv0) {
  return OpenLog(identity, argv0, {FLAGS_log_max_mb, static_cast<uint32_t>(FLAGS_log_keep)});
}

// Says why the process ends, in its log and to the person who has started it. `code`: that of
// StopSignal::Wait.
inline void TellEnd(int code) {
  LogAndTell(code > 128 ? std::string("ends after a signal: ") + strsignal(code - 128)
                        : "ends with exit code " + std::to_string(code));
}

inline IdentityFlags ReadDaemonFlags() {
  IdentityFlags flags;
  flags.cluster_file = FLAGS_cluster;
  flags.log_dir = FLAGS_log_dir;
  flags.admin_bind = FLAGS_admin_bind;
  flags.tls = {FLAGS_tls_cert, FLAGS_tls_key, FLAGS_tls_ca};
  flags.data_root = FLAGS_data_root;
  flags.output_root = FLAGS_output_root;
  flags.insecure = FLAGS_insecure;
  flags.any_local_user = FLAGS_any_local_user;
  return flags;
}

}  // namespace sluice
