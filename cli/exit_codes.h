// The exit codes of the commands.
#pragma once

namespace sluice::cli {

constexpr int kDone = 0;
constexpr int kJobFailed = 1;    // the job failed or was cancelled, or a local operation failed
constexpr int kBadUsage = 2;     // wrong flags, files or configuration
constexpr int kUnreachable = 3;  // no scheduler answered
constexpr int kOutputLost = 4;   // done (a job is saved), but some output could not be printed
// 130, 143 and 129: ended by SIGINT, SIGTERM or SIGHUP.

}  // namespace sluice::cli
