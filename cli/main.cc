// sluice: dispatches to the subcommands.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <streambuf>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "cli/commands/commands.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/completion.h"
#include "cli/screen/progress.h"
#include "cli/screen/stderr_lines.h"
#include "cli/screen/wrap.h"
#include "common/base/printable.h"
#include "common/config/closest_name.h"
#include "common/config/environment.h"
#include "common/daemon/process_info.h"
#include "common/daemon/process_limits.h"

namespace sluice::cli {
namespace {

constexpr size_t kOutputBufferBytes = 16 << 10;

// Replaces the buffer of std::cout and detects output that could not be written.
//
// Thread safety: that of std::cout. Create and finish it on the main thread, while no other thread
// prints.
class StandardOutput : private std::streambuf {
 public:
  // Create it before anything else. Opens /dev/null in place of each closed standard file:
  // otherwise a file opened later could get that number and receive what the command prints.
  // Ignores SIGPIPE, so that a reader that goes away does not end the process.
  StandardOutput();
  // Gives std::cout its own buffer back.
  ~StandardOutput() override;

  // From now on lines that are longer than the terminal is wide break between words. Output into a
  // file or pipe stays as it is.
  void Wrap();
  // Says whether a reader that goes away is no error: the command does nothing but print.
  void ReaderMayLeave(bool may = true) { reader_may_leave_ = may; }
  // Call it after everything else. Returns `code`, the exit code of the command; or kOutputLost
  // when the command is done (kDone) but some of its output could not be written. Reports lost
  // output on standard error.
  int Finish(int code);

 private:
  int_type overflow(int_type c) override;
  int sync() override;
  // Writes to the file itself.
  void Put(absl::string_view text);

