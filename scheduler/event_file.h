// A TensorBoard event file: scalars by tag and step.
//
// Format: TFRecord framing (length:u64, masked CRC-32C of it:u32, data, masked CRC-32C of it:u32,
// little-endian) around `Event` messages, encoded by hand: wall_time = 1 (double), step = 2
// (int64), file_version = 3 (string), summary = 5 { value = 1 { tag = 1 (string), simple_value = 2
// (float) } }. The first holds "brain.Event:2".
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
  static constexpr char kPrefix[] = "events.out.tfevents.";  // of every name

  // Creates DIR (with its parents) and a new file in it whose name TensorBoard finds:
  // events.out.tfevents.<seconds>.<suffix>, and a number where that name is taken.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& dir,
                                                           const std::string& suffix,
                                                           absl::Time now);
  void Add(absl::Time wall_time, uint64_t step, const std::string& tag, double value);
  // Hands what was added to the operating system, so that a reader sees it. INTERNAL names the file
  // when a write has failed since its creation.
  absl::Status Flush();
  const std::string& path() const { return path_; }

 private:
  explicit EventFile(std::string path) : path_(std::move(path)) {}
  void Write(const std::string& event);

  const std::string path_;
  std::ofstream out_;
};

// One record around `data`, as in the file.
std::string EventRecord(const std::string& data);

}  // namespace sluice
