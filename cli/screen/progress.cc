#include "cli/screen/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/screen/checkpoint_text.h"
#include "cli/screen/format.h"
#include "cli/screen/status_text.h"
#include "common/base/message_text.h"
#include "common/daemon/hot_row_use.h"

namespace sluice::cli {
namespace {

std::string Rate(double examples_per_second) {
  return WithCommas(static_cast<uint64_t>(std::llround(std::max(0.0, examples_per_second)))) +
         " examples/s";
}

std::string StepText(const std::string& whose, const StepLoss& step) {
  return absl::StrFormat("%s: epoch %s step %s loss %.5f", whose, WithCommas(step.epoch()),
                         WithCommas(step.step()), step.loss());
}

const EvalMetrics* LastEval(const JobStatus& status) {
  // Not every epoch is evaluated (eval.every_epochs), so the newest evaluation may be older.
  for (int i = status.epochs_log_size() - 1; i >= 0; --i) {
    if (status.epochs_log(i).eval().examples() > 0) return &status.epochs_log(i).eval();
  }
  return nullptr;
}

std::string Staleness(const sluice::Staleness& s) {
  return absl::StrFormat("staleness %.1f (max %d)", static_cast<double>(s.sum()) / s.pushes(),
                         s.max());
}

std::string ShortRate(double examples_per_second) {
  if (examples_per_second < 1e4) return absl::StrFormat("%.0f ex/s", examples_per_second);
  if (examples_per_second < 1e7) return absl::StrFormat("%.0fk ex/s", examples_per_second / 1e3);
  return absl::StrFormat("%.0fM ex/s", examples_per_second / 1e6);
}

bool EvaluatesOnly(const JobStatus& status) { return status.epochs() == 0; }

// "epoch 3/8"; "" for a job that only evaluates.
std::string EpochOf(const JobStatus& status, const std::string& word) {
  if (EvaluatesOnly(status)) return "";
  // After the last epoch the job counts one more, which people would take for a mistake.
  return absl::StrCat(word, " ", WithCommas(std::min(status.epoch(), status.epochs())), "/",
                      WithCommas(status.epochs()));
}

// The figures of a running job in about 79 characters.
std::string ShortLiveLine(const JobStatus& status) {
  std::string line = EvaluatesOnly(status) ? status.phase()
                                           : absl::StrCat(EpochOf(status, "ep"), " step ",
                                                          WithCommas(status.global_step()));
  if (status.examples_per_second() > 0) {
    absl::StrAppend(&line, " ", ShortRate(status.examples_per_second()));
  }
  if (status.loss() > 0) absl::StrAppendFormat(&line, " loss %.3f", status.loss());
  if (const EvalMetrics* eval = LastEval(status)) {
    absl::StrAppend(&line, " AUC ", AucText(*eval, 3));
  }
  const sluice::Staleness& s = status.staleness();
  if (s.pushes() > 0) {
    absl::StrAppendFormat(&line, " stale %.1f", static_cast<double>(s.sum()) / s.pushes());
  }
  // Said only when it is news: the place is short.
  if (status.workers_alive() < status.worker_num())
    absl::StrAppendFormat(&line, " workers %d/%d", status.workers_alive(), status.worker_num());
  if (status.eta_s() > 0) {
    absl::StrAppend(&line, " ETA ",
                    absl::StrReplaceAll(ShortDuration(status.eta_s()), {{" ", ""}}));
  }
  return line;
}

std::string EpochLine(const EpochResult& e) {
  std::string line =
      absl::StrFormat("epoch %s: %s in %s, loss %.5f", WithCommas(e.epoch()),
                      Counted(e.examples(), "example"), ShortDuration(e.seconds()), e.loss());
  if (e.eval().examples() > 0) {
    absl::StrAppendFormat(&line, ", AUC %s, log loss %.5f, accuracy %.5f, MAE %.5f, RMSE %.5f",
                          AucText(e.eval(), 5), e.eval().log_loss(), e.eval().accuracy(),
                          e.eval().mae(), e.eval().rmse());
    for (const NamedValue& metric : e.eval().user())
      absl::StrAppend(&line, ", ", UserMetricText(metric));
  }
  return line;
}

// An epoch is printed once its evaluation has arrived or can no longer arrive.
bool IsComplete(const EpochResult& e, const JobStatus& status) {
  return e.eval().examples() > 0 || status.epoch() > e.epoch() || HasEnded(status.state());
}

// Says which epoch was the best when it is not the one that the result describes, and whether
// training stopped early, and by whom.
std::string BestText(const JobStatus& status) {
  const JobResult& r = status.result();
  std::string text;
  if (r.stopped_early()) {
    absl::StrAppend(&text, "stopped early: no better ",
                    r.early_stop().metric() == EarlyStop::AUC ? "AUC" : "log loss", " in the last ",
                    Counted(r.early_stop().without_improvement(), "evaluation"),
                    " (train.early_stop)\n");
  }
  if (!r.stopped_by().empty()) absl::StrAppend(&text, "ended early by the ", r.stopped_by(), "\n");
  // The last epoch is always evaluated.
  if (!r.has_best() || r.best().epoch() == r.epochs()) return text;
  const bool keeps = status.config().checkpoint().save() == CheckpointConfig::BEST;
  absl::StrAppendFormat(&text, "best: epoch %s, with AUC %s and log loss %.5f\n",
                        WithCommas(r.best().epoch()), AucText(r.best().eval(), 5),
                        r.best().eval().log_loss());
  if (!keeps && !r.model_dir().empty())
    absl::StrAppend(&text, "note: the model is that of epoch ", WithCommas(r.epochs()),
                    "; checkpoint.save: BEST keeps the best one\n");
  return text;
}

std::string ModelText(const JobStatus& status) {
  const JobResult& r = status.result();
  std::string text;
  if (!r.model_dir().empty()) absl::StrAppend(&text, "model: ", r.model_dir(), "\n");
  if (!r.model_digest().empty()) absl::StrAppend(&text, "model_digest: ", r.model_digest(), "\n");
  if (r.has_best() && !r.model_dir().empty() &&
      status.config().checkpoint().save() == CheckpointConfig::BEST) {
    absl::StrAppend(&text, "the model is that of epoch ", WithCommas(r.best().epoch()),
                    ", the best one\n");
  }
  return text;
}

std::string Totals(const JobStatus& status) {
  const JobResult& r = status.result();
  std::string text = absl::StrCat(status.job_id(), ": ", StateName(status.state()), ", ");
  if (EvaluatesOnly(status)) {
    absl::StrAppend(&text, "evaluated ", Counted(r.eval().examples(), "example"), "\n");
  } else {
    absl::StrAppend(&text, "mode ", r.mode(),
                    r.k_steps() > 0 ? absl::StrCat(" (k_steps ", r.k_steps(), ")") : "", ", ",
                    Counted(r.epochs(), "epoch"), ", ", Counted(r.global_step(), "step"), ", ",
                    Counted(r.examples(), "example"), " in ", ShortDuration(r.seconds()), " (",
                    Rate(r.examples_per_second()), ")\n");
  }
  if (r.has_eval() && r.eval().examples() == 0)
    absl::StrAppend(&text, "note: no example was evaluated; see data.eval_files\n");
  if (r.staleness().pushes() > 0) absl::StrAppend(&text, Staleness(r.staleness()), "\n");
  if (r.has_hot_rows()) absl::StrAppend(&text, Describe(r.hot_rows()), "\n");
  const StageSeconds& s = r.stages();
  if (s.compute() > 0) {
    absl::StrAppendFormat(&text,
                          "a worker spent: read %.2f s, dedup %.2f s, compute %.2f s,\n"
                          "  pull wait %.2f s, push wait %.2f s\n",
                          s.read(), s.dedup(), s.compute(), s.pull_wait(), s.push_wait());
  }
  absl::StrAppend(&text, DataText(r.data(), status.config()));
  if (r.bad_lines() > 0) absl::StrAppend(&text, "bad lines: ", WithCommas(r.bad_lines()), "\n");
  if (r.examples_dropped() > 0) {
    absl::StrAppend(&text, "examples dropped by drop_last: ", WithCommas(r.examples_dropped()),
                    "\n");
  }
  if (r.examples_replayed() > 0) {
    absl::StrAppend(&text, "examples trained again: ", WithCommas(r.examples_replayed()), "\n");
  }
  const std::string recovery = DescribeRecovery(r.recovery());
  if (!recovery.empty()) absl::StrAppend(&text, "recovery: ", recovery, "\n");
  if (!r.resumed_from().empty()) absl::StrAppend(&text, "resumed from: ", r.resumed_from(), "\n");
  // A job that was resumed has not read its initial checkpoint.
  if (r.resumed_from().empty() && !status.config().initial_checkpoint().empty())
    absl::StrAppend(&text, "started from: ", status.config().initial_checkpoint(), "\n");
  if (r.checkpoint().made() > 0 || r.checkpoint().failed() > 0) {
    absl::StrAppend(&text, "checkpoints: ", WithCommas(r.checkpoint().made()), " made, ",
                    WithCommas(r.checkpoint().failed()), " failed");
    if (!r.checkpoint().dir().empty())
      absl::StrAppend(&text, ", the newest is ", r.checkpoint().dir());
    absl::StrAppend(&text, "\n");
  }
  return absl::StrCat(text, BestText(status), ModelText(status));
}

}  // namespace

bool HasEnded(JobState state) {
  return state == JOB_DONE || state == JOB_FAILED || state == JOB_CANCELLED;
}

std::string WaitText(const std::string& waiting_for) {
  return absl::StartsWith(waiting_for, "wait") ? waiting_for : "waits for " + waiting_for;
}

std::string LiveLine(const JobStatus& status, size_t width) {
  std::vector<std::string> parts;
  if (status.state() == JOB_RUNNING) {
    parts.push_back(status.job_id());
    for (const std::string& word : {EpochOf(status, "epoch"), status.phase()}) {
      if (!word.empty()) parts.back() += " " + word;
    }
    if (!EvaluatesOnly(status))
      parts.push_back(absl::StrCat("step ", WithCommas(status.global_step())));
    if (status.examples_per_second() > 0) parts.push_back(Rate(status.examples_per_second()));
    if (status.loss() > 0) parts.push_back(absl::StrFormat("loss %.4f", status.loss()));
  } else {
    parts.push_back(absl::StrCat(status.job_id(), " ", StateName(status.state())));
  }
  if (const EvalMetrics* eval = LastEval(status))
    parts.push_back(absl::StrCat("AUC ", AucText(*eval, 4)));
  if (status.staleness().pushes() > 0) parts.push_back(Staleness(status.staleness()));
  const std::string recovery = DescribeRecovery(status.recovery());
  if (status.state() == JOB_RUNNING) {
    parts.push_back(absl::StrCat("workers ", status.workers_alive(), "/", status.worker_num()));
    const std::string checkpoint = CheckpointAge(status.checkpoint());
    if (!checkpoint.empty()) parts.push_back(checkpoint);
    if (!recovery.empty()) parts.push_back(recovery);
    if (status.eta_s() > 0) parts.push_back("ETA " + ShortDuration(status.eta_s()));
  } else {
    if (!status.waiting_for().empty() || !status.message().empty()) {
      parts.push_back(status.waiting_for().empty() ? status.message()
                                                   : WaitText(status.waiting_for()));
    }
    if (!recovery.empty()) parts.push_back(recovery);
  }
  std::string line = absl::StrJoin(parts, " | ");
  if (line.size() > width && status.state() == JOB_RUNNING) line = ShortLiveLine(status);
  if (line.size() > width) line.resize(width);
  return line;
}

std::string StepLine(const StepLoss& step) {
  std::string line = absl::StrCat(StepText(absl::StrCat("worker ", step.rank()), step), " ",
                                  Rate(step.examples_per_second()));
  for (const NamedValue& logged : step.user()) absl::StrAppend(&line, ", ", UserMetricText(logged));
  return line;
}

std::string WorkerLine(const WorkerProgress& worker, std::optional<uint32_t> slot) {
  const std::string whose = absl::StrCat("rank ", worker.rank(), slot ? " on worker " : "",
                                         slot ? absl::StrCat(*slot) : "");
  if (worker.loss() == 0 && worker.examples_per_second() == 0) {  // no figures yet
    return absl::StrCat(whose, ": epoch ", worker.epoch() == 0 ? "-" : WithCommas(worker.epoch()),
                        " step ", WithCommas(worker.step()), " loss - - examples/s");
  }
  StepLoss now;
  now.set_epoch(worker.epoch());
  now.set_step(worker.step());
  now.set_loss(worker.loss());
  // A worker that waits has no rate.
  return absl::StrCat(
      StepText(whose, now), " ",
      worker.examples_per_second() == 0 ? "- examples/s" : Rate(worker.examples_per_second()));
}

std::string FinalText(const JobStatus& status) {
  const EvalMetrics& eval = status.result().eval();
  return absl::StrCat(eval.examples() > 0 ? EvalText(eval) : "", Totals(status));
}

Screen ScreenOf(bool terminal, const char* term, const char* no_color) {
  Screen screen;
  screen.live = terminal && (term == nullptr || absl::string_view(term) != "dumb");
  screen.escapes = screen.live && (no_color == nullptr || *no_color == '\0');
  return screen;
}

size_t TerminalWidth(int fd) {
  winsize size = {};
  // A terminal that does not know its width is taken to have 100 columns.
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
  return size.ws_col;
}

Screen StandardScreen() {
  return ScreenOf(isatty(STDOUT_FILENO) == 1, std::getenv("TERM"), std::getenv("NO_COLOR"));
}

absl::StatusOr<ProgressMode> ParseProgressMode(const std::string& text, bool live) {
  if (text == "auto") return live ? ProgressMode::kLive : ProgressMode::kPlain;
  if (text == "live") return ProgressMode::kLive;
  if (text == "plain") return ProgressMode::kPlain;
  return absl::InvalidArgumentError(
      absl::StrCat("--progress=", text, " is unknown; give auto, live or plain"));
}

void ProgressPrinter::Update(const JobStatus& received) {
  JobStatus status = received;
  // Texts come from other hosts and may have escape codes, which could rewrite the terminal.
  MakePrintable(&status);
  Warn(status.warnings());
  NoteCheckpoints(status.checkpoint());
  NoteRecovery(status);
  if (mode_ == ProgressMode::kLive) {
    PrintEpochs(status);
    // One column less: a character in the last one moves some terminals to the next line.
    const std::string line = LiveLine(status, TerminalWidth(STDOUT_FILENO) - 1);
    // Erase the rest of a longer previous line.
    out_ << '\r' << line << Eraser(line.size()) << std::flush;
    live_shown_ = line.size();
    return;
  }
  PrintChanges(status);
  out_.flush();
}

void ProgressPrinter::Steps(const google::protobuf::RepeatedPtrField<StepLoss>& steps) {
  // The live line already shows the newest figures.
  if (mode_ == ProgressMode::kLive) return;
  const auto now = std::chrono::steady_clock::now();
  for (const StepLoss& step : steps) {
    if (step_lines_[step.rank()].Take(now)) out_ << StepLine(step) << '\n';
  }
}

void ProgressPrinter::PrintChanges(const JobStatus& status) {
  std::string change = absl::StrCat(status.job_id(), ": ", StateName(status.state()));
  if (status.state() == JOB_RUNNING) {
    if (!status.phase().empty()) absl::StrAppend(&change, ", ", status.phase());
    if (!EvaluatesOnly(status)) absl::StrAppend(&change, ", ", EpochOf(status, "epoch"));
    absl::StrAppend(&change, ", workers ", status.workers_alive(), "/", status.worker_num());
  } else if (!status.message().empty() && !HasEnded(status.state())) {
    // The reason why a job ended is printed once, as the error of the command.
    absl::StrAppend(&change, ": ", status.message());
  }
  PrintEpochs(status);
  if (change != last_change_) out_ << change << '\n';
  last_change_ = change;
}

void ProgressPrinter::PrintEpochs(const JobStatus& status) {
  for (const EpochResult* epoch : NewEpochs(status)) {
    ClearLive();
    // On a terminal the epochs follow each other, as rows of one table. In a file there are other
    // lines between them, so each line says by itself what its figures are.
    if (mode_ == ProgressMode::kLive) {
      out_ << epoch_rows_.Next(*epoch);
    } else {
      out_ << EpochLine(*epoch) << '\n';
    }
  }
}

// The epochs that are complete and were not shown yet. From now on they count as shown.
std::vector<const EpochResult*> ProgressPrinter::NewEpochs(const JobStatus& status) {
  std::vector<const EpochResult*> epochs;
  for (const EpochResult& epoch : status.epochs_log()) {
    if (epoch.epoch() <= epochs_shown_) continue;
    if (!IsComplete(epoch, status)) break;
    epochs_shown_ = epoch.epoch();
    epochs.push_back(&epoch);
  }
  return epochs;
}

// Returns the text that blanks the terminal's line after its first `shown` characters.
std::string ProgressPrinter::Eraser(size_t shown) const {
  if (escapes_) return "\x1b[K";
  return std::string(live_shown_ > shown ? live_shown_ - shown : 0, ' ');
}

void ProgressPrinter::ClearLive() {
  if (live_shown_ > 0) out_ << '\r' << Eraser(0) << (escapes_ ? "" : "\r");
  live_shown_ = 0;
}

void ProgressPrinter::Warn(const google::protobuf::RepeatedPtrField<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    // Every status repeats all warnings of the job.
    if (warned_.insert(warning).second) Note(absl::StrCat("warning: ", warning));
  }
}

