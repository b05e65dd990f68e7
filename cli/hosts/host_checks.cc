#include "cli/hosts/host_checks.h"

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cli/jobs/output_files.h"
#include "common/base/env.h"
#include "common/base/local_path.h"
#include "common/base/printable.h"
#include "model/data/expand_files.h"

namespace sluice::cli {
namespace {

std::string NearestFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::path folder = path;
  while (!std::filesystem::is_directory(folder, error)) {
    if (!folder.has_relative_path()) return "/";
    folder = folder.parent_path();
    if (folder.empty()) return ".";
  }
  return folder.string();
}

}  // namespace

HostReport ReportOnHosts(const std::vector<HostFacts>& hosts, const CheckRules& rules) {
  HostReport report;
  for (const HostFacts& host : hosts) {
    const auto error = [&](const auto&... text) {
      report.errors.push_back(absl::StrCat(host.name, ": ", text...));
    };
    if (!host.problem.empty()) {
      report.errors.push_back(absl::StrCat(host.name, " ", host.problem));
      continue;
    }
    if (host.version != rules.version) {
      error("sluice is another version there, '", PrintableLine(host.version), "'; here it is '",
            rules.version, "'; install the same there, or send the programs with --ship");
      continue;
    }
    for (const std::string& broken : host.broken_programs) {
      error(PrintableLine(broken),
            "; install what is missing there, or send the programs with --ship");
    }
    const double skew = std::abs(absl::ToDoubleSeconds(host.clock_ahead));
    if (skew > absl::ToDoubleSeconds(kMostClockSkew)) {
      const std::string text = absl::StrCat(
          "its clock is ", std::llround(skew), " s ",
          host.clock_ahead > absl::ZeroDuration() ? "ahead of" : "behind", " this host's");
      if (rules.tls) {
        error(text, "; set it, for example with NTP: certificates depend on it");
      } else {
        report.warnings.push_back(absl::StrCat(host.name, ": ", text));
      }
    }
    if (host.free_bytes < kLeastFreeBytes) {
      error("the disk is full: ", host.free_bytes >> 20, " MiB are free in ", host.folder,
            ", and logs and state need at least ", kLeastFreeBytes >> 20,
            " MiB; make room there, or set TMPDIR");
    }
    for (const std::string& problem : host.path_problems) error(problem);
  }
  return report;
}

SharedPaths PathsOfJob(const JobConfig& job, const std::string& default_output) {
  SharedPaths paths;
  const auto add = [&](const std::string& what, const std::string& path,
                       std::vector<SharedPath>* to) {
    if (path.empty() || HasScheme(path)) return;
    if (path[0] != '/') paths.relative = true;
    to->push_back({what, path});
  };
  const std::string output = job.output_dir().empty() ? default_output : job.output_dir();
  if (!HasScheme(output)) {
    if (output.empty() || output[0] != '/') paths.relative = true;
    paths.folders.push_back({"output_dir", NearestFolder(output)});
  }
  ExpandLimits limits;
  limits.keep_aliases = true;
  for (const auto& [what, patterns] : {std::pair("data.train_files", &job.data().train_files()),
                                       std::pair("data.eval_files", &job.data().eval_files())}) {
    // Those elsewhere are not even listed: hosts cannot see other objects there.
    google::protobuf::RepeatedPtrField<std::string> local;
    for (const std::string& pattern : *patterns) {
      if (!HasScheme(pattern)) *local.Add() = pattern;
    }
    const auto files = ExpandFiles(local, Env::Real(), "", limits);
    if (!files.ok()) continue;  // CheckJobFiles has said so
    for (const std::string& file : *files) {
      if (paths.files.size() < kMostFiles) add(what, file, &paths.files);
    }
  }
  for (const auto& [what, model] : {std::pair("initial_model", job.initial_model()),
                                    std::pair("initial_checkpoint", job.initial_checkpoint())}) {
    std::error_code error;
    for (const InputFile& file : FilesOfModel(model, Env::Real())) {
      if (paths.files.size() < kMostFiles && std::filesystem::is_regular_file(file.path, error))
        add(what, file.path, &paths.files);
    }
  }
  return paths;
}

}  // namespace sluice::cli
