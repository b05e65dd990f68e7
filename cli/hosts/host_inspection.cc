#include "cli/hosts/host_inspection.h"

#include <unistd.h>

#include <filesystem>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/cluster/local_cluster.h"
#include "cli/screen/format.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"

namespace sluice::cli {
namespace {

// Files of one name and one content in the folders that hosts must share, while this lives.
class NonceFiles {
 public:
  explicit NonceFiles(const SharedPaths& paths) {
    const uint64_t random =
        std::random_device()() * 0x100000001ULL ^ static_cast<uint64_t>(getpid()) << 32;
    nonce_ = absl::StrCat(".sluice-host-check-", absl::StrFormat("%016x", random));
    for (const SharedPath& folder : paths.folders) {
      const std::string file = absl::StrCat(folder.path, "/", nonce_);
      const absl::Status one = Env::Real()->WriteFile(file, {nonce_});
      if (!one.ok())
        written_ = absl::InvalidArgumentError(absl::StrCat(folder.what, ": ", one.message()));
      files_.push_back(file);
    }
  }
  ~NonceFiles() {
    for (const std::string& file : files_) (void)Env::Real()->RemoveFile(file);
  }
  NonceFiles(const NonceFiles&) = delete;
  NonceFiles& operator=(const NonceFiles&) = delete;

  const std::string& nonce() const { return nonce_; }
  const absl::Status& written() const { return written_; }

