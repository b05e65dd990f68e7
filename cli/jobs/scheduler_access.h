// How a command reaches the scheduler of its cluster: by which address, and with which certificate.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"
#include "common/security/grpc_credentials.h"
#include "common/security/tls_files.h"

namespace sluice::cli {

// limits.wait_s by default: how long a scheduler that has died may take to answer again.
inline constexpr absl::Duration kRestartPatience = absl::Seconds(120);

// The folder below the log folder in which `--tls` of sluice launch and up keeps its certificates.
std::string CertificateFolder(const std::string& log_dir);

// The files of an operator's certificate: --tls_cert, --tls_key and --tls_ca, else SLUICE_TLS_CERT,
// SLUICE_TLS_KEY and SLUICE_TLS_CA. Else those that `--tls` has made for the cluster of the
// command's log folder, if `scheduler` is its address. None: plain TCP.
TlsFiles OperatorFiles(const ParsedCommand& command, const std::string& scheduler);

// The credentials of an operator, with OperatorFiles. Without any: plain TCP, off loopback only
// with --insecure, or when that cluster was started with it. On loopback they then lead only to a
// scheduler of this user or of root, without --any_local_user of the command or of that cluster.
// INVALID_ARGUMENT: see CheckTlsFiles; or the certificate is for another role; or plain TCP is not
// allowed.
absl::StatusOr<GrpcCredentials> OperatorCredentials(const ParsedCommand& command,
                                                    const std::string& scheduler);

// A client of the scheduler that FindRunningScheduler finds.
absl::StatusOr<std::unique_ptr<SchedulerClient>> ConnectToScheduler(const ParsedCommand& command,
                                                                    Clock* clock);

// The flags that these functions read: where the scheduler is, and the certificate.
std::vector<FlagSpec> SchedulerFlags();

}  // namespace sluice::cli
