#include "cli/job_flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"

namespace sluice::cli {

std::vector<FlagSpec> JobFlags() {
  std::vector<FlagSpec> flags = {
      {"job", FlagKind::kText, "FILE", "", "the job, a JobConfig textproto (required)"}};
  for (const ShortOption& option : ShortOptions()) {
    const bool is_switch = std::string(option.name) == "a_sync";
    flags.push_back({option.name, is_switch ? FlagKind::kBool : FlagKind::kText,
                     is_switch ? "BOOL" : "VALUE", "",
                     absl::StrCat("overrides ", option.path, " of the file")});
  }
  flags.push_back({"set", FlagKind::kText, "PATH=VALUE", "",
                   "overrides any field, e.g. --set model.wide_deep.dropout=0.2", true});
  flags.push_back({"dry_run", FlagKind::kBool, "", "", "print the effective config and end"});
  flags.push_back(
      {"progress", FlagKind::kText, "auto|live|plain", "auto", "one live line, or plain lines"});
  return flags;
}

absl::StatusOr<JobConfig> JobFromFlags(const ParsedCommand& command) {
  if (command.Text("job").empty()) {
    return absl::InvalidArgumentError(
        "no job is given; give --job=FILE, e.g. --job=configs/adult_wide_deep.textproto");
  }
  std::vector<ConfigOverride> overrides = OverridesFromEnvironment();
  for (const ShortOption& option : ShortOptions()) {
    if (!command.Given(option.name)) continue;
    overrides.push_back({option.path, command.Text(option.name), absl::StrCat("--", option.name)});
  }
  for (const std::string& text : command.All("set")) {
    const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[0].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--set ", text, " sets nothing; give path.to.field=value, e.g. train.batch_size=512"));
    }
    overrides.push_back({parts[0], parts[1], "--set"});
  }
  return LoadJobConfig(command.Text("job"), overrides);
}

std::string Describe(const JobConfig& job) {
  const Mode mode = ModeOf(job.strategy());
  std::string text =
      absl::StrCat(job.name(), ": ", job.evaluate_only() ? "evaluate only" : ModeName(mode));
  if (mode == Mode::kGeo) absl::StrAppend(&text, " (k_steps ", KSteps(job.strategy()), ")");
  absl::StrAppend(&text, ", ", job.worker_num(), job.worker_num() == 1 ? " worker" : " workers");
  if (!job.evaluate_only()) {
    absl::StrAppend(&text, " x batch ", job.train().batch_size(), ", ", job.train().epochs(),
                    job.train().epochs() == 1 ? " epoch" : " epochs", ", seed ",
                    job.train().seed());
  }
  return text;
}

}  // namespace sluice::cli
