// Writes a TensorBoard event file: scalars by tag and step.
//
// Format:
//   record := length:u64, masked CRC-32C of length:u32, data, masked CRC-32C of data:u32
//   data   := `Event` message: wall_time = 1 (double), step = 2 (int64), file_version = 3 (string),
//             summary = 5 { value = 1 { tag = 1 (string), simple_value = 2 (float) } },
//             session_log = 7 { status = 1 (START = 1) }: readers forget the points from `step` on
// Integers are little-endian. The messages are encoded by hand. The first event holds the file
// version "brain.Event:2".
//
// Source: tensorflow/core/util/event.proto and lib/io/record_writer.h.
//
// Invariants:
// - After each call the file holds whole records: readers stop at a torn one, and would not see
// what
//   follows it. A write that fails, e.g. on a full disk, is taken back.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"

namespace sluice {

// A point of an event file.
struct EventPoint {
  absl::Time wall_time;
  uint64_t step = 0;
  std::string tag;
  double value = 0;
};

// An event file that EventFile has written, up to the first record that is torn.
struct EventFileContents {
  absl::Time begun;  // when the run whose points it has began
  // Of `begun` and the points: before `begun` when the clock was set back meanwhile.
  absl::Time earliest;
  std::vector<EventPoint> points;
  uint64_t bytes = 0;  // that were read for the points
  bool whole = true;   // false: earlier records were left out
};

// Reads an event file that EventFile has written. Points whose records have another shape are left
// out. INVALID_ARGUMENT: it is none.
absl::StatusOr<EventFileContents> ReadEventFile(Env* env, const std::string& path);
// The same for the records in the file's last `most` bytes alone; `begun` is read in any case. What
// it reads is bounded by `most` and a constant.
absl::StatusOr<EventFileContents> ReadEndOfEventFile(Env* env, const std::string& path,
                                                     uint64_t most);

class EventFile {
 public:
  static constexpr char kPrefix[] = "events.out.tfevents.";  // every name begins with it

  // Creates `dir` (with its parents) and in it a new file with a name that TensorBoard recognizes:
  // events.out.tfevents.<seconds>.<suffix>, followed by a number if that name is taken. On an error
  // no file is left. `env` is used during the call only.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(Env* env, const std::string& dir,
                                                           const std::string& suffix,
                                                           absl::Time now);
  // As above, for a file that continues the points of a run which began earlier.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(Env* env, const std::string& dir,
                                                           const std::string& suffix,
                                                           absl::Time now, absl::Time begun);
  ~EventFile();

  // Tells readers that follow the folder to forget all points of earlier files: this one repeats
  // those that still hold.
  void AddRestart(absl::Time wall_time);
  void Add(absl::Time wall_time, uint64_t step, const std::string& tag, double value);
  // Hands the added points to the operating system, so that readers see them. An error names the
  // file and the cause, and drops the points: later ones can be added.
  absl::Status Flush();
  const std::string& path() const { return path_; }

 private:
  EventFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  bool WriteAt(const std::string& bytes, uint64_t offset);  // false with errno

  const int fd_;
  const std::string path_;
  std::string added_;  // records since the last Flush
  uint64_t end_ = 0;   // of the records in the file
  bool torn_ = false;  // the file may be longer than end_
};

// Returns `data` framed as one record of the file.
std::string EventRecord(const std::string& data);

}  // namespace sluice
