// Says how to continue a job that was cancelled.
#pragma once

#include <string>

#include "cli/screen/command_line.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

// The text as one word of a shell.
std::string ShellWord(const std::string& text);

// Why a job makes no checkpoint from which it could continue; empty: it makes some.
std::string WhyNothingIsSaved(const JobConfig& job);

// For a job that `sluice NAME` has submitted as `job`, and cancelled: the command that continues it
// from its newest checkpoint, or that there is none. Empty when the job ended otherwise, or only
// evaluates.
std::string ResumeHint(const std::string& name, const ParsedCommand& command, const JobConfig& job,
                       const JobStatus& status);

// How a job has ended that another command had submitted and this one cancelled, with the command
// that continues it in a cluster that runs then.
std::string EndAndResumeHint(const JobStatus& status);

}  // namespace sluice::cli
