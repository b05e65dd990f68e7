#include "cli/jobs/resume_hint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/screen/format.h"
#include "cli/screen/progress.h"
#include "common/config/job_config.h"

namespace sluice::cli {

std::string ShellWord(const std::string& text) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string WhyNothingIsSaved(const JobConfig& job) {
  if (job.evaluate_only()) return "it only evaluates";
  return CanCheckpoint(job) ? "" : "checkpoint.keep is 0";
}

std::string ResumeHint(const std::string& name, const ParsedCommand& command, const JobConfig& job,
                       const JobStatus& status) {
  if (status.state() != JOB_CANCELLED || !CanCheckpoint(job)) return "";
  if (status.checkpoint().dir().empty())
    return "it has no checkpoint, so it cannot be continued, only started again";
  if (command.Given("progress_fd")) {
    // A script has started this command, which is not for shells.
    return absl::StrCat("to continue from ", status.checkpoint().dir(),
                        ": run the script again with resume=True and with ",
                        status.config().output_dir(), " as the job's output folder");
  }
  std::string text =
      absl::StrCat("to continue from ", status.checkpoint().dir(), ":\n  sluice ", name);
  // The words after -- are arguments of a program.
  const auto words = std::find(command.args.begin(), command.args.end(), "--");
  const auto add = [&](auto begin, auto end) {
    for (auto arg = begin; arg != end; ++arg) absl::StrAppend(&text, " ", ShellWord(*arg));
  };
  add(command.args.begin(), words);
  // A job that names no folder gets one of its own.
  if (job.output_dir().empty())
    absl::StrAppend(&text, " --output_dir=", ShellWord(status.config().output_dir()));
  if (!command.Switch("resume")) absl::StrAppend(&text, " --resume");
  add(words, command.args.end());
  return text;
}

std::string EndAndResumeHint(const JobStatus& status) {
  const std::string end = absl::StrCat(StateName(status.state()), " ", status.job_id());
  if (status.state() != JOB_CANCELLED || status.config().evaluate_only()) return end;
  if (status.checkpoint().dir().empty())
    return absl::StrCat(end, ": it has no checkpoint, so it can only be started again");
  // The checkpoint's own copy of the job: that in output_dir is replaced by the next run, so no run
  // may be given it.
  return absl::StrCat(end, "; to continue from ", status.checkpoint().dir(), ":\n  sluice submit",
                      " --job=", ShellWord(status.checkpoint().dir() + "/job.textproto"),
                      " --resume");
}

}  // namespace sluice::cli
