// Writes the trace of one job: the spans of its members on one time line, for ui.perfetto.dev and
// chrome://tracing.
//
// The times of a member on another host are shifted by the smallest (arrival - sending) of its
// reports so far. This is the lag of its clock plus the shortest transit time of a report.
//
// Format:
// Chrome's JSON object format, {"traceEvents": [...], "otherData": {...}}, one event per line. "X"
// events have times in microseconds since the Unix epoch by this host's clock. "M" events name
// processes (members, numbered in the order of their first report) and their threads.
//
// Invariants: the file is valid JSON after each report, because each report overwrites its end. A
// report that cannot be written, e.g. on a full disk, leaves the file unchanged.
//
// Source: "Trace Event Format" of the Chromium project.
//
// Memory: a few numbers per member, and at most 1024 of its batches' numbers.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"
#include "scheduler/job/output_action.h"

namespace sluice {

class TraceFile {
 public:
  static constexpr uint64_t kMaxSpans = 2'000'000;
  // A batch with more tracks is malformed.
  static constexpr size_t kMaxTracks = 256;
  // Longer names of tracks are cut.
  static constexpr size_t kMaxTrackBytes = 128;
  // This many tracks of all members together get their names; further ones are shown by number.
  static constexpr size_t kMaxAllTracks = 65536;

  // Creates the file and its folder, and replaces a link instead of following it. An earlier trace
  // at `path` stays until the first report is written. `env` outlives the file. `host`: the host
  // whose clock the file uses. ALREADY_EXISTS: another job writes the file.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(Env* env, const std::string& path,
                                                           const std::string& job_id,
                                                           const std::string& host,
                                                           uint64_t max_spans = kMaxSpans);
  ~TraceFile();

  // Writes the report's batch, unless it was written before. INVALID_ARGUMENT: the batch is
  // malformed. INTERNAL: the file could not be written, and nothing more may be added. Both leave
  // the file unchanged.
  absl::Status Add(const TraceReport& report);

 private:
  struct Process {
    int pid = 0;  // in the trace
    std::string name;
    bool elsewhere = false;  // on another host
    int64_t shift_us = 0;    // of its clock, when `elsewhere`
    bool shift_known = false;
    size_t tracks = 0;  // number of tracks named in the file
    uint64_t dropped = 0;
    std::set<uint64_t> seen;  // the numbers of the newest batches that are written
  };
  TraceFile(Env* env, int fd, std::string path, std::string job_id, std::string host,
            uint64_t max_spans);
  // Renames the file to its path, replacing an earlier trace.
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
  // Restores the end of the last complete write. Keeps errno.
  void Restore();
  std::string End() const;

  Env* const env_;
  const int fd_;
  std::string unfinished_;  // path until Publish; then ""
  const std::string path_, job_id_, host_;
  const uint64_t max_spans_;
  std::map<uint64_t, Process> processes_;  // by member id
  uint64_t spans_ = 0;
  size_t tracks_ = 0;  // that have got their name
  bool has_events_ = false;
  // Offset at which last_end_ begins; the file ends with it.
  uint64_t events_end_ = 0;
  std::string last_end_;
};

}  // namespace sluice
