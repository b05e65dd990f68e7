// Resolves a daemon's identity: its role, rank, addresses, log folder and device.
//
// Each value comes from its flag, else from its SLUICE_* variable, else from the cluster file, else
// from a default. The variables are SLUICE_ROLE, SLUICE_RANK (of a member), SLUICE_BIND and
// SLUICE_ADVERTISE (of a listener), SLUICE_SCHEDULER, SLUICE_CLUSTER, SLUICE_LOG_DIR,
// SLUICE_ADMIN_BIND, SLUICE_DEVICE (of a worker), SLUICE_TRANSPORT (of a member), SLUICE_STANDBY
// (of the scheduler) and SLUICE_INSECURE, SLUICE_ANY_LOCAL_USER, SLUICE_TLS_CERT, SLUICE_TLS_KEY,
// SLUICE_TLS_CA, SLUICE_DATA_ROOT and SLUICE_OUTPUT_ROOT, and SLUICE_ETCD_CA, SLUICE_ETCD_CERT and
// SLUICE_ETCD_KEY of the scheduler. Variables of a job are refused
// (common/config/environment.h).
//
// Where the file lists several schedulers, a scheduler's own address is the one that --bind (or its
// variable) names, else the only one whose host is this host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/config/device_request.h"
#include "common/config/transport_choice.h"
#include "common/daemon/role_name.h"
#include "common/security/grpc_credentials.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Flag values. "" and -1 mean that the flag is not given.
struct IdentityFlags {
  std::string cluster_file;
  int rank = -1;
  std::string bind;       // host:port to listen on; port 0 picks a free one
  std::string advertise;  // host:port that others connect to; default: bind with the real port
  std::string scheduler;  // one address or several (common/config/address.h)
  std::string log_dir;
  std::string admin_bind;  // default 127.0.0.1:0
  std::string device;      // worker only, as ParseDeviceRequest takes it; default cpu
  std::string transport;   // members only, as ParseTransportChoice takes it; default auto
  TlsFiles tls;
  TlsFiles etcd;                       // scheduler only: its side of TLS with etcd
  std::string data_root, output_root;  // comma-separated
  bool insecure = false;
  bool any_local_user = false;
  bool standby = false;       // scheduler only
  bool etcd_compact = false;  // scheduler only
};

struct Identity {
  Role role = ROLE_UNSPECIFIED;
  uint32_t rank = 0;
  std::string bind;
  std::string advertise;  // "" until the port is known
  std::string scheduler;  // one address or several
  std::string log_dir;
  std::string admin_bind;
  bool standby = false;  // scheduler only: waits until no other one leads
  DeviceRequest device;  // worker only
  TransportChoice transport = TransportChoice::kAuto;  // members only
  GrpcCredentials credentials;
  TlsFiles tls;                         // what `credentials` was made of
  ServiceCredentials etcd_credentials;  // scheduler only
  bool etcd_compact = false;            // scheduler only: it compacts etcd
  std::string cluster_file;             // "": none
  ClusterConfig cluster;                // with its defaults filled in
};

// INVALID_ARGUMENT names the flag, variable or field, its value and the fix. An address that is not
// loopback needs TLS or `insecure`, whether a daemon listens there or a member finds the scheduler
// there.
absl::StatusOr<Identity> ResolveIdentity(Role role, const IdentityFlags& flags);

// The Env for paths that jobs and other processes name: `base`, confined to the roots of the
// cluster's configuration. Null when it has none. Statuses as RootedEnv::Create. With
// roots, redirects of this process are confined to them too (ConfineRedirects).
absl::StatusOr<std::unique_ptr<Env>> ConfinedEnv(const Identity& identity, Env* base);

// Says why this worker reads no data from web servers, or "". In a cluster off loopback, without
// roots, it does not: a job could have it read what only its network may see.
std::string WebDataProblem(const Identity& identity);

// The exit code of a daemon: 0 for OK, 2 when starting it again would not help, else 1. These codes
// give 2:
//   INVALID_ARGUMENT         the flags or the configuration are wrong
//   UNIMPLEMENTED            this build lacks what they ask for
//   ABORTED, ALREADY_EXISTS  another running process has the role and rank, or the log
//   PERMISSION_DENIED        the certificate is for another role or rank, or a file is protected
int ExitCodeOf(const absl::Status& status);

// The name of a daemon's log file: schedulerlog.0, serverlog.N or workerlog.N.
std::string LogFileName(Role role, uint32_t rank);
// The same for its audit log: scheduleraudit.0, serveraudit.N or workeraudit.N.
std::string AuditFileName(Role role, uint32_t rank);

// Returns the request with which a pserver or worker registers this process as a new life of that
// identity.
RegisterRequest RegistrationOf(const Identity& identity, const std::string& admin_address);

}  // namespace sluice
