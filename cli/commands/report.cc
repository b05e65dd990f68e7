// sluice report: one page of finished jobs, side by side.
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/jobs/watch_job.h"
#include "cli/report/finished_job.h"
#include "cli/report/report_page.h"
#include "cli/screen/command_line.h"
#include "cli/screen/format.h"
#include "cli/screen/stderr_lines.h"
#include "common/base/clock.h"
#include "common/base/file_origin.h"
#include "common/base/output_target.h"
#include "common/base/printable.h"
#include "common/daemon/process_info.h"
#include "common/places/places_env.h"

namespace sluice::cli {
namespace {

// More would be no comparison any more, and the page would not be usable.
constexpr size_t kMostReported = 20;

absl::Status WriteReport(const ParsedCommand& command) {
  Env* const env = AllPlaces();
  const std::string output = command.Text("output");
  if (command.words.empty()) {
    return absl::InvalidArgumentError(
        "no folder is given; run sluice report DIR..., with the folders of finished jobs");
  }
  const bool to_stdout = output == kStandardOutput;
  if (!to_stdout) {
    const absl::Status replaceable =
        CheckReplaceable(env, output, FileKind::kReport, command.Switch("overwrite"), "--output");
    if (!replaceable.ok()) return absl::InvalidArgumentError(replaceable.message());
  }
  std::vector<std::string> jobs;
  absl::Status first;
  for (const std::string& folder : command.words) {
    auto job = ReadFinishedJob(env, folder);
    // A pattern such as output/* also names folders of jobs that run, and others.
    if (absl::IsNotFound(job.status())) {
      first.Update(job.status());
      if (command.words.size() > 1)
        PrintOnStderr(PrintableLine(absl::StrCat("sluice: left out: ", job.status().message())));
      continue;
    }
    if (!job.ok()) return job.status();
    jobs.push_back(*std::move(job));
  }
  if (jobs.empty()) return absl::InvalidArgumentError(first.message());
  if (jobs.size() > kMostReported) {
    return absl::InvalidArgumentError(absl::StrCat("a page shows ", kMostReported,
                                                   " jobs at most, and ", jobs.size(),
                                                   " are given; leave some out"));
  }
  const std::string page = ReportPage(jobs, SluiceVersion(), Clock::Real()->WallNow());
  if (to_stdout) {
    std::cout << page;
    return absl::OkStatus();
  }
  const absl::Status written = env->WriteFile(output, {absl::string_view(page)});
  if (!written.ok()) {
    return absl::Status(written.code(), absl::StrCat("cannot write the report: ", written.message(),
                                                     "; give another --output"));
  }
  std::cout << "wrote " << output << ": " << jobs.size()
            << (jobs.size() == 1 ? " job, " : " jobs, ") << ByteCount(page.size())
            << "; open it in a browser" << std::endl;
  return absl::OkStatus();
}

int ReportJobs(const ParsedCommand& command) {
  const absl::Status reported = WriteReport(command);
  return reported.ok() ? kDone : ReportError(reported);
}

}  // namespace

Command ReportCommand() {
  CommandSpec spec;
  spec.name = "report";
  spec.summary =
      "Makes one page of finished jobs, side by side: curves, AUC with its error, calibration, "
      "where "
      "time went, missing values, what differs in their configuration, and what was lost; needs no "
      "cluster.";
  spec.words = "DIR|URL...";
  spec.max_words = 1000;
  spec.flags = {
      {"output", FlagKind::kText, "FILE", "report.html", "the page; - prints it"},
      {"overwrite", FlagKind::kBool, "", "false",
       "replace a file that sluice report did not write"},
  };
  spec.examples =
      "  sluice report output/adult-1                       # writes report.html\n"
      "  sluice report output/* --output=week.html          # folders without a result are left "
      "out\n";
  return {spec, &ReportJobs};
}

}  // namespace sluice::cli
