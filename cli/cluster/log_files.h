// Reads the log of a process as one text, although it lies in several files: PATH is the newest,
// PATH.1 the next older one (common/daemon/log_file.h).
//
// Thread safety: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sluice::cli {

class LogReader {
 public:
  // Returns true for a line that is to be shown. Null accepts all lines.
  using Filter = std::function<bool(const std::string& line)>;

  explicit LogReader(std::string path);
  ~LogReader();
  LogReader(LogReader&& other) noexcept;

  // The last `lines` complete lines that the filter accepts, oldest first, and at most 64 MiB of
  // them. Empty when there is no file. New goes on after the last line of the log.
  std::vector<std::string> Tail(size_t lines, const Filter& filter = nullptr);
  // The complete lines since Tail or the last New. A line without an end is still being written; it
  // comes when it is complete.
  std::vector<std::string> New(const Filter& filter = nullptr);

  const std::string& path() const { return path_; }

 private:
  class File;
  // The log's files that are there, newest first, all open: they may be renamed meanwhile.
  std::vector<std::unique_ptr<File>> OpenAll() const;
  // The file that follows `current_` now; null: `current_` is the newest.
  std::unique_ptr<File> Next() const;

  std::string path_;
  std::unique_ptr<File> current_;  // what New reads; null: the log has no file yet
};

// Returns the last `lines` lines of the log, joined by line ends; "" when it has none.
std::string TailOfLog(const std::string& path, int lines);

// True for a worker's line with the loss of a step.
bool IsStepLine(const std::string& line);
// True when the line has `job_id` as a whole word.
bool NamesJob(const std::string& line, const std::string& job_id);
// The id of the job of which the line tells: "adult-1" of "job adult-1: ..."; "" when it names
// none.
std::string JobNamedIn(const std::string& line);

}  // namespace sluice::cli
