// What the commands return to the shell.
#pragma once

namespace sluice::cli {

constexpr int kDone = 0;
constexpr int kJobFailed = 1;    // the job failed or was cancelled, or a part of this machine did
constexpr int kBadUsage = 2;     // flags, files, configuration
constexpr int kUnreachable = 3;  // no scheduler answered
constexpr int kOutputLost = 4;   // done (a job: ended well and saved), but not all could be printed
// 130, 143 and 129: ended by SIGINT, SIGTERM or SIGHUP.

}  // namespace sluice::cli