 private:
  std::string nonce_;
  std::vector<std::string> files_;
  absl::Status written_;
};

std::vector<std::string> PathProblemsOn(size_t host, const SharedPaths& paths,
                                        const std::string& nonce, HostGuards* guards) {
  std::vector<std::string> problems;
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  const auto inside = guards->Ask(host, "cd", {here});
  if (!inside.ok() && paths.relative) {
    return {absl::StrCat("the current folder ", here,
                         ", below which the job has paths, is missing: ", inside.status().message(),
                         "; share it, or give absolute paths")};
  }
  for (const SharedPath& folder : paths.folders) {
    const auto content = guards->Ask(host, "read", {absl::StrCat(folder.path, "/", nonce)});
    if (content.ok() && content->size() == 1 && (*content)[0] == nonce) continue;
    problems.push_back(absl::StrCat(folder.what, ": ", folder.path,
                                    " is not the same folder there; give one on a file system that "
                                    "all hosts share"));
  }
  std::vector<uint64_t> tags;
  for (const SharedPath& file : paths.files)
    tags.push_back(guards->Send(host, "size", {file.path}));
  constexpr size_t kMostProblems = 5;
  for (size_t i = 0; i < tags.size(); ++i) {
    const SharedPath& file = paths.files[i];
    const auto there = guards->Await(host, tags[i]);
    const auto bytes = Env::Real()->FileSize(file.path);
    if (problems.size() >= kMostProblems || !bytes.ok()) continue;
    if (!there.ok()) {
      problems.push_back(absl::StrCat(file.what, ": ", file.path,
                                      " cannot be read there: ", there.status().message(),
                                      "; share the folder, or copy the file to the same path"));
    } else if (there->empty() || (*there)[0] != absl::StrCat(*bytes)) {
      problems.push_back(absl::StrCat(file.what, ": ", file.path, " has ",
                                      there->empty() ? "?" : (*there)[0], " bytes there and ",
                                      *bytes, " here; copy it again"));
    }
  }
  return problems;
}

absl::Status NothingStarted(const std::vector<std::string>& errors) {
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("nothing was started, because of ", Counted(errors.size(), "problem"),
                   " on the hosts:\n  ", absl::StrJoin(errors, "\n  ")));
}

// Asks all hosts. CANCELLED: StopIsPending.
absl::StatusOr<std::vector<HostFacts>> AskHosts(const Inspection& inspection,
                                                const std::string& nonce, HostGuards* guards) {
  // All hosts start their programs at the same time.
  std::vector<std::string> programs = {"sluice-scheduler", "sluice-pserver"};
  if (inspection.interpreter.empty()) programs.push_back("sluice-worker");
  std::vector<std::vector<uint64_t>> versions(guards->size());
  std::vector<uint64_t> modules(guards->size(), 0);
  for (size_t i = 0; i < guards->size(); ++i) {
    if (!guards->Answers(i)) continue;
    for (const std::string& program : programs)
      versions[i].push_back(guards->Send(i, "program", {program}));
    if (!inspection.interpreter.empty())
      modules[i] = guards->Send(i, "python", {inspection.interpreter});
  }
  std::vector<HostFacts> all;
  for (size_t i = 0; i < guards->size(); ++i) {
    HostFacts facts;
    facts.name = guards->at(i).spec.name;
    facts.version = guards->at(i).version;
    facts.clock_ahead = guards->at(i).clock_ahead;
    facts.free_bytes = guards->at(i).free_bytes;
    facts.folder = guards->at(i).folder;
    // Only a guard of this version is asked more.
    if (guards->Answers(i)) {
      for (size_t j = 0; j < versions[i].size(); ++j) {
        const auto version = guards->Await(i, versions[i][j]);
        if (absl::IsCancelled(version.status())) return version.status();
        if (absl::IsUnavailable(version.status())) break;
        if (!version.ok()) {
          facts.broken_programs.push_back(
              absl::StrCat(programs[j], " does not run: ", version.status().message()));
        }
      }
      if (modules[i] != 0) {
        const auto module = guards->Await(i, modules[i]);
        if (absl::IsCancelled(module.status())) return module.status();
        if (!module.ok() && !absl::IsUnavailable(module.status())) {
          facts.broken_programs.push_back(
              absl::StrCat("--python=", inspection.interpreter,
                           " does not run a program there: ", module.status().message()));
        } else if (module.ok() && (module->empty() || (*module)[0] != inspection.rules.version)) {
          facts.broken_programs.push_back(absl::StrCat(
              "--python=", inspection.interpreter, " has another version of the package sluice, '",
              module->empty() ? "" : (*module)[0], "'; this is '", inspection.rules.version, "'"));
        }
      }
      facts.path_problems = PathProblemsOn(i, inspection.paths, nonce, guards);
    }
    facts.problem = guards->at(i).gone;
    all.push_back(std::move(facts));
  }
  // Questions that were cut short look like problems.
  if (StopIsPending()) return absl::CancelledError("interrupted");
  return all;
}

}  // namespace

absl::Status InspectHosts(const Inspection& inspection, HostGuards* guards,
                          const std::function<void(const std::string&)>& note) {
  const NonceFiles nonces(inspection.paths);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<HostFacts> all,
                          AskHosts(inspection, nonces.nonce(), guards));
  SLUICE_RETURN_IF_ERROR(nonces.written());
  const HostReport report = ReportOnHosts(all, inspection.rules);
  for (const std::string& warning : report.warnings) note(absl::StrCat("warning: ", warning));
  return NothingStarted(report.errors);
}

absl::Status InspectPaths(const SharedPaths& paths, HostGuards* guards) {
  const NonceFiles nonces(paths);
  SLUICE_RETURN_IF_ERROR(nonces.written());
  std::vector<std::string> errors;
  for (size_t i = 0; i < guards->size(); ++i) {
    if (!guards->Answers(i)) continue;
    for (const std::string& problem : PathProblemsOn(i, paths, nonces.nonce(), guards))
      errors.push_back(absl::StrCat(guards->at(i).spec.name, ": ", problem));
  }
  if (StopIsPending()) return absl::CancelledError("interrupted");
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the job cannot run, because of ", Counted(errors.size(), "problem"),
                   " on the hosts:\n  ", absl::StrJoin(errors, "\n  ")));
}

}  // namespace sluice::cli
