// The trace of one job: what its members did when, on one time line, for ui.perfetto.dev and
// chrome://tracing.
//
// Format: Chrome's JSON object format, {"traceEvents": [...], "otherData": {...}}, an event a line:
// "X" events with times in microseconds since the Unix epoch by this host's clock, "M" events that
// name processes (members, numbered in the order of their first report) and their threads. The end
// of the file is written over with each report, so that the file is whole after each. A report that
// cannot be written, as on a full disk, leaves the file as it was before.
//
// Source: "Trace Event Format" of the Chromium project.
//
// Times of a member on another host are moved by the smallest (arrival - sending) of its reports so
// far: what its clock is behind, plus the shortest way of a report.
//
// Thread safety: one thread.
//
// Memory: a few numbers a member.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/output_action.h"

namespace sluice {

class TraceFile {
 public:
  static constexpr uint64_t kMaxSpans = 2'000'000;

  // Creates the file, with its folder. An earlier trace there stays until the first report is
  // written. `host`: whose clock is the file's. ALREADY_EXISTS: another job is writing it.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(const std::string& path,
                                                           const std::string& job_id,
                                                           const std::string& host,
                                                           uint64_t max_spans = kMaxSpans);
  ~TraceFile();

  // Writes what is new in it; a batch that was written before is passed over. INVALID_ARGUMENT: the
  // batch is malformed. INTERNAL: the file could not be written, and nothing may be added any more.
  // Both leave the file as it was.
  absl::Status Add(const TraceReport& report);

 private:
  struct Process {
    int pid = 0;  // in the trace
    std::string name;
    bool elsewhere = false;  // on another host
    int64_t shift_us = 0;    // of `elsewhere`
    bool shift_known = false;
    size_t tracks = 0;  // that have a name in the file
    uint64_t dropped = 0;
    uint64_t batches = 0;       // all up to this one are written,
    std::set<uint64_t> beyond;  // and these
  };
  TraceFile(int fd, std::string path, std::string job_id, std::string host, uint64_t max_spans);
  // Gives the file its name.
  absl::Status Publish();

  Process* FindProcess(const TraceReport& report, std::string* events);
  // False when the batch was seen before.
  static bool IsNew(uint64_t number, Process* process);
  static void MoveClock(const TraceReport& report, Process* process);
  void AddSpans(const TraceBatch& batch, Process* process, std::string* events);
  // Puts `events`, each of which begins with a comma, before the end of the file.
  absl::Status Append(std::string events);
  absl::Status Write(std::string text);
  // Writes `text` at `offset`. False with errno.
  bool WriteAt(absl::string_view text, uint64_t offset);
  // Puts the last end back. Keeps errno.
  void Restore();
  std::string End() const;

  const int fd_;
  std::string unfinished_;  // where the file is until it is published; then ""
  const std::string path_, job_id_, host_;
  const uint64_t max_spans_;
  std::map<uint64_t, Process> processes_;  // by member id
  uint64_t spans_ = 0;
  bool has_events_ = false;
  uint64_t events_end_ =
      0;  // offset in the file; last_end_ stands there, and the file ends with it
  std::string last_end_;
};

}  // namespace sluice