void ProgressPrinter::NoteCheckpoints(const CheckpointStatus& checkpoint) {
  // Without a folder there is no checkpoint yet, only the age of the job.
  if (checkpoint.step() == checkpoint_shown_ || checkpoint.dir().empty()) return;
  checkpoint_shown_ = checkpoint.step();
  if (checkpoint.made() == 0) {
    Note(absl::StrCat("resumes from ", checkpoint.dir(), ", made ",
                      ShortDuration(checkpoint.age_s()), " ago"));
  } else if (mode_ == ProgressMode::kPlain) {
    Note(absl::StrCat("checkpoint of step ", WithCommas(checkpoint.step()),
                      " is complete: ", checkpoint.dir(), " (", ByteCount(checkpoint.bytes()), ", ",
                      ShortDuration(checkpoint.seconds()), ")"));
  }
}

void ProgressPrinter::NoteRecovery(const JobStatus& status) {
  // While the job recovers, its message says the same.
  if (status.state() == JOB_RECOVERING || status.recovery().last() == last_loss_) return;
  last_loss_ = status.recovery().last();
  Note(absl::StrCat("recovery: ", last_loss_));
}

void ProgressPrinter::Note(const std::string& line) {
  ClearLive();
  out_ << line << std::endl;
}

void ProgressPrinter::Finish(const JobStatus& received) {
  JobStatus status = received;
  MakePrintable(&status);
  Warn(status.warnings());
  if (mode_ == ProgressMode::kPlain) PrintChanges(status);
  PrintEpochs(status);
  ClearLive();
  out_ << FinalText(status) << std::flush;
  // Last, so that nobody misses that the model is of no use.
  Warn(status.result().warnings());
}

