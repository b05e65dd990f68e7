// Prints a job's status: on a terminal one live line below a table of the epochs, plain lines
// otherwise, and the result at the end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/screen/status_text.h"
#include "common/base/clock.h"
#include "common/base/line_pace.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

bool HasEnded(JobState state);

// Returns "waits for X"; keeps a text that already begins with "wait".
std::string WaitText(const std::string& waiting_for);
// Returns epoch, step, examples/s, loss, AUC, staleness, workers alive and ETA in one line of at
// most `width` characters. Abbreviates when the words do not fit; the short form fits an 80-column
// terminal.
std::string LiveLine(const JobStatus& status, size_t width);
// One rank of a job, on the worker `slot` of the cluster: epoch, step, loss, examples/s.
std::string WorkerLine(const WorkerProgress& worker, std::optional<uint32_t> slot);
std::string StepLine(const StepLoss& step);
// Returns the result, without the epochs: those were printed when they ended.
std::string FinalText(const JobStatus& status);

// The capabilities of standard output.
struct Screen {
  bool live = false;     // can rewrite a line
  bool escapes = false;  // understands escape codes
};
// Says what the output can show: `terminal` is false for a file or pipe; `term` and `no_color` are
// the values of TERM and NO_COLOR (null: not set). A dumb terminal can do neither; NO_COLOR turns
// escape codes off.
Screen ScreenOf(bool terminal, const char* term, const char* no_color);
Screen StandardScreen();
// Columns of the terminal that `fd` is; 100 when it does not say.
size_t TerminalWidth(int fd);

enum class ProgressMode { kLive, kPlain };
// Parses --progress; auto means kLive when the screen is `live`. INVALID_ARGUMENT for other texts.
absl::StatusOr<ProgressMode> ParseProgressMode(const std::string& text, bool live);

// Thread safety: one thread.
class ProgressPrinter {
 public:
  // `out` must outlive the printer. Without `escapes`, blanks erase the live line.
  ProgressPrinter(ProgressMode mode, std::ostream* out, bool escapes = true)
      : mode_(mode), escapes_(escapes), out_(*out) {}
  // Prints the new status, and each warning of the job once.
  void Update(const JobStatus& status);
  // Prints plain lines for the steps in `steps`, which workers report every log_every steps: each
  // of the first 100 of a worker, then one in 10 seconds, as in its log. Prints nothing in live
  // mode.
  void Steps(const google::protobuf::RepeatedPtrField<StepLoss>& steps);
  // Prints a separate line above the live line.
  void Note(const std::string& line);
  // WatchJobRequest.seen_epochs.
  uint32_t epochs_shown() const { return epochs_shown_; }
  // Ends the live line; prints the epochs that are left and the result.
  void Finish(const JobStatus& status);

 private:
  std::string Eraser(size_t shown) const;
  void ClearLive();
  void Warn(const google::protobuf::RepeatedPtrField<std::string>& warnings);
  // Says once what the job resumes from; in plain mode also names each new checkpoint.
  void NoteCheckpoints(const CheckpointStatus& checkpoint);
  // Says once what became of each loss of a process.
  void NoteRecovery(const JobStatus& status);
  void PrintChanges(const JobStatus& status);
  std::vector<const EpochResult*> NewEpochs(const JobStatus& status);
  // Prints each epoch once it is complete.
  void PrintEpochs(const JobStatus& status);

  const ProgressMode mode_;
  const bool escapes_;
  std::ostream& out_;
  size_t live_shown_ = 0;  // characters of the live line
  std::set<std::string> warned_;
  std::string last_change_, last_loss_;
  uint64_t checkpoint_shown_ = 0;            // step
  std::map<uint32_t, LinePace> step_lines_;  // by rank
  uint32_t epochs_shown_ = 0;
  EpochRows epoch_rows_;
};

// Shows how many lines have been scored and how fast: one live line on a terminal, otherwise a
// plain line every 10 seconds.
//
// Thread safety: one thread at a time.
class ScoreProgress {
 public:
  static constexpr absl::Duration kLiveEvery = absl::Milliseconds(500);
  static constexpr absl::Duration kPlainEvery = absl::Seconds(10);

  // `clock` and `out` must outlive this object.
  ScoreProgress(ProgressMode mode, Clock* clock, std::ostream* out);
  ~ScoreProgress() { Clear(); }

  // Prints when the interval since the last print has passed.
  void Update(uint64_t lines);
  // Removes the live line.
  void Clear();
  // "scored 1,200 lines, 600 lines/s"
  std::string Text(uint64_t lines) const;

 private:
  const ProgressMode mode_;
  Clock* const clock_;
  std::ostream& out_;
  const absl::Time began_;
  absl::Time printed_;
  size_t shown_ = 0;  // characters of the live line
};

}  // namespace sluice::cli
