// sluice demo: trains a first job, whose data is installed with the programs.
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/child_process.h"
#include "cli/commands/commands.h"
#include "cli/jobs/watch_job.h"

namespace sluice::cli {
namespace {

constexpr char kJob[] = "configs/adult_wide_deep.textproto";
constexpr char kData[] = "data/adult";
constexpr char kFolder[] = "sluice-demo";

// The folder with kJob and kData, which lies at another place in each kind of installation.
absl::StatusOr<std::filesystem::path> InstalledDemo() {
  const absl::StatusOr<std::string> programs = ExecutableFolder();
  if (!programs.ok()) return programs.status();
  // A wheel, a Debian package, a bundle, a build in the source tree.
  for (const char* place : {"../demo", "../share/sluice/demo", "..", "../../.."}) {
    const std::filesystem::path folder = std::filesystem::path(*programs) / place;
    std::error_code error;
    if (std::filesystem::exists(folder / kJob, error) &&
        std::filesystem::exists(folder / kData, error))
      return folder;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the data of the demo is not installed with the programs in ", *programs,
                   "; take it from the source tree: sluice launch --job=", kJob));
}

absl::Status CopyDemo(const std::filesystem::path& from) {
  std::error_code error;
  const auto options =
      std::filesystem::copy_options::overwrite_existing | std::filesystem::copy_options::recursive;
  for (const char* part : {kJob, kData}) {
    const std::filesystem::path to = std::filesystem::path(kFolder) / part;
    std::filesystem::create_directories(to.parent_path(), error);
    if (!error) std::filesystem::copy(from / part, to, options, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat("cannot write ", to.string(), ": ",
                                                     error.message(),
                                                     "; run sluice demo in a folder of yours"));
    }
  }
  return absl::OkStatus();
}

int Demo(const ParsedCommand& command) {
  const auto installed = InstalledDemo();
  if (!installed.ok()) return ReportError(installed.status());
  if (const absl::Status copied = CopyDemo(*installed); !copied.ok()) return ReportError(copied);
  const auto in_folder = [](const char* flag, const char* name) {
    return absl::StrCat("--", flag, "=", kFolder, "/", name);
  };
  std::vector<std::string> args = {in_folder("job", kJob), "--server_num=2",
                                   in_folder("output_dir", "output"), in_folder("log_dir", "log")};
  args.insert(args.end(), command.args.begin(), command.args.end());
  const Command launch = LaunchCommand();
  const auto parsed = ParseCommand(launch.spec, args);
  return parsed.ok() ? launch.run(*parsed) : ReportError(parsed.status());
}

}  // namespace

Command DemoCommand() {
  CommandSpec spec;
  spec.name = "demo";
  spec.variables_of = "launch";
  spec.summary =
      "Trains a first job on this host: does a person of the 1994 census earn more than 50,000 "
      "dollars a year (UCI Adult)? Takes seconds and prints AUC and log loss. The job, its data "
      "and its result are in ./sluice-demo.";
  for (FlagSpec& flag : LaunchCommand().spec.flags) {
    const bool of_other_jobs =
        flag.name == "job" || flag.name == "program" || flag.name == "python" || flag.name == "pdb";
    if (!of_other_jobs) spec.flags.push_back(std::move(flag));
  }
  spec.examples =
      "  sluice demo\n"
      "  sluice demo --a_sync=false          # sync instead of async\n"
      "  sluice demo --k_steps=20            # Geo, exchange every 20 steps\n";
  return {spec, &Demo};
}

}  // namespace sluice::cli
