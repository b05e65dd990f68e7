// A job's status as text: one live line on a terminal, plain lines otherwise, a table at the end.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

std::string WithCommas(uint64_t number);                        // "1,234,567"
std::string Counted(uint64_t number, const std::string& noun);  // "1 epoch", "1,234 epochs"
std::string ByteCount(uint64_t bytes);                          // "1.5 MiB"
std::string ShortDuration(double seconds);                      // "8 s", "3 m 20 s", "2 h 05 m"
const char* StateName(JobState state);                          // "queued", ...
bool HasEnded(JobState state);

// "waits for X", also when `waiting_for` already says so.
std::string WaitText(const std::string& waiting_for);
// Epoch, step, examples/s, loss, AUC, staleness, workers alive, ETA: in words where `width`
// characters hold them, else in short, which an 80-column terminal holds; cut to `width`.
std::string LiveLine(const JobStatus& status, size_t width);
// One worker: rank, epoch, step, loss, examples/s.
std::string WorkerLine(const WorkerProgress& worker);
std::string StepLine(const StepLoss& step);
// The epochs and the result.
std::string FinalTable(const JobStatus& status);

// The capabilities of standard output.
struct Screen {
  bool live = false;     // a line that is written over
  bool escapes = false;  // escape codes
};
// Says what the output can show: `terminal` is false for a file or pipe; `term` and `no_color` are
// the values of TERM and NO_COLOR (null: not set). A dumb terminal has neither, and NO_COLOR asks
// for no escape codes.
Screen ScreenOf(bool terminal, const char* term, const char* no_color);
Screen StandardScreen();

enum class ProgressMode { kLive, kPlain };
// Of --progress: auto is live when the screen is `live`. INVALID_ARGUMENT otherwise.
absl::StatusOr<ProgressMode> ParseProgressMode(const std::string& text, bool live);

// Thread safety: one thread.
class ProgressPrinter {
 public:
  // `out` outlives the printer. Without `escapes` a live line is erased by blanks.
  ProgressPrinter(ProgressMode mode, std::ostream* out, bool escapes = true)
      : mode_(mode), escapes_(escapes), out_(*out) {}
  // Also prints each warning of the job once.
  void Update(const JobStatus& status);
  // What the workers reported every log_every steps, each step once: plain lines.
  void Steps(const google::protobuf::RepeatedPtrField<StepLoss>& steps);
  // A line of its own, above the live one.
  void Note(const std::string& line);
  // Ends the live line; prints the final table.
  void Finish(const JobStatus& status);

 private:
  std::string Eraser(size_t shown) const;
  void ClearLive();
  void Warn(const google::protobuf::RepeatedPtrField<std::string>& warnings);
  void PrintChanges(const JobStatus& status);

  const ProgressMode mode_;
  const bool escapes_;
  std::ostream& out_;
  size_t live_shown_ = 0;  // characters of the live line
  std::set<std::string> warned_;
  std::string last_change_;
  int epochs_shown_ = 0;
};

}  // namespace sluice::cli
