// sluice: dispatches to the subcommands.
#include <cstdio>
#include <iostream>

#include "absl/strings/str_format.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/standard_output.h"
#include "cli/watch_job.h"
#include "common/config/closest_name.h"
#include "common/config/environment.h"
#include "common/daemon/process_info.h"
#include "common/daemon/process_limits.h"

namespace sluice::cli {
namespace {

std::vector<Command> AllCommands() {
  return {LaunchCommand(),     UpCommand(),      SubmitCommand(), StatusCommand(), LogsCommand(),
          CheckpointCommand(), ScaleCommand(),   DrainCommand(),  CancelCommand(), DownCommand(),
          CkptCommand(),       PredictCommand(), PlanCommand(),   DataCommand(),   CertsCommand()};
}

std::string Overview(const std::vector<Command>& commands) {
  std::string text =
      "sluice: trains models with large embedding tables on parameter servers\n\nCommands (each "
      "has --help; "
      "sluice --version):\n";
  for (const Command& command : commands) {
    absl::StrAppendFormat(&text, "  %-10s  %s\n", command.spec.name, command.spec.summary);
  }
  text +=
      "\nExamples:\n"
      "  sluice launch --job=configs/adult_wide_deep.textproto --server_num=2 --worker_num=2\n"
      "  sluice up --worker_num=4 && sluice submit --job=configs/adult_wide_deep.textproto && "
      "sluice down\n"
      "\nExit codes: 0 done; 1 the job failed or was cancelled; 2 wrong flags, files or "
      "configuration;\n"
      "3 no scheduler answered; 4 done (a job is trained and saved), but some output could not be "
      "printed;\n"
      "129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM.\n";
  return text;
}

int UnknownCommand(const std::string& word, const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.spec.name);
  std::fprintf(stderr, "sluice: there is no command '%s'%s (sluice --help)\n", word.c_str(),
               DidYouMeanOrAll(word, names).c_str());
  return kBadUsage;
}

int HelpOf(const std::string& word, const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (command.spec.name != word) continue;
    std::cout << HelpText(command.spec);
    return kDone;
  }
  return UnknownCommand(word, commands);
}

int Main(int argc, char** argv) {
  const std::vector<Command> commands = AllCommands();
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "predict") UsePassiveThreads(argv);  // the only command that computes
  const bool flag = !word.empty() && word[0] == '-';
  if (word == "help" && argc > 2) return HelpOf(argv[2], commands);
  if (word.empty() || word == "--help" || word == "-h" || word == "help") {
    (word.empty() ? std::cerr : std::cout) << Overview(commands);
    return word.empty() ? kBadUsage : kDone;
  }
  if (word == "--version" || word == "version") {
    std::cout << "sluice version " << SluiceVersion() << std::endl;
    return kDone;
  }
  QuietGrpc();
  for (const Command& command : commands) {
    if (command.spec.name != word) continue;
    const auto parsed = ParseCommand(command.spec, std::vector<std::string>(argv + 2, argv + argc));
    if (!parsed.ok()) return ReportError(parsed.status());
    if (parsed->help) return HelpOf(word, commands);
    if (const absl::Status known = CheckEnvironment(command.spec.name); !known.ok())
      return ReportError(known);
    return command.run(*parsed);
  }
  if (flag) {
    std::fprintf(stderr,
                 "sluice: '%s' comes before a command; give the command first, e.g. sluice launch "
                 "%s (sluice --help)\n",
                 word.c_str(), word.c_str());
    return kBadUsage;
  }
  return UnknownCommand(word, commands);
}

}  // namespace
}  // namespace sluice::cli

int main(int argc, char** argv) {
  sluice::cli::StandardOutput output;
  return output.Finish(sluice::cli::Main(argc, argv));
}