  std::vector<char> buffer_;
  std::streambuf* own_ = nullptr;  // of std::cout
  int error_ = 0;                  // of the first write that failed
  bool reader_may_leave_ = false;
  size_t width_ = 0;      // columns of the terminal; 0: lines do not break
  bool at_begin_ = true;  // of a line
};

StandardOutput::StandardOutput() : buffer_(kOutputBufferBytes) {
  signal(SIGPIPE, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free number, which is `fd`. The file is open for reading only, so
    // that writing to it fails as it would on a closed file.
    if (open("/dev/null", O_RDONLY) != fd) break;
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  // std::cout's own buffer does not report why a write failed.
  own_ = std::cout.rdbuf(this);
}

StandardOutput::~StandardOutput() { std::cout.rdbuf(own_); }

int StandardOutput::Finish(int code) {
  std::cout.flush();
  if (error_ == 0 || (error_ == EPIPE && reader_may_leave_)) return code;
  PrintOnStderr(absl::StrCat(
      "sluice: cannot write all of the output to standard output: ", std::strerror(error_),
      code == kDone ? "; the command itself has succeeded" : ""));
  return code == kDone ? kOutputLost : code;
}

StandardOutput::int_type StandardOutput::overflow(int_type c) {
  if (sync() != 0) return traits_type::eof();
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  *pptr() = traits_type::to_char_type(c);
  pbump(1);
  return c;
}

void StandardOutput::Wrap() {
  if (isatty(STDOUT_FILENO) == 1) width_ = TerminalWidth(STDOUT_FILENO);
}

int StandardOutput::sync() {
  absl::string_view text(pbase(), static_cast<size_t>(pptr() - pbase()));
  if (width_ == 0) {
    Put(text);
  } else {
    std::string lines;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const bool whole = end != absl::string_view::npos;
      const absl::string_view line = text.substr(0, end);
      // A line that comes in pieces was too long for the buffer, or is a live line.
      const bool begins = at_begin_ || absl::StartsWith(line, "\r");
      absl::StrAppend(&lines, whole && begins ? Wrapped(line, width_) : std::string(line),
                      whole ? "\n" : "");
      at_begin_ = whole;
      text.remove_prefix(whole ? end + 1 : text.size());
    }
    Put(lines);
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return error_ == 0 ? 0 : -1;
}

void StandardOutput::Put(absl::string_view text) {
  while (!text.empty() && error_ == 0) {
    const ssize_t n = write(STDOUT_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      // Another process that shares the file has made it non-blocking: wait for room.
      pollfd room = {STDOUT_FILENO, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

Command CompletionCommand();

std::vector<Command> AllCommands() {
  return {LaunchCommand(),  UpCommand(),        SubmitCommand(),     StatusCommand(),
          LogsCommand(),    DashboardCommand(), CheckpointCommand(), ScaleCommand(),
          DrainCommand(),   CancelCommand(),    DownCommand(),       CkptCommand(),
          PredictCommand(), ReportCommand(),    PlanCommand(),       DataCommand(),
          TableCommand(),   DeltaCommand(),     CertsCommand(),      JoinCommand(),
          DemoCommand(),    CompletionCommand()};
}

int PrintCompletion(const ParsedCommand& command) {
  std::vector<CommandSpec> specs;
  for (const Command& one : AllCommands()) specs.push_back(one.spec);
  const std::string shell = command.words.empty() ? "" : command.words[0];
  if (shell != "bash" && shell != "zsh") {
    return ReportError(absl::InvalidArgumentError(
        "sluice completion needs the name of a shell; give sluice completion bash or zsh"));
  }
  std::cout << (shell == "bash" ? BashCompletion(specs) : ZshCompletion(specs));
  return kDone;
}

Command CompletionCommand() {
  CommandSpec spec;
  spec.name = "completion";
  spec.summary = "Prints the script with which a shell completes commands and flags of sluice.";
  spec.words = "bash|zsh";
  spec.max_words = 1;
  spec.only_prints = true;
  spec.examples =
      "  sluice completion bash > ~/.local/share/bash-completion/completions/sluice\n"
      "  sluice completion zsh > ~/.zfunc/_sluice              # a folder of fpath, before "
      "compinit\n";
  return {spec, &PrintCompletion};
}

std::string Overview(const std::vector<Command>& commands) {
  std::string text =
      "sluice: trains models with large embedding tables on parameter servers\n\n"
      "Commands (each has --help; sluice --version):\n";
  for (const Command& command : commands) {
    absl::StrAppend(
        &text, HangingText(absl::StrFormat("  %-10s  ", command.spec.name), command.spec.summary),
        "\n");
  }
  text +=
      "\nExamples:\n"
      "  sluice demo\n"
      "  sluice launch --job=configs/adult_wide_deep.textproto --worker_num=2\n"
      "  sluice up --worker_num=4\n"
      "  sluice submit --job=configs/adult_wide_deep.textproto\n"
      "  sluice down\n"
      "\nExit codes: 0 done; 1 the job failed or was cancelled; 2 wrong flags, files or\n"
      "configuration; 3 no scheduler answered; 4 done (a job is trained and saved), but\n"
      "some output could not be printed; 129, 130, 143 ended by SIGHUP, SIGINT,\n"
      "SIGTERM.\n";
  return text;
}

int UnknownCommand(const std::string& word, const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.spec.name);
  PrintOnStderr(absl::StrCat("sluice: there is no command '", word, "'",
                             DidYouMeanOrAll(word, names), " (sluice --help)"));
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

int Main(int argc, char** argv, StandardOutput* output) {
  const std::vector<Command> commands = AllCommands();
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "predict") UsePassiveThreads(argv);  // the only command that computes
  const bool flag = !word.empty() && word[0] == '-';
  // The texts below; a command decides for itself.
  output->ReaderMayLeave();
  if (word == "help" && argc > 2) return HelpOf(argv[2], commands);
  if (word.empty() || word == "--help" || word == "-h" || word == "help") {
    (word.empty() ? std::cerr : std::cout) << Overview(commands);
    return word.empty() ? kBadUsage : kDone;
  }
  if (word == "--version" || word == "version") {
    std::cout << "sluice version " << SluiceVersion() << std::endl;
    return kDone;
  }
  // Before the first channel: gRPC writes to standard error on its own.
  QuietGrpc();
  std::vector<Command> runnable = commands;
  runnable.push_back(HostGuardCommand());
  for (const Command& command : runnable) {
    if (command.spec.name != word) continue;
    const auto parsed = ParseCommand(command.spec, std::vector<std::string>(argv + 2, argv + argc));
    if (!parsed.ok()) return ReportError(parsed.status());
    if (parsed->help) return HelpOf(word, commands);
    output->ReaderMayLeave(command.spec.only_prints);
    // A configuration and JSON are text for programs.
    const auto has = [&](const char* flag) { return parsed->Given(flag) && parsed->Switch(flag); };
    if (!has("json") && !has("dry_run") && word != "completion") output->Wrap();
    const std::string& reader =
        command.spec.variables_of.empty() ? command.spec.name : command.spec.variables_of;
    if (const absl::Status known = CheckEnvironment(reader); !known.ok()) return ReportError(known);
    for (const std::string& note : NotesOnEnvironment(reader)) PrintOnStderr(PrintableLine(note));
    return command.run(*parsed);
  }
  if (flag) {
    PrintOnStderr(absl::StrCat(
        "sluice: '", word, "' comes before a command; give the command first, e.g. sluice launch ",
        word, " (sluice --help)"));
    return kBadUsage;
  }
  return UnknownCommand(word, commands);
}

}  // namespace

int RunMain(int argc, char** argv) {
  int code = kDone;
  {
    StandardOutput output;
    code = output.Finish(Main(argc, argv, &output));
  }
  std::fflush(nullptr);
  return code;
}

}  // namespace sluice::cli

int main(int argc, char** argv) { return sluice::cli::RunMain(argc, argv); }
