// A job's status as text: one live line on a terminal, plain lines otherwise, a table at the end.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

std::string WithCommas(uint64_t number);                        // "1,234,567"
std::string Counted(uint64_t number, const std::string& noun);  // "1 epoch", "1,234 epochs"
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

enum class ProgressMode { kLive, kPlain };
// Of --progress: auto is live when `terminal`. INVALID_ARGUMENT otherwise.
absl::StatusOr<ProgressMode> ParseProgressMode(const std::string& text, bool terminal);

// Thread safety: one thread.
class ProgressPrinter {
 public:
  // `out` outlives the printer.
  ProgressPrinter(ProgressMode mode, std::ostream* out) : mode_(mode), out_(*out) {}
  void Update(const JobStatus& status);
  // What the workers reported every log_every steps, each step once: plain lines.
  void Steps(const google::protobuf::RepeatedPtrField<StepLoss>& steps);
  // A line of its own, above the live one.
  void Note(const std::string& line);
  // Ends the live line; prints the final table.
  void Finish(const JobStatus& status);

 private:
  void ClearLive();
  void PrintChanges(const JobStatus& status);

  const ProgressMode mode_;
  std::ostream& out_;
  bool live_shown_ = false;
  std::string last_change_;
  int epochs_shown_ = 0;
};

}  // namespace sluice::cli