ScoreProgress::ScoreProgress(ProgressMode mode, Clock* clock, std::ostream* out)
    : mode_(mode), clock_(clock), out_(*out), began_(clock->Now()), printed_(began_) {}

std::string ScoreProgress::Text(uint64_t lines) const {
  const double seconds = absl::ToDoubleSeconds(clock_->Now() - began_);
  const double rate = seconds > 0 ? static_cast<double>(lines) / seconds : 0;
  return absl::StrCat("scored ", Counted(lines, "line"), ", ",
                      WithCommas(static_cast<uint64_t>(rate)), " lines/s");
}

void ScoreProgress::Update(uint64_t lines) {
  const absl::Time now = clock_->Now();
  const bool live = mode_ == ProgressMode::kLive;
  // Not after every piece: a log would fill with lines, and a terminal would flicker.
  if (now - printed_ < (live ? kLiveEvery : kPlainEvery)) return;
  printed_ = now;
  const std::string text = Text(lines);
  if (!live) {
    out_ << text << std::endl;
    return;
  }
  // Blanks overwrite the rest of a longer line.
  const size_t blanks = shown_ > text.size() ? shown_ - text.size() : 0;
  out_ << '\r' << text << std::string(blanks, ' ') << std::flush;
  shown_ = text.size();
}

void ScoreProgress::Clear() {
  if (shown_ == 0) return;
  out_ << '\r' << std::string(shown_, ' ') << '\r' << std::flush;
  shown_ = 0;
}

}  // namespace sluice::cli
