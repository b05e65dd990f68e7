// Writes a TensorBoard event file: scalars by tag and step.
//
// Format:
//   record := length:u64, masked CRC-32C of length:u32, data, masked CRC-32C of data:u32
//   data   := `Event` message: wall_time = 1 (double), step = 2 (int64), file_version = 3 (string),
//             summary = 5 { value = 1 { tag = 1 (string), simple_value = 2 (float) } }
// Integers are little-endian. The messages are encoded by hand. The first event holds the file
// version "brain.Event:2".
//
// Source: tensorflow/core/util/event.proto and lib/io/record_writer.h.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

class EventFile {
 public:
  static constexpr char kPrefix[] = "events.out.tfevents.";  // every name begins with it

  // Creates `dir` (with its parents) and in it a new file with a name that TensorBoard recognizes:
  // events.out.tfevents.<seconds>.<suffix>, followed by a number if that name is taken.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& dir,
                                                           const std::string& suffix,
                                                           absl::Time now);
  void Add(absl::Time wall_time, uint64_t step, const std::string& tag, double value);
  // Hands the added points to the operating system, so that readers see them. INTERNAL names the
  // file if any write has failed since its creation.
  absl::Status Flush();
  const std::string& path() const { return path_; }

 private:
  explicit EventFile(std::string path) : path_(std::move(path)) {}
  void Write(const std::string& event);

  const std::string path_;
  std::ofstream out_;
};

// Returns `data` framed as one record of the file.
std::string EventRecord(const std::string& data);

}  // namespace sluice
