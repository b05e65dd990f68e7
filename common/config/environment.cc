#include "common/config/environment.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/local_path.h"
#include "common/config/closest_name.h"
#include "common/config/job_config.h"

namespace sluice {
namespace {

using Names = std::vector<std::string>;

constexpr char kPrefix[] = "SLUICE_";

const Names& Daemons() {
  static const auto* const names = new Names{"sluice-scheduler", "sluice-pserver", "sluice-worker"};
  return *names;
}

// A variable without its prefix, and the programs that read it. The comment at the top of
// proto/config.proto has the same table; keep both in step.
struct Variable {
  std::string name;
  Names readers;
};

const std::vector<Variable>& Variables() {
  // Never destroyed, so that it can be used while the process exits.
  static const auto* const variables = [] {
    const Names members = {"sluice-pserver", "sluice-worker"};
    const Names listeners = {"sluice-scheduler", "sluice-pserver"};
    const Names confined = {"up", "sluice-scheduler", "sluice-pserver", "sluice-worker"};
    const Names everybody = {"submit",         "status",       "checkpoint", "cancel",
                             "scale",          "drain",        "down",       "sluice-scheduler",
                             "sluice-pserver", "sluice-worker"};
    auto* all = new std::vector<Variable>{
        {"ADMIN_BIND", Daemons()},
        {"ADVERTISE", listeners},
        {"ANY_LOCAL_USER", Daemons()},
        {"BIND", listeners},
        {"CLUSTER", Daemons()},
        {"DATA_ROOT", confined},
        {"DEVICE", {"launch", "plan", "up", "sluice-worker"}},
        {"ETCD_CA", {"sluice-scheduler"}},
        {"ETCD_CERT", {"sluice-scheduler"}},
        {"ETCD_KEY", {"sluice-scheduler"}},
        {"INSECURE", Daemons()},
        {"LOG_DIR",
         {"submit", "status", "logs", "checkpoint", "cancel", "scale", "drain", "down",
          "sluice-scheduler", "sluice-pserver", "sluice-worker"}},
        {"OUTPUT_ROOT", confined},
        {"PDB", {"sluice-worker"}},
        {"PROGRAM_DIR", {"sluice-worker"}},
        {"RANK", members},
        {"ROLE", Daemons()},
        {"SCHEDULER",
         {"submit", "status", "checkpoint", "cancel", "scale", "drain", "down", "sluice-scheduler",
          "sluice-pserver", "sluice-worker"}},
        {"STANDBY", {"sluice-scheduler"}},
        {"TLS_CA", everybody},
        {"TLS_CERT", everybody},
        {"TLS_KEY", everybody},
        {"TRANSPORT", {"launch", "up", "sluice-pserver", "sluice-worker"}},
    };
    for (const ShortOption& option : ShortOptions())
      all->push_back({absl::AsciiStrToUpper(option.name), {"launch", "plan", "submit"}});
    std::sort(all->begin(), all->end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return all;
  }();
  return *variables;
}

// Variables for the tests alone. Programs that a test starts inherit them, and ignore all but ARROW
// (common/arrow/arrow_library.h).
constexpr const char* kOfTests[] = {
    "ARROW",        "BIN_DIR",    "FAULT_SEED",  "SIMULATED_BIN_DIR",
    "TEST_BIN_DIR", "TIME_SCALE", "TORCH_PYTHON"};

// Programs that do not read a variable but have a flag of the same name.
struct FlagInstead {
  const char* program;
  const char* variable;
};
constexpr FlagInstead kFlagInstead[] = {
    {"launch", "LOG_DIR"},
    {"up", "LOG_DIR"},
    {"up", "BIND"},
    {"up", "INSECURE"},
    {"up", "ANY_LOCAL_USER"},
    {"up", "WORKER_NUM"},
    {"up", "THREADS"},
    {"predict", "WORKER_NUM"},
    {"data", "THREADS"},
    {"data", "SEED"},
    {"sluice-pserver", "THREADS"},
    {"sluice-worker", "THREADS"},
    {"sluice-scheduler", "WORKER_NUM"},
};

bool Has(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool HasFlagInstead(const std::string& program, const std::string& variable) {
  return std::any_of(std::begin(kFlagInstead), std::end(kFlagInstead), [&](const FlagInstead& f) {
    return f.program == program && f.variable == variable;
  });
}

bool IsOfJob(const std::string& variable) {
  const auto options = ShortOptions();
  return std::any_of(options.begin(), options.end(), [&](const ShortOption& option) {
    return absl::AsciiStrToUpper(option.name) == variable;
  });
}

bool Refuses(const std::string& program, const std::string& variable) {
  if (ReadsVariable(program, variable)) return false;
  // These begin a job or a cluster, and ignoring a variable would spoil it. Daemons and short
  // commands tolerate variables of other programs, which one shell may set for all.
  if (program == "launch" || program == "up" || program == "submit") return true;
  return HasFlagInstead(program, variable) || (Has(Daemons(), program) && IsOfJob(variable));
}

std::string WhatToDo(const std::string& program, const std::string& variable,
                     const std::string& value) {
  if (HasFlagInstead(program, variable)) {
    return absl::StrCat("unset it and give --", absl::AsciiStrToLower(variable), "=", value);
  }
  if (IsOfJob(variable)) return "it belongs to a job: unset it here, and set it for sluice submit";
  if (variable == "SCHEDULER") {
    return "this command starts its own scheduler: unset it, or use sluice submit for a "
           "running cluster";
  }
  if (variable == "DEVICE")
    return "it is for workers: unset it here, and set it where they are started";
  return "it is for daemons that are started by hand: unset it";
}

absl::Status Unknown(const std::string& entry, const std::string& name) {
  Names known;
  for (const Variable& variable : Variables()) known.push_back(variable.name);
  const std::string nearest = ClosestName(name, known);
  return absl::InvalidArgumentError(
      absl::StrCat(entry, ": no such variable exists; ",
                   nearest.empty() ? absl::StrCat("the choices are: ", kPrefix,
                                                  absl::StrJoin(known, absl::StrCat(", ", kPrefix)))
                                   : absl::StrCat("did you mean '", kPrefix, nearest, "'?"),
                   " (set a job's other fields with --set path.to.field=value)"));
}

// The process's variables, as "NAME=value", ended by a null pointer.
//
// Not `environ`: where an interpreter loads this code as a module that finds its own libraries
// first (RTLD_DEEPBIND), that name means the C library's copy. The copy is never set when the
// interpreter has one of its own, as Debian's Python does. So the program is asked, which comes
// before its libraries.
char** ProcessEnvironment() {
  void* const program = dlopen(nullptr, RTLD_LAZY);
  void* const found = program == nullptr ? nullptr : dlsym(program, "environ");
  return found == nullptr ? nullptr : *static_cast<char***>(found);
}

}  // namespace

bool ReadsVariable(const std::string& program, const std::string& variable) {
  const auto& all = Variables();
  return std::any_of(all.begin(), all.end(), [&](const Variable& v) {
    return v.name == variable && Has(v.readers, program);
  });
}

absl::Status CheckEnvironment(const std::string& program) {
  const auto& all = Variables();
  // Null after clearenv().
  for (char** entry = ProcessEnvironment(); entry != nullptr && *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, kPrefix)) continue;
    const Names parts = absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    // Empty means unset, as for the programs that read it.
    if (parts.size() != 2 || parts[1].empty()) continue;
    const std::string name = parts[0].substr(sizeof kPrefix - 1);
    if (std::count(std::begin(kOfTests), std::end(kOfTests), name) > 0) continue;
    const bool known = std::any_of(all.begin(), all.end(),
                                   [&](const Variable& variable) { return variable.name == name; });
    // A misspelt variable would otherwise change nothing, silently.
    if (!known) return Unknown(*entry, name);
    // A folder, for whoever reads it; a URL would become a folder of that name.
    if (name == "LOG_DIR" && HasScheme(parts[1]))
      return absl::InvalidArgumentError(absl::StrCat(*entry, ": ", SchemeProblem(parts[1])));
    if (!Refuses(program, name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(*entry, ": ", absl::StartsWith(program, "sluice-") ? "" : "sluice ", program,
                     " does not read this variable; ", WhatToDo(program, name, parts[1])));
  }
  return absl::OkStatus();
}

std::vector<std::string> NotesOnEnvironment(const std::string& program) {
  std::vector<std::string> notes;
  for (const ShortOption& option : ShortOptions()) {
    const std::string name = absl::AsciiStrToUpper(option.name);
    const std::string variable = absl::StrCat(kPrefix, name);
    const char* const value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0' || ReadsVariable(program, name)) continue;
    notes.push_back(absl::StrCat("note: ", variable, "=", value, " has no effect on sluice ",
                                 program, "; sluice launch, plan and submit read it"));
  }
  return notes;
}

}  // namespace sluice
